"""What a measurement is, and how often something runs a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Measurement", "rate"]


@dataclass(frozen=True)
class Measurement:
    """One figure.

    Attributes:
        name: What was measured.
        value: The figure.
        unit: Its unit; ``x`` for a ratio.
        target: What it should reach, or None if it only informs.
        at_most: Whether the target is an upper bound.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target


def rate(work: Callable[[], int], *, seconds: float, repeats: int = 3) -> float:
    """Return how many units of work are done a second: the best of ``repeats`` tries, after one unmeasured call.

    The best of several tries is the one that other processes disturbed least.

    Args:
        work: Does some work and returns how many units it was.
        seconds: How long a try lasts at least.
        repeats: Number of tries.
    """
    work()
    best = 0.0
    for _ in range(repeats):
        done = 0
        started = time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            done += work()
        best = max(best, done / elapsed)
    return best
