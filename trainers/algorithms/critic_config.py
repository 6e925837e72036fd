"""A learned critic as data. Torch is not needed to read, check or change it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CriticConfig:
    """The value function of each policy that is trained, and how it learns (:mod:`trainers.critic`).

    Attributes:
        lam: λ of the λ-return that is both the critic's target and, less the value, the advantage (GAE, arXiv
            1506.02438). 1: the discounted return itself; 0: one-step bootstrapping.
        learning_rate: Of its AdamW, constant.
        value_clip: ε > 0 bounds the gain of moving a value by more than ε in one update (as OpenAI's PPO does); None
            does not.
        train_backbone: Whether the copy of the policy's decoder is trained, or only the linear head on top of it.
        epochs: Passes over a batch.
        minibatches: Optimiser steps a pass (fewer where there are fewer turns).
        max_grad_norm: Bound on the gradient norm; None does not clip.

    Raises:
        ValueError: At construction, if a number is out of range.
    """

    lam: float = 0.95
    learning_rate: float = 1e-5
    value_clip: float | None = None
    train_backbone: bool = True
    epochs: int = 1
    minibatches: int = 1
    max_grad_norm: float | None = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.lam <= 1:
            raise ValueError(f"lam is {self.lam}; it is between 0 and 1")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be finite and positive")
        for name in ("value_clip", "max_grad_norm"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} is {value}; it must be positive, or None for no clipping")
        for name in ("epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
