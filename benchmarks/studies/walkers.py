"""Who the warm start imitates: a walker that is often blind to walls, and sometimes an expert.

Demonstrations that are all shortest ways would leave nothing to reinforce, and a model that has only ever seen success
has never seen what to do after a failure.
"""

from __future__ import annotations

import random
from typing import Any

from llm_envs.planning.grid import MOVES, Grid
from trainers.policies.base import Completion, Policy, Request, candidate_seed
from trainers.policies.scripted import scripted_env

__all__ = ["WalkerPolicy", "blind_walk"]


class WalkerPolicy(Policy):
    """Plays the environments of :mod:`benchmarks.studies.short_plan_path`.

    Args:
        skill: How often an answer is a shortest way; else it is a walk towards the goal that sees no walls.
        noise: How often a step of such a walk goes somewhere else.

    A planner whose scout's proposal was seen to reach the goal repeats it.
    """

    def __init__(self, skill: float, noise: float) -> None:
        super().__init__(f"walker(skill={skill:g},noise={noise:g})")
        self.skill, self.noise = skill, noise

    async def generate(self, request: Request) -> list[Completion]:
        """Return `request.n` walks."""
        env: Any = scripted_env(self, request)
        return [
            Completion(self._answer(env, request.agent, random.Random(candidate_seed(request.seed, index))), "stop")
            for index in range(request.n)
        ]

    def _answer(self, env: Any, agent: str, rng: random.Random) -> str:
        if agent == "planner_0" and getattr(env, "tool", False) and env.proposal_solves:
            return f"[{', '.join(env.proposal)}]"
        if rng.random() < self.skill:
            return str(env.oracle(agent))
        return f"[{', '.join(blind_walk(env._grid, env._state, rng, self.noise))}]"


def blind_walk(grid: Grid, cell: int, rng: random.Random, noise: float) -> list[str]:
    """The cells of a walk from ``cell`` to the goal as if there were no walls, with steps to somewhere else in between.

    At most four times as long as the straight way.
    """
    row, column = divmod(cell, grid.width)
    goal_row, goal_column = divmod(grid.goal, grid.width)
    bound = 4 * (abs(row - goal_row) + abs(column - goal_column))
    cells: list[str] = []
    while (row, column) != (goal_row, goal_column) and len(cells) < bound:
        towards = [
            (down, right)
            for down, right in MOVES.values()
            if down * (goal_row - row) > 0 or right * (goal_column - column) > 0
        ]
        inside = [
            (down, right)
            for down, right in MOVES.values()
            if 0 <= row + down < grid.height and 0 <= column + right < grid.width
        ]
        down, right = rng.choice(inside if rng.random() < noise else towards)
        row, column = row + down, column + right
        cells.append(f"r{row}c{column}")
    return cells
