"""What is added to a turn's rewards after the rollout: a penalty for length, and the divergence from a reference model.

**Overlong answers** (DAPO, arXiv 2503.14476, section 3.4). An answer that the token limit cut off is wrong for its
length, not for its content. ``overlong="mask"`` does not train on such turns, and they *do* count in the statistics of
their groups: a group of those that happened to end would be a biased baseline. ``overlong="soft"`` pays a penalty that
grows linearly from 0 to −1 over the last ``overlong_buffer`` tokens before the limit (equation 13). Like the penalty
for unusable text it is added after normalisation, times ``penalty_scale``; the paper adds it to the reward, which
``fold_penalties`` reproduces.

**KL in the reward** (``kl_in_reward`` = β; arXiv 1909.08593). β·Σ (log π − log π_ref) over the tokens of a turn (the k1
estimate under the policy that is about to be updated) is taken from what the turn earned, as if it were a local part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llm_envs import rewards

if TYPE_CHECKING:
    from trainers.algorithms.algorithm import Algorithm
    from trainers.algorithms.scores import TurnBatch

FloatArray = NDArray[np.float64]

DEFAULT_BUFFER = 0.2
"""Overlong buffer as a share of the token limit: DAPO's 4,096 of 20,480."""


@dataclass(frozen=True, slots=True)
class TurnFacts:
    """What a run knows of its turns beyond their records. Everything is optional, and of shape [N].

    Attributes:
        values: The critic's value of the state before each turn; NaN where the turn's policy has no critic.
        kl: Σ (log π − log π_ref) over the tokens of each turn; 0 where the turn's policy is not trained.
        max_tokens: Token limit that each turn was sampled under.
    """

    values: FloatArray | None = None
    kl: FloatArray | None = None
    max_tokens: NDArray[np.int64] | None = None

    def check(self, turns: int) -> None:
        """Raise ValueError if an array is not of shape [turns]."""
        for name in ("values", "kl", "max_tokens"):
            found = getattr(self, name)
            if found is not None and np.shape(found) != (turns,):
                raise ValueError(f"{name} has shape {np.shape(found)} for {turns} turns")


def soft_overlong_penalty(
    lengths: Sequence[int] | FloatArray, max_tokens: FloatArray, buffer: FloatArray
) -> FloatArray:
    """Return DAPO's length penalty: 0 up to ``max_tokens − buffer`` tokens, then linearly down to −1 at ``max_tokens``.

    Args:
        lengths: Tokens of N answers.
        max_tokens: Their limits.
        buffer: Over how many last tokens the penalty grows, each at least 1.
    """
    return -np.clip((np.asarray(lengths, dtype=np.float64) - (max_tokens - buffer)) / buffer, 0.0, 1.0)


def overlong_penalties(batch: TurnBatch, algorithm: Algorithm) -> FloatArray:
    """Return the length penalty of every turn, shape [N]: zeros unless ``overlong`` is ``soft``.

    Raises:
        ValueError: If a token limit is not above the buffer.
    """
    limits = batch.facts.max_tokens
    if algorithm.overlong != "soft" or limits is None or not len(batch):
        return np.zeros(len(batch))
    limit = limits.astype(np.float64)
    if algorithm.overlong_buffer is None:
        buffer = np.maximum(1.0, DEFAULT_BUFFER * limit)
    else:
        buffer = np.full(len(batch), float(algorithm.overlong_buffer))
    if (buffer >= limit).any():
        raise ValueError(
            f"overlong_buffer is {buffer.max():g} tokens and a turn may have {int(limit.min())}: the penalty would "
            "meet every answer. Set a smaller buffer"
        )
    return soft_overlong_penalty([turn.completion_tokens for turn in batch.turns], limit, buffer)


def penalties(batch: TurnBatch, algorithm: Algorithm) -> FloatArray:
    """Return everything that is added after normalisation, before ``penalty_scale``. Shape [N]."""
    turns = zip(batch.turns, batch.active, strict=True)
    paid = np.array([rewards.penalty(turn.reward_parts) if counts else 0.0 for turn, counts in turns], dtype=np.float64)
    return paid + overlong_penalties(batch, algorithm)


def shaped_rewards(batch: TurnBatch, algorithm: Algorithm) -> FloatArray:
    """Return what shaping adds to the reward of every turn, shape [N]: −β·kl, and the length penalty where folded."""
    extra = np.zeros(len(batch))
    if algorithm.kl_in_reward and batch.facts.kl is not None:
        extra -= algorithm.kl_in_reward * batch.facts.kl
    if algorithm.fold_penalties:
        extra += overlong_penalties(batch, algorithm)
    return extra


def may_train(batch: TurnBatch, algorithm: Algorithm) -> NDArray[np.bool_]:
    """Return which turns may be trained on, shape [N]: those that count, less what was cut if ``overlong="mask"``."""
    if algorithm.overlong != "mask":
        return batch.active.copy()
    return batch.active & np.array([turn.finish_reason != "length" for turn in batch.turns], dtype=bool)
