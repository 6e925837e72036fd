"""Where in a file each episode's line is, in 24 bytes an episode: a run's memory must not grow with what it stores."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["LinePlaces"]


class LinePlaces:
    """The (task index, sample) of every line of a file, in the order of the lines, and where each begins."""

    def __init__(self) -> None:
        self._tasks = array("q")
        self._samples = array("q")
        self._starts = array("q")
        self._end = 0
        self._known: dict[int, bytearray] = {}
        """A bit for every task, by sample."""

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, key: tuple[int, int]) -> bool:
        task_index, sample = key
        bits = self._known.get(sample, b"")
        place = task_index >> 3
        return place < len(bits) and bool(bits[place] >> (task_index & 7) & 1)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._tasks, self._samples, strict=True)

    def add(self, task_index: int, sample: int, size: int) -> None:
        """Note that the next line is this episode's, and has so many bytes."""
        self._tasks.append(task_index)
        self._samples.append(sample)
        self._starts.append(self._end)
        self._end += size
        bits = self._known.setdefault(sample, bytearray())
        place = task_index >> 3
        if place >= len(bits):
            bits.extend(bytes(place + 1 - len(bits)))
        bits[place] |= 1 << (task_index & 7)

    def order(self) -> NDArray[np.int64]:
        """Return the numbers of the lines in the order of (task index, sample)."""
        return np.lexsort((np.array(self._samples, np.int64), np.array(self._tasks, np.int64)))

    def line(self, number: int) -> tuple[int, int]:
        """Return offset and size of a line in bytes."""
        start = self._starts[number]
        following = self._starts[number + 1] if number + 1 < len(self._starts) else self._end
        return start, following - start

    def reordered(self, order: NDArray[np.int64]) -> LinePlaces:
        """Return the places in a file whose lines have been put in another order."""
        other = LinePlaces()
        for number in order.tolist():
            other.add(self._tasks[number], self._samples[number], self.line(number)[1])
        return other
