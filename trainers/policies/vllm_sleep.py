"""Sleep of a vLLM engine: what of it is asleep, and how a worker on a CPU gives its memory back.

On a GPU this is vLLM's own sleep mode (`enable_sleep_mode`). vLLM's worker for a CPU ignores it, so there the worker
frees the storage of its tensors itself. Level 1 frees the KV cache; weights go to main memory, where those of a CPU are
already. Level 2 frees the weights as well: whoever wakes the engine must give it new ones. Buffers, such as tables of
rotary embeddings, stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch

from trainers.policies.base import PolicyError

__all__ = ["PARTS", "SleepState", "release", "restore"]

PARTS = ("weights", "kv_cache")
"""What sleeps, in the order in which it wakes (vLLM's names)."""


class SleepState:
    """What of one engine is asleep.

    Args:
        model: The served model, for messages.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._asleep: set[str] = set()
        self._without: int | None = None

    def fall_asleep(self, level: int, loads: int) -> None:
        """Note that the engine is asleep, ``loads`` loads of weights after its start."""
        self._asleep = set(PARTS)
        self._without = loads if level == 2 else None

    def waking(self, parts: Collection[str]) -> list[str]:
        """Which of these parts are asleep, in the order of `PARTS`."""
        return [part for part in PARTS if part in self._asleep and part in parts]

    def woken(self, parts: Collection[str]) -> None:
        """Note that parts are awake."""
        self._asleep -= set(parts)

    @property
    def asleep(self) -> bool:
        """Whether any part is asleep."""
        return bool(self._asleep)

    def check_level(self, level: int) -> None:
        """Check a level.

        Raises:
            PolicyError: There is no such level.
        """
        if level not in (1, 2):
            raise PolicyError(f"sleep level {level!r}: it is 1 (frees the KV cache) or 2 (the weights as well)")

    def check_weights(self) -> None:
        """Check that weights can be replaced.

        Raises:
            PolicyError: They are asleep.
        """
        if "weights" in self._asleep:
            raise PolicyError(f"the vLLM engine of {self._model!r} is asleep: wake its weights, then replace them")

    def check_request(self, loads: int) -> None:
        """Check that a request can be answered, ``loads`` loads of weights after the start.

        Raises:
            PolicyError: The engine is asleep, or has no weights since it was.
        """
        if self._asleep:
            raise PolicyError(f"the vLLM engine of {self._model!r} is asleep: wake it before it is asked")
        if self._without == loads:
            raise PolicyError(
                f"the vLLM engine of {self._model!r} has no weights since it slept at level 2: give it new ones"
            )


def release(worker: Any, level: int) -> int:
    """Free the storage of a CPU worker's KV cache, and with level 2 that of its weights.

    Args:
        worker: vLLM's `CPUWorker`. What was freed is noted on it.
        level: 1 or 2.

    Returns:
        Bytes of the tensors that were freed. The packed copies of linear layers, which are freed too, are not counted.
    """
    model = worker.model_runner.get_model()
    freed = {"kv_cache": _free(_tensors(worker.model_runner.kv_caches)), "weights": []}
    if level == 2:
        freed["weights"] = _free(parameter.data for parameter in model.parameters())
        for module in model.modules():
            if hasattr(module, "cpu_linear"):  # a function that holds the packed weights; a load makes a new one
                module.cpu_linear = _discarded
    worker.freed_storages = freed
    return sum(size for storages in freed.values() for _, size in storages)


def restore(worker: Any, parts: Collection[str]) -> None:
    """Allocate again what was freed. The KV cache is zero, as at the start; weights hold what chance has left there."""
    for part in parts:
        for storage, size in worker.freed_storages.pop(part):
            storage.resize_(size)
            if part == "kv_cache":  # a product of 0 and what is read beyond a sequence's end must be a number
                torch.empty(0, dtype=torch.uint8).set_(storage).zero_()


def _discarded(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    raise RuntimeError("The weights of this layer were discarded by a sleep of level 2 and not loaded again")


def _tensors(nested: Any) -> Iterator[torch.Tensor]:
    """All tensors in a list of tensors, or of lists of them."""
    if isinstance(nested, torch.Tensor):
        yield nested
        return
    for item in nested:
        yield from _tensors(item)


def _free(tensors: Iterable[torch.Tensor]) -> list[tuple[torch.UntypedStorage, int]]:
    """Free storages, each once. Tensors that look at them stay and are good again when their storage is resized."""
    freed = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if size := storage.nbytes():
            storage.resize_(0)
            freed.append((storage, size))
    return freed
