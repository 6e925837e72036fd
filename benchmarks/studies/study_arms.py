"""The arms of a study of trees against episodes and of teams against single agents, as training configurations."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.config import TrainConfig, load_config

__all__ = ["Arm", "TreeSettings", "train_config"]


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm.

    Attributes:
        label: What tables call it.
        env: Id of the environment.
        stage: Which model it starts from, by the name of a stage of the warm start.
        preset: The algorithm; None trains nothing.
        roles: Roles of the environment.
        per_role: One policy a role; else one plays all.
    """

    label: str
    env: str
    stage: str
    preset: str | None = None
    roles: tuple[str, ...] = ("planner",)
    per_role: bool = False

    def players(self) -> tuple[str, ...]:
        """The roles that have a policy; ``*`` is all of them."""
        return self.roles if self.per_role else ("*",)


@dataclass(frozen=True, slots=True)
class TreeSettings(ABC):
    """What is the same in all arms. Everything here is part of a result's identity.

    Attributes:
        tokens: Completion tokens that an arm which trains may generate.
        turns: Turns of the planner in training, and in the evaluation within several turns.
        eval_tasks: Held-out tasks.
        hidden: Width of the model.
        layers: Its layers.
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

    tokens: int = 500_000
    turns: int = 4
    eval_tasks: int = 1000
    hidden: int = 96
    layers: int = 3
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
    @abstractmethod
    def max_tokens(self) -> int:
        """Tokens of an answer."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What is played, for the head of a table."""

    @abstractmethod
    def env_kwargs(self, env: str, turns: int) -> dict[str, Any]:
        """Arguments of an environment."""


def train_config(arm: Arm, settings: TreeSettings, models: Mapping[str, Path], seed: int) -> TrainConfig:
    """The training run of an arm.

    The learning rate is the peak: the study sets it before each update by the tokens that are spent. ``updates`` is out
    of reach of the token budget, which is what ends the run.

    Args:
        arm: An arm with an algorithm.
        settings: The study.
        models: The model to start from, by role (``*`` plays all).
        seed: Of tasks and sampling.
    """
    tasks = max(1, settings.solo_tasks // len(arm.roles))
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
