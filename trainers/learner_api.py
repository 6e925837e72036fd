"""What a run asks of a learner and of a critic, wherever their weights are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from trainers.algorithms.loss_config import LossConfig
    from trainers.batching import Sample
    from trainers.checkpoint import State
    from trainers.update_metrics import UpdateMetrics

__all__ = ["PolicyCritic", "PolicyLearner"]


class PolicyLearner(Protocol):
    """Trains the weights of one policy. :class:`trainers.learner.Learner` says what each method does."""

    loss: LossConfig

    def update(self, samples: Sequence[Sample], *, epochs: int = 1, minibatches: int = 1) -> UpdateMetrics:
        """Train on a batch of turns."""
        ...

    def logprobs(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> Sequence[Tensor]:
        """Return the log-prob of every completion token under the current weights."""
        ...

    def reference_kl(self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]) -> list[float]:
        """Return Σ (log π − log π_ref) over the tokens of each completion."""
        ...

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model where ``from_pretrained`` finds it."""
        ...

    def state_dict(self) -> State:
        """Return what is needed to go on, or what writes it into a folder."""
        ...

    def load_state_dict(self, state: Mapping[str, Any] | Path) -> None:
        """Restore what :meth:`state_dict` returned, or wrote."""
        ...


class PolicyCritic(Protocol):
    """Values the states that one policy meets. :class:`trainers.critic.Critic` says what each method does."""

    def values(self, prompts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
        """Return the value of each prompt."""
        ...

    def update(
        self, prompts: Sequence[Sequence[int]], targets: NDArray[np.float64], old_values: NDArray[np.float64]
    ) -> dict[str, float]:
        """Fit the values of prompts to their targets."""
        ...

    def state_dict(self) -> State:
        """Return what is needed to go on, or what writes it, with the learner's, into a folder."""
        ...

    def load_state_dict(self, state: Mapping[str, Any] | Path) -> None:
        """Restore what :meth:`state_dict` returned, or what was written into a folder."""
        ...
