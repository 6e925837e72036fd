"""What a measurement is, and how often something runs a second."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Measurement", "in_own_process", "rate", "rates"]

logger = logging.getLogger(__name__)


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


def rates(works: Mapping[str, Callable[[], int]], *, seconds: float, repeats: int = 10) -> dict[str, float]:
    """Return how many units each of ``works`` does a second, for figures that are compared with each other.

    As :func:`rate`, in many short tries that take turns: what disturbs the machine for a while disturbs all of them.

    Args:
        works: Each does some work and returns how many units it was.
        seconds: How long each of them is measured in all.
        repeats: Number of tries of each.
    """
    best = dict.fromkeys(works, 0.0)
    for work in works.values():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            done = 0
            started = time.perf_counter()
            while (elapsed := time.perf_counter() - started) < seconds / repeats:
                done += work()
            best[name] = max(best[name], done / elapsed)
    return best


def in_own_process(module: str, *arguments: str) -> dict[str, float] | None:
    """Run a module that writes figures as JSON in its last line; None, with a line in the log, where memory ran out.

    Args:
        module: Its name.
        *arguments: Of its command line.

    Raises:
        subprocess.CalledProcessError: It has failed otherwise.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == -signal.SIGKILL:
        logger.warning("%s needs more memory than there is: it was killed and is left out", " ".join(command[2:]))
        return None
    done.check_returncode()
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
