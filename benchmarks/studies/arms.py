"""The arms of the plan-path study as training configurations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.studies.short_plan_path import PAIR, SOLO
from trainers.config import TrainConfig, load_config

__all__ = ["ARMS", "COMPARISONS", "Arm", "StudySettings", "train_config"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm.

    Attributes:
        label: What tables call it.
        env: Id of the environment.
        preset: The algorithm; None trains nothing.
        per_role: One policy a role; else one plays all.
        stage: Which model it starts from: ``slipping`` is the warm start, ``sighted`` what it was made from.
    """

    label: str
    env: str
    preset: str | None = None
    per_role: bool = False
    stage: str = "slipping"


ARMS: Mapping[str, Arm] = {
    "solo-sighted": Arm("single agent, before it was taught to slip", SOLO, stage="sighted"),
    "solo": Arm("single agent, warm start only", SOLO),
    "solo-grpo": Arm("single agent, GRPO", SOLO, "grpo"),
    "pair-sighted": Arm("two agents, before they were taught to slip", PAIR, stage="sighted"),
    "pair": Arm("two agents, warm start only", PAIR),
    "pair-grpo": Arm("two agents, GRPO over episodes", PAIR, "grpo"),
    "at-grpo-shared": Arm("two agents, AT-GRPO, one policy", PAIR, "at_grpo"),
    "at-grpo-roles": Arm("two agents, AT-GRPO, one policy a role", PAIR, "at_grpo", per_role=True),
}


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
class StudySettings:
    """What is the same in all arms. Everything here is part of a result's identity.

    Attributes:
        grid_size: Rows and columns.
        wall_ratio: Share of walls.
        min_length: Least length of a shortest way.
        tool: Whether the scout's proposals are played in a simulator that both agents read.
        tokens: Completion tokens that an arm which trains may generate.
        turns: Turns of the planner in training, and in the evaluation within several turns.
        eval_tasks: Held-out tasks.
        hidden: Width of the model.
        layers: Its layers.
        demo_tasks: Tasks that the walker demonstrates, of each environment.
        demo_turns: Turns of a demonstration, at most.
        skill: How often its answer is a shortest way; else it walks as if there were no walls.
        sft_learning_rate: Peak of the learning rate on these demonstrations.
        slip_tasks: Further tasks, of which it demonstrates bad play: the second half of the warm start.
        slip_skill: How often it sees the walls there.
        slip_noise: How often a step goes somewhere else there.
        slip_learning_rate: Peak of the learning rate on those.
        candidates: K: episodes a task, or candidates a turn.
        solo_tasks: Tasks an update of a single agent; a pair, which speaks twice as often, plays half of them.
        learning_rate: Peak; the rate falls linearly with the tokens that are spent.
        warmup_updates: Updates until the peak. AdamW's first steps are all as large as the rate, whatever the gradient:
            without a warm-up they undo a part of the warm start.
        final_learning_rate: Share of it that is left at the end.
        minibatches: Optimiser steps an update.
        entropy_coef: Weight of the entropy bonus.
        refills: Further rounds for groups without signal, at most.
        choose: The candidate that a tree goes on with: ``argmax``, ``softmax``, ``random`` or ``first``.
        early_tokens: An arm is evaluated as it was when it had generated this many tokens, too; 0 is not.
    """

    grid_size: int = 5
    wall_ratio: float = 0.22
    min_length: int = 2
    tool: bool = True
    tokens: int = 500_000
    turns: int = 4
    eval_tasks: int = 1000
    hidden: int = 96
    layers: int = 3
    demo_tasks: int = 40_000
    demo_turns: int = 2
    skill: float = 0.6
    sft_learning_rate: float = 2e-3
    slip_tasks: int = 2500
    slip_skill: float = 0.0
    slip_noise: float = 0.7
    slip_learning_rate: float = 1e-3
    candidates: int = 8
    solo_tasks: int = 64
    learning_rate: float = 1e-4
    warmup_updates: int = 5
    final_learning_rate: float = 0.3
    minibatches: int = 4
    entropy_coef: float = 0.003
    refills: int = 3
    choose: str = "argmax"
    early_tokens: int = 0

    @property
    def max_tokens(self) -> int:
        """Tokens of an answer: a way through half of the cells, two tokens a cell, with brackets and end."""
        return self.grid_size * self.grid_size + 8

    def env_kwargs(self, env: str, turns: int) -> dict[str, Any]:
        """Arguments of an arm's environment."""
        tasks = {"grid_size": self.grid_size, "wall_ratio": self.wall_ratio, "min_length": self.min_length}
        return {"max_rounds": turns, "task_options": tasks} | ({"tool": self.tool} if env == PAIR else {})


def train_config(arm: Arm, settings: StudySettings, models: Mapping[str, Path], seed: int) -> TrainConfig:
    """The training run of an arm.

    The learning rate is the peak: the study sets it before each update by the tokens that are spent. ``updates`` is out
    of reach of the token budget, which is what ends the run.

    Args:
        arm: An arm with an algorithm.
        settings: The study.
        models: The model to start from, by role (``*`` plays all).
        seed: Of tasks and sampling.
    """
    tasks = settings.solo_tasks if arm.env == SOLO else max(1, settings.solo_tasks // 2)
    least = tasks * settings.candidates * 2  # an answer has two tokens at least
    return load_config(
        {
            "env": {"id": arm.env, "split": "train", "kwargs": settings.env_kwargs(arm.env, settings.turns)},
            "algorithm": {
                "preset": arm.preset,
                "loss": {"entropy_coef": settings.entropy_coef},
                "overrides": {"fold_penalties": True}
                | ({"choose": settings.choose} if arm.preset == "at_grpo" else {}),
            },
            "policies": {
                role.replace("*", "all"): {
                    "model": str(model),
                    "backend": "hf",
                    "learning_rate": settings.learning_rate,
                    "minibatches": settings.minibatches,
                    "micro_batch_tokens": 16384,
                    "sampling": {"temperature": 1.0, "max_tokens": settings.max_tokens},
                }
                for role, model in models.items()
            },
            "roles": {role: role.replace("*", "all") for role in models},
            "updates": math.ceil(settings.tokens / least) + 1,
            "token_budget": settings.tokens,
            "tasks_per_update": tasks,
            "samples_per_task": settings.candidates,
            "dynamic_sampling": settings.refills,
            "concurrency": tasks * settings.candidates,
            "seed": seed,
            "verify_every": 10,
            "threads": 1,
            "checkpoint": {"every": 10, "keep": 1},
        }
    )
