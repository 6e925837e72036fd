"""The arms of the plan-path study and its settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.studies.short_plan_path import PAIR, SOLO
from benchmarks.studies.study_arms import Arm, TreeSettings

__all__ = ["ARMS", "COMPARISONS", "StudySettings"]

_TEAM = ("scout", "planner")

ARMS: Mapping[str, Arm] = {
    "solo-sighted": Arm("single agent, before it was taught to slip", SOLO, "sighted"),
    "solo": Arm("single agent, warm start only", SOLO, "slipping"),
    "solo-grpo": Arm("single agent, GRPO", SOLO, "slipping", "grpo"),
    "pair-sighted": Arm("two agents, before they were taught to slip", PAIR, "sighted", roles=_TEAM),
    "pair": Arm("two agents, warm start only", PAIR, "slipping", roles=_TEAM),
    "pair-grpo": Arm("two agents, GRPO over episodes", PAIR, "slipping", "grpo", _TEAM),
    "at-grpo-shared": Arm("two agents, AT-GRPO, one policy", PAIR, "slipping", "at_grpo", _TEAM),
    "at-grpo-roles": Arm("two agents, AT-GRPO, one policy a role", PAIR, "slipping", "at_grpo", _TEAM, per_role=True),
}
"""``slipping`` is the warm start, ``sighted`` what it was made from."""

COMPARISONS: tuple[tuple[str, str], ...] = (
    ("at-grpo-shared", "pair-grpo"),
    ("at-grpo-roles", "pair-grpo"),
    ("at-grpo-roles", "at-grpo-shared"),
    ("at-grpo-shared", "solo-grpo"),
    ("solo-grpo", "solo"),
    ("pair-grpo", "pair"),
    ("at-grpo-shared", "pair"),
)
"""Arms whose difference is reported, task by task."""


@dataclass(frozen=True, slots=True)
class StudySettings(TreeSettings):
    """What is the same in all arms, besides :class:`~benchmarks.studies.study_arms.TreeSettings`.

    Attributes:
        grid_size: Rows and columns.
        wall_ratio: Share of walls.
        min_length: Least length of a shortest way.
        tool: Whether the scout's proposals are played in a simulator that both agents read.
        demo_tasks: Tasks that the walker demonstrates, of each environment.
        demo_turns: Turns of a demonstration, at most.
        skill: How often its answer is a shortest way; else it walks as if there were no walls.
        sft_learning_rate: Peak of the learning rate on these demonstrations.
        slip_tasks: Further tasks, of which it demonstrates bad play: the second half of the warm start.
        slip_skill: How often it sees the walls there.
        slip_noise: How often a step goes somewhere else there.
        slip_learning_rate: Peak of the learning rate on those.
    """

    grid_size: int = 5
    wall_ratio: float = 0.22
    min_length: int = 2
    tool: bool = True
    demo_tasks: int = 40_000
    demo_turns: int = 2
    skill: float = 0.6
    sft_learning_rate: float = 2e-3
    slip_tasks: int = 2500
    slip_skill: float = 0.0
    slip_noise: float = 0.7
    slip_learning_rate: float = 1e-3

    @property
    def max_tokens(self) -> int:
        """Tokens of an answer: a way through half of the cells, two tokens a cell, with brackets and end."""
        return self.grid_size * self.grid_size + 8

    @property
    def max_length(self) -> int:
        """Tokens of a prompt and its answer: 512 on maps of 5×5, and more as the cells are more."""
        return 512 * max(1, math.ceil((self.grid_size / 5) ** 2))

    @property
    def title(self) -> str:
        """The size of the maps."""
        return f"{self.grid_size}×{self.grid_size}"

    def env_kwargs(self, env: str, turns: int) -> dict[str, Any]:
        """Arguments of an arm's environment."""
        tasks = {"grid_size": self.grid_size, "wall_ratio": self.wall_ratio, "min_length": self.min_length}
        return {"max_rounds": turns, "task_options": tasks} | ({"tool": self.tool} if env == PAIR else {})
