"""How the work and the weights of a learner or a critic are divided over processes: here, not at all.

The loss of an optimiser step is a sum over tokens, or over values, with weights that are fixed before micro-batches are
cut, so whichever process computes a micro-batch, gradients, losses and squared norms only have to be added up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from trainers.algorithms.losses import LossMetrics
from trainers.batching import MicroBatch

__all__ = ["Forward", "Ranks"]

_T = TypeVar("_T")
_F = TypeVar("_F", bound="HasModel")


class HasModel(Protocol):
    """A forward pass, to be called, and the model whose weights it reads."""

    model: Any


class Forward(Protocol):
    """What a learner needs of :class:`trainers.logprobs.CompletionForward`."""

    shares: bool
    attention_cost: float
    overhead: float

    def __call__(self, batch: MicroBatch, *, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies of the completion tokens."""
        ...


class Ranks:
    """One process, which does everything. A subclass divides it.

    Attributes:
        rank: Number of this process.
        size: Processes of the learner.
    """

    rank: int = 0
    size: int = 1

    def shard(self, forward: _F) -> _F:
        """Divide the weights behind a forward pass; from then on they are only read and used through what is returned.

        Every process must call it, and each forward and backward pass, equally often.
        """
        return forward

    def local(self, parameter: Tensor, whole: Tensor) -> Tensor:
        """Return ``whole``, a value of the shape of ``parameter``, divided as ``parameter`` is."""
        return whole

    def budget(self, tokens: int, most: int) -> int:
        """Return the tokens of a micro-batch, at most ``most``, so that there is one for every process."""
        return max(1, min(most, math.ceil(tokens / self.size)))

    def deal(self, parts: Sequence[_T]) -> list[tuple[_T, bool]]:
        """Return the parts of this process, equally many in all of them, and of each whether it counts.

        One that does not count is computed by another process too, and is here for the number alone.
        """
        rounds = math.ceil(len(parts) / self.size)
        mine = [k * self.size + self.rank for k in range(rounds)]
        return [(parts[min(i, len(parts) - 1)], i < len(parts)) for i in mine]

    def total(self, value: float) -> float:
        """Return the sum of a value over the processes."""
        return value

    def norm(self, gradients: Sequence[Tensor | None]) -> float:
        """Return the Euclidean norm of all gradients together, accumulated in float64."""
        norms = [torch.linalg.vector_norm(g.detach()) for g in gradients if g is not None]
        return float(torch.linalg.vector_norm(torch.stack(norms).double())) if norms else 0.0

    def merge(self, metrics: Mapping[str, LossMetrics]) -> dict[str, LossMetrics]:
        """Return the metrics of each agent over all processes."""
        return dict(metrics)

    def gather(self, found: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return what all processes have found."""
        return dict(found)
