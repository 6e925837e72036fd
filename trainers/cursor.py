"""Which tasks come next: epochs of shuffled task indices, resumable."""

from __future__ import annotations

from typing import Any

import numpy as np


class TaskCursor:
    """Walks through ``size`` tasks in an order that each epoch shuffles anew, ``batch`` different ones at a time.

    The order depends on (seed, epoch) alone, so the position is the whole state.

    Args:
        size: Number of tasks.
        batch: Tasks a batch.
        seed: Decides the order.

    Raises:
        ValueError: If the set has fewer tasks than a batch.

    >>> cursor = TaskCursor(size=5, batch=2, seed=0)
    >>> first, second = cursor.next(), cursor.next()
    >>> len({*first, *second})
    4
    """

    def __init__(self, size: int, batch: int, seed: int) -> None:
        if batch > size:
            raise ValueError(
                f"A batch of {batch} different tasks cannot come from {size} tasks. Lower tasks_per_update."
            )
        self.size, self.batch, self.seed = size, batch, seed
        self.epoch, self.position = 0, 0
        self._order: np.ndarray | None = None

    def next(self, count: int | None = None) -> list[int]:
        """The next ``count`` different task indices (default: a batch). What is left of an epoch is skipped if too few.

        Raises:
            ValueError: ``count`` is not between 1 and the number of tasks.
        """
        wanted = self.batch if count is None else count
        if not 1 <= wanted <= self.size:
            raise ValueError(f"{wanted} different tasks cannot come from {self.size}.")
        if self.position + wanted > self.size:
            self.epoch, self.position, self._order = self.epoch + 1, 0, None
        if self._order is None:
            self._order = np.random.default_rng([self.seed, self.epoch]).permutation(self.size)
        chosen = self._order[self.position : self.position + wanted]
        self.position += wanted
        return [int(index) for index in chosen]

    def state_dict(self) -> dict[str, Any]:
        """The position."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position that :meth:`state_dict` returned."""
        self.epoch, self.position, self._order = int(state["epoch"]), int(state["position"]), None
