"""The arms of the sudoku study and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.studies.short_sudoku import PAIR, SOLO
from benchmarks.studies.study_arms import Arm, TreeSettings

__all__ = ["ARMS", "COMPARISONS", "SudokuSettings"]

_TEAM = ("proposer", "planner")

ARMS: Mapping[str, Arm] = {
    "solo": Arm("single agent, warm start only", SOLO, "warm"),
    "solo-grpo": Arm("single agent, GRPO", SOLO, "warm", "grpo"),
    "pair": Arm("two agents, warm start only", PAIR, "warm", roles=_TEAM),
    "pair-grpo": Arm("two agents, GRPO over episodes", PAIR, "warm", "grpo", _TEAM),
    "at-grpo-shared": Arm("two agents, AT-GRPO, one policy", PAIR, "warm", "at_grpo", _TEAM),
    "at-grpo-roles": Arm("two agents, AT-GRPO, one policy a role", PAIR, "warm", "at_grpo", _TEAM, per_role=True),
}

COMPARISONS: tuple[tuple[str, str], ...] = (
    ("at-grpo-shared", "pair-grpo"),
    ("at-grpo-roles", "pair-grpo"),
    ("at-grpo-roles", "at-grpo-shared"),
    ("at-grpo-shared", "solo-grpo"),
    ("pair", "solo"),
    ("solo-grpo", "solo"),
    ("pair-grpo", "pair"),
    ("at-grpo-shared", "pair"),
)
"""Arms whose difference is reported, task by task."""


@dataclass(frozen=True, slots=True)
class SudokuSettings(TreeSettings):
    """What is the same in all arms, besides :class:`~benchmarks.studies.study_arms.TreeSettings`.

    Attributes:
        init_std: Of the model's first weights.
        min_clues: The fewest clues of a 4×4 puzzle.
        max_clues: The most.
        tool: Whether a checker says in front of both agents what becomes of a proposal.
        demo_tasks: Tasks that the player of the warm start demonstrates, of each environment.
        demo_turns: Turns of a demonstration, at most.
        skill: How often it thinks of the rules before a fill.
        sft_batch: Turns a step on these demonstrations.
        sft_learning_rate: Peak of the learning rate on them.
    """

    tokens: int = 100_000
    turns: int = 2
    eval_tasks: int = 500
    solo_tasks: int = 32
    learning_rate: float = 3e-4
    init_std: float = 0.1
    min_clues: int = 8
    max_clues: int = 12
    tool: bool = True
    demo_tasks: int = 10_000
    sft_batch: int = 32
    demo_turns: int = 2
    skill: float = 0.9
    sft_learning_rate: float = 4e-3

    @property
    def max_tokens(self) -> int:
        """Tokens of an answer: every blank cell cleared and filled, two tokens a fill, with brackets and end."""
        return 4 * (16 - self.min_clues) + 3

    @property
    def title(self) -> str:
        """The size of the puzzles."""
        return f"4×4 with {self.min_clues} to {self.max_clues} clues"

    def env_kwargs(self, env: str, turns: int) -> dict[str, Any]:
        """Arguments of an arm's environment."""
        tasks = {"grid_size": 4, "min_clues": self.min_clues, "max_clues": self.max_clues}
        return {"max_rounds": turns, "task_options": tasks} | ({"tool": self.tool} if env == PAIR else {})
