"""What one update trains on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainers.rollout.records import Episode

__all__ = ["Batch"]


@dataclass(slots=True)
class Batch:
    """What one update trains on.

    Attributes:
        update: Number of the update, from 0.
        episodes: What was played.
        metrics: What dynamic sampling did.
        seconds: How long the collection took.
        waited_s: How long it had to wait for its weights before.
    """

    update: int
    episodes: list[Episode]
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    waited_s: float = 0.0

    @property
    def tokens(self) -> int:
        """Completion tokens that were generated for it."""
        return sum(turn.completion_tokens for episode in self.episodes for turn in episode.turns)

    def to_dict(self) -> dict[str, Any]:
        """Return the batch as a plain JSON object."""
        return {
            "update": self.update,
            "metrics": self.metrics,
            "seconds": self.seconds,
            "waited_s": self.waited_s,
            "episodes": [episode.to_dict() for episode in self.episodes],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Batch:
        """Read back what :meth:`to_dict` returned."""
        return cls(**{**record, "episodes": [Episode.from_dict(episode) for episode in record["episodes"]]})
