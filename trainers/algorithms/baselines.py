"""Baselines that remember earlier batches. The state is part of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainers.algorithms.algorithm import Baseline
from trainers.algorithms.scores import FloatArray, TurnBatch


class MovingAverages:
    """One exponential moving average of scores for each combination of key values.

    Role-conditioned advantage estimation of SPIRAL (arXiv 2506.24119): b starts at 0. All turns of a batch
    read b as it was before the batch, so a result does not depend on the order of the episodes; then b moves once for
    each episode, in the order of the episode ids. An episode that was over before an agent had acted does not move its
    average, which is that of the games it played.

    Args:
        config: Keys and decay.
    """

    def __init__(self, config: Baseline) -> None:
        self.config = config
        self._values: dict[str, float] = {}

    def read(self, batch: TurnBatch) -> FloatArray:
        """Return b of every turn, shape [N]."""
        return np.array([self._values.get(label, 0.0) for label in self._labels(batch)], dtype=np.float64)

    def update(self, batch: TurnBatch, scores: FloatArray) -> None:
        """Move every average by the mean score that each episode has under it."""
        found: dict[tuple[str, str], list[float]] = {}
        labels = self._labels(batch)
        for i in np.flatnonzero(batch.active):
            found.setdefault((batch.episodes[i].id, labels[i]), []).append(float(scores[i]))
        decay = self.config.decay
        for (_, label), values in sorted(found.items()):
            old = self._values.get(label, 0.0)
            self._values[label] = decay * old + (1 - decay) * sum(sorted(values)) / len(values)

    def state_dict(self) -> dict[str, Any]:
        """Return the averages as a plain JSON object."""
        return {"by": list(self.config.by), "values": dict(self._values)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            ValueError: If the averages were kept by other keys.
        """
        by: Sequence[str] = state["by"]
        if tuple(by) != self.config.by:
            raise ValueError(f"The saved baseline is kept by {tuple(by)}, this algorithm's by {self.config.by}")
        self._values = {str(label): float(value) for label, value in state["values"].items()}

    def _labels(self, batch: TurnBatch) -> list[str]:
        return [json.dumps(label) for label in batch.keys(self.config.by)]
