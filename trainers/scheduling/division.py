"""How devices are divided among groups of engines, and learners, so that an update takes the least time.

A group is what one engine serves: a policy, or several policies whose adapters share a base model. Its *load* is what
it was measured to compute in an update, in engine-seconds; n engines of the group take load / n. Groups work at the
same time, so a rollout takes as long as the slowest of them:

    rollout = max over groups of load / engines

Learners work on devices of their own (``split``) after the rollout or, where batches are collected ahead, beside it.

**The rule.** Every group gets one engine, and then the slowest group gets another, for as long as it can have one. When
the slowest can have none, the rollout cannot be faster: of every division that is at least as fast, each group has at
least as many engines as here. What is left goes to the next slowest. With engines of one device it is the method of
Adams for seats in a parliament (M. L. Balinski and H. P. Young, Fair Representation, 1982): with equal loads, shares
are as equal as they can be, and a group whose load grows loses no engine to another group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Device", "Division", "Group", "Learner", "NoDivisionError", "divide", "moves"]


class NoDivisionError(ValueError):
    """The devices are too few, or too small."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, a core, or room for one engine in a cluster.

    Attributes:
        id: Its number.
        memory: Bytes that it has; infinite where that is no matter.
    """

    id: int
    memory: float = float("inf")


@dataclass(frozen=True, slots=True)
class Group:
    """Policies that one engine serves.

    Attributes:
        name: Its name.
        load: Engine-seconds of an update.
        memory: Bytes that an engine needs on each of its devices.
        width: Devices of one engine (tensor parallelism).
    """

    name: str
    load: float
    memory: float = 0.0
    width: int = 1


@dataclass(frozen=True, slots=True)
class Learner:
    """All learners of a run. They divide their state evenly over the devices and work one after the other.

    Attributes:
        load: Device-seconds of an update.
        memory: Bytes of the state that is divided.
        working: Bytes that each device needs beside its part.
        beside: Whether they work beside the rollout (batches are collected ahead) and not after it.
    """

    load: float
    memory: float = 0.0
    working: float = 0.0
    beside: bool = False

    def need(self, devices: int) -> float:
        """Bytes on each of so many devices."""
        return self.memory / devices + self.working


@dataclass(frozen=True, slots=True)
class Division:
    """Who has which devices. No device is named twice.

    Attributes:
        engines: The devices of every engine of each group.
        learners: The devices of the learners; empty where none takes part.
        rollout: Seconds of a rollout.
        learning: Seconds of the learners.
        seconds: Seconds of an update.
    """

    engines: dict[str, list[tuple[int, ...]]]
    learners: tuple[int, ...]
    rollout: float
    learning: float
    seconds: float = field(default=0.0)

    @property
    def counts(self) -> dict[str, int]:
        """Engines of each group."""
        return {name: len(engines) for name, engines in self.engines.items()}


def divide(devices: Sequence[Device], groups: Sequence[Group], learner: Learner | None = None) -> Division:
    """Divide devices so that an update takes the least time. Equal times are decided by the order of the groups.

    Args:
        devices: What there is.
        groups: Who needs engines.
        learner: The learners, where they take devices from the same ones.

    Raises:
        NoDivisionError: There is no way to give every group an engine, and learners what they need.
        ValueError: A load is negative, or a name or a device is there twice.
    """
    _check(devices, groups)
    if learner is None:
        counts = _fill(devices, groups, 0, 0.0)
        if counts is None:
            raise NoDivisionError(_too_few(devices, groups))
        rollout = _rollout(groups, counts)
        return _assign(devices, groups, counts, 0, 0.0, (rollout, 0.0, rollout))
    best: tuple[float, int, dict[str, int], float] | None = None
    for count in range(1, len(devices)):
        counts = _fill(devices, groups, count, learner.need(count))
        if counts is None:
            continue
        rollout, learning = _rollout(groups, counts), learner.load / count
        seconds = max(rollout, learning) if learner.beside else rollout + learning
        if best is None or seconds < best[0]:
            best = (seconds, count, counts, rollout)
    if best is None:
        raise NoDivisionError(_too_few(devices, groups) + ", and learners need at least one of their own")
    seconds, count, counts, rollout = best
    times = (rollout, learner.load / count, seconds)
    return _assign(devices, groups, counts, count, learner.need(count), times)


def moves(held: Mapping[int, str], counts: Mapping[str, int]) -> dict[int, str]:
    """The fewest changes that give every group as many devices as in ``counts``.

    Args:
        held: Which group has each device.
        counts: How many each group is to have; as many in all.

    Returns:
        The new group of every device that changes hands. A group gives up its devices with the highest numbers.
    """
    spare: list[int] = []
    for name in dict.fromkeys(held.values()):
        own = sorted(device for device, group in held.items() if group == name)
        spare += own[counts.get(name, 0) :]
    spare.sort()
    has = {name: sum(group == name for group in held.values()) for name in counts}
    wanted = [name for name, count in counts.items() for _ in range(count - has[name])]
    if len(wanted) != len(spare):
        raise ValueError(f"{len(held)} devices are held, and the counts {dict(counts)} are of {sum(counts.values())}")
    return dict(zip(spare, wanted, strict=True))


def _check(devices: Sequence[Device], groups: Sequence[Group]) -> None:
    for what, names in (("device", [device.id for device in devices]), ("group", [group.name for group in groups])):
        if len(set(names)) < len(names):
            raise ValueError(f"a {what} is named twice: {names}")
    if wrong := [group for group in groups if not group.load >= 0 or group.width < 1]:
        raise ValueError(f"loads are not negative and engines have a device or more, got {wrong[0]}")


def _fill(devices: Sequence[Device], groups: Sequence[Group], taken: int, need: float) -> dict[str, int] | None:
    """Engines of each group by the rule above, beside ``taken`` devices with ``need`` bytes; None if it is too much."""
    counts = {group.name: 1 for group in groups}
    if not _fits(devices, groups, counts, taken, need):
        return None
    growing = list(groups)
    while growing:
        slowest = max(growing, key=lambda group: group.load / counts[group.name])  # of equals the first
        counts[slowest.name] += 1
        if not _fits(devices, groups, counts, taken, need):
            counts[slowest.name] -= 1
            growing.remove(slowest)
    return counts


def _fits(
    devices: Sequence[Device], groups: Sequence[Group], counts: Mapping[str, int], taken: int, need: float
) -> bool:
    """Whether there are devices for all: as many with m bytes or more as are needed with m or more, for every m."""
    demands = [(group.memory, counts[group.name] * group.width) for group in groups] + [(need, taken)] * (taken > 0)
    return all(
        sum(number for memory, number in demands if memory >= least)
        <= sum(device.memory >= least for device in devices)
        for least, _ in demands
    )


def _rollout(groups: Sequence[Group], counts: Mapping[str, int]) -> float:
    return max((group.load / counts[group.name] for group in groups), default=0.0)


def _assign(
    devices: Sequence[Device],
    groups: Sequence[Group],
    counts: Mapping[str, int],
    taken: int,
    need: float,
    times: tuple[float, float, float],
) -> Division:
    """Name the devices: who needs the most memory chooses first, and takes the smallest that will do."""
    free = sorted(devices, key=lambda device: device.memory)  # a stable sort: of equals in the order given
    engines: dict[str, list[tuple[int, ...]]] = {}
    learners: tuple[int, ...] = ()

    def take(number: int, memory: float) -> tuple[int, ...]:
        chosen = [device for device in free if device.memory >= memory][:number]
        for device in chosen:
            free.remove(device)
        return tuple(device.id for device in chosen)

    demands = [(group.memory, group) for group in groups] + ([(need, None)] if taken else [])
    for memory, group in sorted(demands, key=lambda demand: -demand[0]):
        if group is None:
            learners = take(taken, memory)
        else:
            engines[group.name] = [take(group.width, memory) for _ in range(counts[group.name])]
    return Division({group.name: engines[group.name] for group in groups}, learners, *times)


def _too_few(devices: Sequence[Device], groups: Sequence[Group]) -> str:
    needs = ", ".join(
        f"{group.name} {group.width}" + (f" with {group.memory:g} bytes" if group.memory else "") for group in groups
    )
    return f"{len(devices)} devices do not hold one engine of every group ({needs})"
