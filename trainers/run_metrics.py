"""The metrics of an update under the names that they are logged by (see :mod:`trainers.tracking`)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from trainers.learner import UpdateMetrics
from trainers.rollout.records import Episode

__all__ = ["Clock", "learner_metrics", "rollout_metrics"]


class Clock:
    """Seconds by phase."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """End the phase ``name``; the next one begins."""
        now = time.perf_counter()
        self._laps[name] = now - self._last
        self._last = now

    def metrics(self, tokens: int) -> dict[str, float]:
        """The seconds of every phase and in all, and the rate at which ``tokens`` were sampled in ``rollout``."""
        laps = {f"time/{name}_s": seconds for name, seconds in self._laps.items()}
        rate = tokens / self._laps["rollout"] if self._laps["rollout"] > 0 else 0.0
        return {**laps, "time/total_s": self._last - self._start, "time/rollout_tokens_per_s": rate}


def rollout_metrics(episodes: Sequence[Episode], found: Mapping[str, float]) -> dict[str, float]:
    """Name what :func:`~trainers.algorithms.diagnostics.batch_metrics` has found, and add the returns."""
    played = [episode for episode in episodes if episode.error is None]
    metrics = {name if name.startswith("agent/") else f"train/{name}": value for name, value in found.items()}
    metrics["train/team_return"] = float(np.mean([episode.team_return for episode in played]))
    for agent in sorted({agent for episode in played for agent in episode.returns}):
        metrics[f"agent/{agent}/return"] = float(np.mean([episode.returns[agent] for episode in played]))
    return metrics


def learner_metrics(policy: str, done: UpdateMetrics) -> dict[str, float]:
    """Name what an update of ``policy`` did; what concerns an agent goes to the agent."""
    return {
        key if key.startswith("agent/") else f"policy/{policy}/{key}": value for key, value in done.to_dict().items()
    }
