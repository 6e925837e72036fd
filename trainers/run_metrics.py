"""The metrics of an update under the names that they are logged by (see :mod:`trainers.tracking`)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from trainers.learner import UpdateMetrics
from trainers.rollout.records import Episode

__all__ = ["Clock", "learner_metrics", "rollout_metrics"]


class Clock:
    """The times of an update."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._times: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """End the phase ``name``, or another part of it; the next one begins."""
        now = time.perf_counter()
        self._times[f"{name}_s"] = self._times.get(f"{name}_s", 0.0) + now - self._last
        self._last = now

    def note(self, name: str, value: float) -> None:
        """Take down what was measured elsewhere."""
        self._times[name] = value

    def metrics(self, tokens: int) -> dict[str, float]:
        """All times, the seconds in all, and the rate at which ``tokens`` were sampled in ``rollout_s``."""
        rollout_s = self._times["rollout_s"]
        times = {f"time/{name}": value for name, value in self._times.items()}
        rate = tokens / rollout_s if rollout_s > 0 else 0.0
        return {**times, "time/total_s": self._last - self._start, "time/rollout_tokens_per_s": rate}


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
