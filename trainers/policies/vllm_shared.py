"""A back end of vLLM's weight transfer through main memory: for an engine in another process of the same machine.

vLLM brings back ends for GPUs only (`nccl`, `ipc`). This one is registered beside them as `shared`: the learner lays
all weights into one anonymous memory file (`memfd_create`), the workers map it and load from the mapping, layer by
layer as with every other back end. The file has no name, so nothing of it is left when either process is killed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self, TypeVar

import torch
from vllm.distributed.weight_transfer.base import (
    TrainerInitInfo,
    TrainerWeightTransferEngine,
    VLLMWeightSyncClient,
    WeightSource,
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

__all__ = [
    "NAME",
    "LayerwiseEngine",
    "SharedInitInfo",
    "SharedTrainerEngine",
    "SharedTrainerInitInfo",
    "SharedUpdateInfo",
    "SharedWorkerEngine",
    "register",
]

NAME = "shared"
_ALIGNMENT = 64  # bytes; of every tensor in the file

_Init = TypeVar("_Init", bound=WeightTransferInitInfo)
_Update = TypeVar("_Update", bound=WeightTransferUpdateInfo)


@dataclass
class SharedInitInfo(WeightTransferInitInfo):
    """What a worker needs to know beforehand: nothing."""


@dataclass
class SharedUpdateInfo(WeightTransferUpdateInfo):
    """Where the weights of one update lie.

    Attributes:
        path: The file, as the worker's process can open it.
        size: Its length in bytes.
        names: Names of the tensors, those of the checkpoint.
        dtype_names: Their types, such as `float32`.
        shapes: Their shapes.
        offsets: Where each begins, in bytes.
    """

    path: str
    size: int
    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]
    offsets: list[int]

    def __post_init__(self) -> None:
        """Check that every tensor is described, and lies inside the file."""
        if not len(self.names) == len(self.dtype_names) == len(self.shapes) == len(self.offsets):
            raise ValueError(
                f"{len(self.names)} names, {len(self.dtype_names)} types, {len(self.shapes)} shapes and "
                f"{len(self.offsets)} offsets must be equally many"
            )
        for name, dtype, shape, offset in zip(self.names, self.dtype_names, self.shapes, self.offsets, strict=True):
            if not 0 <= offset <= offset + _bytes(getattr(torch, dtype), shape) <= self.size:
                raise ValueError(f"{name!r} does not lie inside the {self.size} bytes of the file")

    def tensors(self) -> list[tuple[str, torch.Tensor]]:
        """Map the file and return its tensors, which share its memory."""
        whole = torch.from_file(self.path, shared=False, size=self.size, dtype=torch.uint8)
        found = []
        for name, type_name, shape, offset in zip(self.names, self.dtype_names, self.shapes, self.offsets, strict=True):
            dtype = getattr(torch, type_name)
            found.append((name, whole[offset : offset + _bytes(dtype, shape)].view(dtype).view(shape)))
        return found


class LayerwiseEngine(WeightTransferEngine[_Init, _Update]):
    """The worker's side of a back end that brings the weights of a checkpoint, with or without an accelerator."""

    def start_weight_update(self) -> None:
        """Make the layers ready to be loaded anew."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Receive an update; vLLM's own method waits for an accelerator, which there may be none of."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def finish_weight_update(self) -> None:
        """Complete the layers that are left."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)


class SharedWorkerEngine(LayerwiseEngine[SharedInitInfo, SharedUpdateInfo]):
    """The worker's side: maps the file and loads the model's layers from it."""

    init_info_cls = SharedInitInfo
    update_info_cls = SharedUpdateInfo

    def init_transfer_engine(self, init_info: SharedInitInfo) -> None:
        """Nothing is to be agreed upon."""

    def receive_weights(self, update_info: SharedUpdateInfo) -> None:
        """Load what lies in the file. Layers that wait for more keep the mapping alive until they are complete."""
        self.model.load_weights(update_info.tensors())

    def shutdown(self) -> None:
        """Nothing outlives an update."""


@dataclass
class SharedTrainerInitInfo(TrainerInitInfo):
    """The learner's side: `rank` 0 sends."""

    backend: ClassVar[str] = NAME


class SharedTrainerEngine(TrainerWeightTransferEngine[SharedTrainerInitInfo]):
    """The learner's side: writes the weights of every update into a new anonymous file."""

    init_info_cls = SharedTrainerInitInfo

    @classmethod
    def trainer_init(
        cls, init_info: SharedTrainerInitInfo, *, client: VLLMWeightSyncClient, source: WeightSource | None = None
    ) -> Self:
        """Return a sender of ``source``.

        Raises:
            ValueError: There is no source.
        """
        if source is None:
            raise ValueError(f"the weight transfer {NAME!r} sends a WeightSource, and there is none")
        engine = cls(client=client, source=source, is_sender=init_info.is_sender)
        if engine.is_sender:
            client.init_weight_transfer_engine(asdict(SharedInitInfo()))
        return engine

    def send_weights(self) -> None:
        """Write the weights, and have the workers load them."""
        source: Any = self.source  # trainer_init has refused none
        if not self.is_sender:
            for _ in source:  # whole tensors are gathered by all ranks together
                pass
            return
        names, dtypes, shapes, offsets, size = _layout(source)
        descriptor = os.memfd_create("llm-envs-weights")
        try:
            os.ftruncate(descriptor, size)
            info = SharedUpdateInfo(
                f"/proc/{os.getpid()}/fd/{descriptor}",
                size,
                names,
                [str(dtype).removeprefix("torch.") for dtype in dtypes],
                shapes,
                offsets,
            )
            _write(info, source)
            self.client.start_weight_update()
            self.client.update_weights(asdict(info))
            self.client.finish_weight_update()
        finally:
            os.close(descriptor)


def register() -> None:
    """Add the back end to vLLM's, in this process; twice does no harm."""
    if NAME not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(NAME, SharedWorkerEngine)
    if NAME not in WeightTransferTrainerFactory._registry:
        WeightTransferTrainerFactory.register_engine(NAME, SharedTrainerEngine)


def _bytes(dtype: torch.dtype, shape: Sequence[int]) -> int:
    return math.prod(shape) * dtype.itemsize


def _layout(
    source: WeightSource,
) -> tuple[list[str], list[torch.dtype], list[list[int]], list[int], int]:
    """Names, types, shapes and offsets of the tensors, and the size of the file."""
    metadata = source.metadata()
    offsets, end = [], 0
    for entry in metadata:
        offsets.append(end)
        end += -(-_bytes(entry.dtype, entry.shape) // _ALIGNMENT) * _ALIGNMENT
    return (
        [entry.name for entry in metadata],
        [entry.dtype for entry in metadata],
        [list(entry.shape) for entry in metadata],
        offsets,
        max(end, 1),
    )


def _write(info: SharedUpdateInfo, source: WeightSource) -> None:
    """Put the tensors where `info` says that they are.

    Written, not copied into a mapping: that would clear every page first, which took twice the time.
    """
    descriptor = os.open(info.path, os.O_WRONLY)
    try:
        for (name, tensor), declared, offset in zip(source, info.names, info.offsets, strict=True):
            if name != declared:
                raise ValueError(f"the source gives {name!r} where it has declared {declared!r}")
            left = memoryview(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
            while left:  # a call writes 2 GiB at most
                written = os.pwrite(descriptor, left, offset)
                left, offset = left[written:], offset + written
    finally:
        os.close(descriptor)
