"""A learner's state as a folder that any number of processes writes and reads (``torch.distributed.checkpoint``).

Every process writes its own part of each tensor; whoever reads asks for the parts that it needs, so the folder of two
ranks is read by one, by three, or by a run that is not distributed at all. The index of such a folder is a pickle: read
only folders that you trust.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

__all__ = ["read", "read_whole", "write"]

Place = Callable[[tuple[str, ...], torch.Size, torch.dtype], Tensor]
"""Makes the tensor that the value at a path of the state, with this shape and type, is read into."""

_COUNTERS = ("steps", "updates")


def write(state: Mapping[str, Any], folder: Path) -> None:
    """Write what :meth:`trainers.learner.Learner.tensors` returns. All processes of the group must call it."""
    from torch.distributed.checkpoint.state_dict_saver import save

    # As tensors, since what is no tensor would be read back by unpickling.
    counters = {name: torch.tensor(int(state[name])) for name in _COUNTERS}
    save({**state, **counters}, checkpoint_id=folder, no_dist=not distributed.is_initialized())


def read(folder: Path, place: Place) -> dict[str, Any]:
    """Read a folder into tensors that ``place`` makes. All processes of the group, if there is one, must call it.

    Raises:
        ValueError: The folder holds no such state.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        metadata = FileSystemReader(folder).read_metadata()
    except OSError as problem:
        raise ValueError(f"{folder} holds no state of a learner: {problem}") from problem
    state: dict[str, Any] = {"weights": {}, "optimizer": {}}
    for key, entry in metadata.state_dict_metadata.items():
        path = tuple((metadata.planner_data or {}).get(key, (key,)))
        if not isinstance(entry, TensorStorageMetadata):
            raise ValueError(f"{folder} holds {key!r}, which is no tensor: it is no state of a learner")
        into = state
        for part in path[:-1]:
            into = into.setdefault(part, {})
        into[path[-1]] = place(path, entry.size, entry.properties.dtype)
    if not all(name in state for name in _COUNTERS):
        raise ValueError(f"{folder} is no state of a learner: it has no {' and '.join(_COUNTERS)}")
    load(state, checkpoint_id=folder, no_dist=not distributed.is_initialized())
    return {**state, **{name: int(state[name]) for name in _COUNTERS}}


def read_whole(folder: Path) -> dict[str, Any]:
    """Read a folder into whole tensors on the CPU, in one process: what ``Learner.state_dict`` returns."""
    return read(folder, lambda path, size, dtype: torch.empty(size, dtype=dtype))
