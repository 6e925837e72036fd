"""What a policy has learned as a folder that any number of processes writes and reads.

It is one of ``torch.distributed.checkpoint``: the learner's state, with the critic's, if there is one, as ``critic``.
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
_CRITIC = "critic"


def write(state: Mapping[str, Any], folder: Path) -> None:
    """Write what :meth:`trainers.learner.Learner.tensors` returns, with that of the critic, if any, as ``critic``.

    All processes of the group must call it.
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    save(_counted(state), checkpoint_id=folder, no_dist=not distributed.is_initialized())


def read(folder: Path, place: Place, part: str | None = None) -> dict[str, Any]:
    """Read a folder into tensors that ``place`` makes. All processes of the group, if there is one, must call it.

    Args:
        folder: The folder.
        place: Makes the tensors; paths of a critic's state begin in the critic.
        part: ``critic`` reads the critic's state alone, ``learner`` all but it; None reads everything.

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
    state: dict[str, Any] = {}
    for key, entry in metadata.state_dict_metadata.items():
        path = tuple((metadata.planner_data or {}).get(key, (key,)))
        of_critic = path[0] == _CRITIC
        if part is not None and of_critic != (part == _CRITIC):
            continue
        if not isinstance(entry, TensorStorageMetadata):
            raise ValueError(f"{folder} holds {key!r}, which is no tensor: it is no state of a learner")
        into = state
        for name in path[:-1]:
            into = into.setdefault(name, {})
        into[path[-1]] = place(path[1:] if of_critic else path, entry.size, entry.properties.dtype)
    if part == _CRITIC and _CRITIC not in state:
        raise ValueError(f"{folder} holds no critic: it was written by a run without one")
    wanted = state[_CRITIC] if part == _CRITIC else state
    if not all(name in wanted for name in _COUNTERS):
        raise ValueError(f"{folder} is no state of a learner: it has no {' and '.join(_COUNTERS)}")
    load(state, checkpoint_id=folder, no_dist=not distributed.is_initialized())
    return _plain(state[_CRITIC] if part == _CRITIC else state)


def read_whole(folder: Path, part: str | None = None) -> dict[str, Any]:
    """Read a folder into whole tensors on the CPU, in one process: what ``state_dict`` returns; see :func:`read`."""
    return read(folder, lambda path, size, dtype: torch.empty(size, dtype=dtype), part)


def _counted(state: Mapping[str, Any]) -> dict[str, Any]:
    """Counters as tensors, since what is no tensor would be read back by unpickling."""
    counted = {**state, **{name: torch.tensor(int(state[name])) for name in _COUNTERS}}
    return {**counted, _CRITIC: _counted(state[_CRITIC])} if _CRITIC in state else counted


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """Counters as numbers; weights and moments even where there are none."""
    plain = {"weights": {}, "optimizer": {}, **state, **{name: int(state[name]) for name in _COUNTERS}}
    return {**plain, _CRITIC: _plain(state[_CRITIC])} if _CRITIC in state else plain
