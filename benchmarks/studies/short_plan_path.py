"""Plan-path in few words, for models that are too small to read: a planner alone, and a scout beside it.

The tasks, the rules and what counts as solved are those of `plan-path-1agent`; the texts are not. A map is the list of
its walls, every cell one word, and what a turn led to takes a line::

    walls r0c1 r1c0 r2c2
    goal r4c1
    you r3c2

    planner_0 1

`plan-path-2agent` has a coder who writes Python, which a model of a third of a million parameters never will. The pair
here keeps its shape with answers that such a model can give: `scout_0` proposes cells in the planner's own notation.
With ``tool`` it works as the coder does, through something that is run: its proposal is played in a simulator, which
says in front of both agents how far it leads. Then `planner_0` gives the cells that are really stepped on.

These environments belong to the studies: :func:`register` adds them to the registry as ``short-plan-path-1agent-v0``
and ``short-plan-path-2agent-v0``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llm_envs.core import Outcome
from llm_envs.parsing import InvalidAction
from llm_envs.planning.plan_path_env import PlanPath
from llm_envs.registration import register as register_env
from llm_envs.registration import registry

__all__ = ["PAIR", "SOLO", "ShortPlanPath1Agent", "ShortPlanPath2Agent", "register"]

SOLO, PAIR = "short-plan-path-1agent-v0", "short-plan-path-2agent-v0"


class ShortPlanPath1Agent(PlanPath):
    """A planner who steps on cells, up to ``max_rounds`` times, told in few words.

    Rewards: ``team`` 1 when the goal is reached; ``progress`` 0.5 times the share of the first distance that a turn
    came closer; ``illegal`` −0.1 for an illegal move, once a turn; ``invalid`` −0.1 for unusable text.
    """

    metadata = {"name": "short_plan_path_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    notations: ClassVar[Mapping[str, str]] = {"cells": "[cell, cell]"}
    default_rewards: ClassVar[Mapping[str, float]] = {
        "goal": 1.0,
        "optimal": 0.0,
        "step": 0.0,
        "illegal": -0.1,
        "progress": 0.5,
    }

    def _rules(self) -> str:
        grid = self._grid
        cells = "".join(grid.rows)
        walls = " ".join(grid.name(cell) for cell, char in enumerate(cells) if char == "#")
        return f"walls {walls}\ngoal {grid.name(grid.goal)}"

    def _state_text(self, state: int) -> str:
        return f"you {self._grid.name(state)}"

    def _start(self) -> str:
        first = super()._start()
        self._history = f"{self._rules()}\n{self._state_text(self._state)}"
        return first

    def _play(self, agent: str, action: str) -> Outcome:
        plan = self._read_plan(action)
        left = self._left
        self._state, made, problem = self._follow(self._state, plan)
        self._moves += made
        self._left = self._distance(self._state)
        parts = {"progress": self.coefficients["progress"] * (left - self._left) / self._first_distance}
        if problem is not None:
            parts["illegal"] = self.coefficients["illegal"]
        self._say(agent, f"{action}\n{_verdict(problem)}\n{self._state_text(self._state)}")
        return self._next_turn(agent, parts, solved=self._solved(self._state))

    def _forfeit(self, agent: str) -> Outcome:
        self._say(agent, "nothing")
        return self._next_turn(agent, {})

    def _read_plan(self, text: str) -> list[str]:
        try:
            return super()._read_plan(text)
        except InvalidAction as reason:
            raise InvalidAction("no list of cells") from reason

    def _say(self, agent: str, text: str) -> None:
        self._history += f"\n{agent} {text}"

    def _instructions(self, agent: str) -> str:
        return f"{agent} {self._turn}"


class ShortPlanPath2Agent(ShortPlanPath1Agent):
    """A scout proposes cells, the planner steps on cells, up to ``max_rounds`` times.

    Rewards of the planner and of both as in `ShortPlanPath1Agent`. The scout's own: ``proposal``, 0.5 times the share
    of the first distance that its best proposal so far has left behind, paid as it rises (an episode pays what its best
    proposal is worth, and a longer one no more); ``illegal`` −0.1 for a proposal that runs into a wall.

    Args:
        *args: As `PlanPath`.
        tool: Play the proposal in a simulator and show both agents how far it leads and which cells are free from
            there. Without, the planner reads the proposal alone.
        **kwargs: As `PlanPath`.
    """

    metadata = {"name": "short_plan_path_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    roles: ClassVar[tuple[str, ...]] = ("scout_0", "planner_0")

    def __init__(self, *args: Any, tool: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tool = tool

    def _start(self) -> str:
        first = super()._start()
        self._best = self._left
        self.proposal: tuple[str, ...] = ()
        self.proposal_solves = False
        return first

    def _play(self, agent: str, action: str) -> Outcome:
        if agent != "scout_0":
            return super()._play(agent, action)
        plan = self._read_plan(action)
        reached, _, problem = self._follow(self._state, plan)
        left = self._distance(reached)
        parts = {"proposal": self.coefficients["progress"] * max(0, self._best - left) / self._first_distance}
        self._best = min(self._best, left)
        if problem is not None:
            parts["illegal"] = self.coefficients["illegal"]
        self.proposal, self.proposal_solves = tuple(plan), self._solved(reached)
        self._say(agent, f"{action}\n{self._report(reached, problem)}" if self.tool else action)
        return Outcome("planner_0", {agent: parts})

    def _forfeit(self, agent: str) -> Outcome:
        if agent != "scout_0":
            return super()._forfeit(agent)
        self.proposal, self.proposal_solves = (), False
        self._say(agent, "nothing")
        return Outcome("planner_0")

    def _report(self, reached: int, problem: str | None) -> str:
        """What the simulator says of a proposal."""
        grid = self._grid
        if self._solved(reached):
            return "sim goal"
        around = (grid.after(reached, move) for move in "UDLR")
        free = " ".join(grid.name(cell) for cell in around if cell is not None)
        return f"sim {_verdict(problem)} at {grid.name(reached)} free {free}"

    def _oracle(self, agent: str) -> str:
        return super()._oracle("planner_0")

    def _example_actions(self) -> dict[str, Sequence[str]]:
        examples = super()._example_actions()
        return {"scout_0": examples["planner_0"], **examples}


def register() -> None:
    """Add both environments to the registry, if they are not there yet."""
    for env_id, cls in ((SOLO, ShortPlanPath1Agent), (PAIR, ShortPlanPath2Agent)):
        if env_id not in registry:
            register_env(env_id, cls)


def _verdict(problem: str | None) -> str:
    return "ok" if problem is None else "stop"
