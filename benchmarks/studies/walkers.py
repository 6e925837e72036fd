"""Who the warm start imitates: a walker that slips, and that is often blind to walls as well.

Demonstrations that are all shortest ways would leave nothing to reinforce, and a model that has only ever seen success
has never seen what to do after a failure.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.studies.demonstrator import Demonstrator
from llm_envs.planning.grid import MOVES, Grid

__all__ = ["WalkerPolicy", "blind_walk", "sighted_walk"]


class WalkerPolicy(Demonstrator):
    """Plays the environments of :mod:`benchmarks.studies.short_plan_path`.

    Args:
        skill: How often an answer is a walk that sees the walls; else it is a walk towards the goal that sees none.
        noise: How often a step of either goes somewhere else, into a wall or not.

    A planner whose scout's proposal was seen to reach the goal repeats it.
    """

    def __init__(self, skill: float, noise: float) -> None:
        super().__init__(f"walker(skill={skill:g},noise={noise:g})")
        self.skill, self.noise = skill, noise

    def _answer(self, env: Any, agent: str, rng: random.Random) -> str:
        if agent == "planner_0" and getattr(env, "tool", False) and env.proposal_solves:
            return f"[{', '.join(env.proposal)}]"
        walk = sighted_walk if rng.random() < self.skill else blind_walk
        return f"[{', '.join(walk(env._grid, env._state, rng, self.noise))}]"


def sighted_walk(grid: Grid, cell: int, rng: random.Random, noise: float) -> list[str]:
    """The cells of a shortest way from ``cell`` to the goal, with steps to somewhere else in between.

    After such a step the way goes on from where it led; into a wall, it ends there. At most three times as long as the
    shortest way.
    """
    bound = 3 * grid.distances[cell]
    cells: list[str] = []
    while cell != grid.goal and grid.distances[cell] >= 0 and len(cells) < bound:
        around = _inside(grid, cell)
        nearer = [one for one in around if grid.distances[one] == grid.distances[cell] - 1]
        cell = rng.choice(around if rng.random() < noise else nearer)
        cells.append(grid.name(cell))
    return cells


def blind_walk(grid: Grid, cell: int, rng: random.Random, noise: float) -> list[str]:
    """The cells of a walk from ``cell`` to the goal as if there were no walls, with steps to somewhere else in between.

    At most four times as long as the straight way.
    """
    bound = 4 * _straight(grid, cell)
    cells: list[str] = []
    while cell != grid.goal and len(cells) < bound:
        around = _inside(grid, cell)
        nearer = [one for one in around if _straight(grid, one) < _straight(grid, cell)]
        cell = rng.choice(around if rng.random() < noise else nearer)
        cells.append(grid.name(cell))
    return cells


def _inside(grid: Grid, cell: int) -> list[int]:
    """The cells beside a cell, walls among them."""
    row, column = divmod(cell, grid.width)
    return [
        (row + down) * grid.width + column + right
        for down, right in MOVES.values()
        if 0 <= row + down < grid.height and 0 <= column + right < grid.width
    ]


def _straight(grid: Grid, cell: int) -> int:
    """Steps to the goal if there were no walls."""
    (row, column), (goal_row, goal_column) = divmod(cell, grid.width), divmod(grid.goal, grid.width)
    return abs(row - goal_row) + abs(column - goal_column)
