"""What engines were measured to compute, and when it is worth to move one of them to other policies."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from trainers.scheduling.division import Device, Group, divide, moves

__all__ = ["Balancer", "BusyTime"]

logger = logging.getLogger(__name__)


class BusyTime:
    """How long an engine had a request to answer, however many at a time.

    Args:
        clock: Returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._running = 0
        self._since = 0.0
        self._seconds = 0.0
        self._tokens = 0

    def begin(self) -> None:
        """A request has begun."""
        if self._running == 0:
            self._since = self._clock()
        self._running += 1

    def end(self, tokens: int = 0) -> None:
        """A request has ended, with so many tokens sampled."""
        self._running -= 1
        self._tokens += tokens
        if self._running == 0:
            self._seconds += self._clock() - self._since

    def take(self) -> tuple[float, int]:
        """Return the seconds and tokens since the last call."""
        if self._running:
            now = self._clock()
            self._seconds += now - self._since
            self._since = now
        taken = self._seconds, self._tokens
        self._seconds, self._tokens = 0.0, 0
        return taken


class Balancer:
    """Divides a pool of engines among groups of policies, by the engine-seconds that each group's updates took.

    It starts with equal shares. After every ``every`` updates it compares the shares with those that
    :func:`trainers.scheduling.division.divide` gives for the mean load of these updates, and changes them when that
    makes the rollout faster by more than ``gain``.

    Args:
        groups: Names of the groups.
        engines: Engines in the pool.
        every: Updates that are measured before a decision.
        gain: Share of the predicted seconds of a rollout that a change must save.

    Attributes:
        held: The group of every engine, by its number in the pool.

    Raises:
        NoDivisionError: The pool has fewer engines than there are groups.
    """

    def __init__(self, groups: Sequence[str], engines: int, every: int, gain: float) -> None:
        self._devices = [Device(number) for number in range(engines)]
        self._every, self._gain = every, gain
        self._measured: list[dict[str, float]] = []
        equal = divide(self._devices, [Group(name, 1.0) for name in groups])
        self.held = {number: name for name, own in equal.engines.items() for (number,) in own}

    @property
    def shares(self) -> dict[str, int]:
        """Engines of each group."""
        names = dict.fromkeys(self.held[number] for number in sorted(self.held))
        return {name: sum(group == name for group in self.held.values()) for name in names}

    def numbers(self, group: str) -> list[int]:
        """The engines of a group."""
        return sorted(number for number, holder in self.held.items() if holder == group)

    def measured(self, load: Mapping[str, float]) -> dict[int, str]:
        """Take the engine-seconds of each group in an update, and decide when there are enough of them.

        Returns:
            The new group of every engine that changes hands, which :attr:`held` then has too.
        """
        self._measured.append(dict(load))
        if len(self._measured) < self._every:
            return {}
        shares = self.shares
        mean = {name: sum(one[name] for one in self._measured) / len(self._measured) for name in shares}
        self._measured.clear()
        better = divide(self._devices, [Group(name, mean[name]) for name in shares])
        now = max(mean[name] / shares[name] for name in shares)
        if now <= 0 or 1 - better.rollout / now <= self._gain:
            return {}
        changed = moves(self.held, better.counts)
        logger.info(
            "Engines are divided anew, %s: in the last %d updates their policies took %s engine-seconds an update; "
            "this rollout is predicted to take %.3g s in place of %.3g s.",
            ", ".join(f"{name} {shares[name]} -> {better.counts[name]}" for name in shares),
            self._every,
            ", ".join(f"{mean[name]:.3g} ({name})" for name in shares),
            better.rollout,
            now,
        )
        self.held |= changed
        return changed
