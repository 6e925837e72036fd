"""A back end of vLLM's weight transfer through gloo: a broadcast over the network, from and to main memory.

vLLM's `nccl` broadcasts between GPUs. This one, registered beside it as `gloo`, takes the same way without any: one
process group of the learner and all workers, in which the learner broadcasts the tensors one after the other. The group
is its own: the default process groups of the learner's ranks and of vLLM know nothing of it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, ClassVar, Self

import torch
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import BroadcastOptions, ProcessGroupGloo
from vllm.distributed.weight_transfer.base import (
    ParamMeta,
    TrainerInitInfo,
    TrainerWeightTransferEngine,
    VLLMWeightSyncClient,
    WeightSource,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory, WeightTransferTrainerFactory

from trainers.policies.vllm_shared import LayerwiseEngine

__all__ = [
    "NAME",
    "GlooGroup",
    "GlooInitInfo",
    "GlooTrainerEngine",
    "GlooTrainerInitInfo",
    "GlooUpdateInfo",
    "GlooWorkerEngine",
    "register",
]

NAME = "gloo"
_POLL = 0.02  # seconds between two looks at who has arrived
_REASON = 5.0  # seconds in which the client should know why a worker has left


class GlooGroup:
    """A process group that broadcasts from rank 0, beside whatever groups its processes are in.

    Args:
        store: Where its processes meet.
        address: Address of this machine at which the others reach it.
        rank: Number of this process.
        size: How many they are.
        timeout_s: Seconds that the meeting, or a broadcast, may take.
    """

    def __init__(self, store: TCPStore, address: str, rank: int, size: int, timeout_s: float) -> None:
        options: Any = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = timedelta(seconds=timeout_s)
        self._store = store  # of rank 0: the others need it to be there
        self._group: Any = ProcessGroupGloo(PrefixStore(NAME, store), rank, size, options)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Send a tensor from rank 0, or receive it in place elsewhere.

        Raises:
            RuntimeError: A process has left the group, or did not take part in time.
        """
        if tensor.numel() == 0:
            return
        options = BroadcastOptions()
        options.rootRank = 0
        # Bytes, because gloo does not know every type.
        self._group.broadcast([tensor.flatten().view(torch.uint8)], options).wait()

    def close(self) -> None:
        """Leave the group. Processes that wait for this one get an error."""
        self._group.abort()


@dataclass
class GlooInitInfo(WeightTransferInitInfo):
    """What a worker needs to know to join the group.

    Attributes:
        master_address: Address of the learner.
        master_port: Port of the store there.
        rank_offset: Rank of the first worker of its engine.
        world_size: Processes in the group.
        timeout_s: See `GlooGroup`.
    """

    master_address: str
    master_port: int
    rank_offset: int
    world_size: int
    timeout_s: float


@dataclass
class GlooUpdateInfo(WeightTransferUpdateInfo):
    """What one update consists of.

    Attributes:
        names: Names of the tensors, those of the checkpoint.
        dtype_names: Their types, such as `float32`.
        shapes: Their shapes.
    """

    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]

    def __post_init__(self) -> None:
        """Check that every tensor is described."""
        if not len(self.names) == len(self.dtype_names) == len(self.shapes):
            raise ValueError(
                f"{len(self.names)} names, {len(self.dtype_names)} types and {len(self.shapes)} shapes must be equally "
                "many"
            )
        for name, dtype, shape in zip(self.names, self.dtype_names, self.shapes, strict=True):
            if not isinstance(getattr(torch, dtype, None), torch.dtype):
                raise ValueError(f"{name!r} has the type {dtype!r}, which is none of torch's")
            if any(size < 0 for size in shape):
                raise ValueError(f"{name!r} has the shape {shape}, of which a size is below 0")


class GlooWorkerEngine(LayerwiseEngine[GlooInitInfo, GlooUpdateInfo]):
    """The worker's side: receives tensor after tensor, and loads the model's layers from them."""

    init_info_cls = GlooInitInfo
    update_info_cls = GlooUpdateInfo
    _group: GlooGroup | None = None

    def init_transfer_engine(self, init_info: GlooInitInfo) -> None:
        """Join the group. All workers of all engines have to, each in its process, before any of them returns."""
        parallel = self.parallel_config
        rank = init_info.rank_offset + parallel.data_parallel_index * parallel.world_size + parallel.rank
        timeout = timedelta(seconds=init_info.timeout_s)
        store = TCPStore(init_info.master_address, init_info.master_port, is_master=False, timeout=timeout)
        store.set(_arrived(rank), "")
        address = _own_address(init_info.master_address)
        self._group = GlooGroup(store, address, rank, init_info.world_size, init_info.timeout_s)

    def receive_weights(self, update_info: GlooUpdateInfo) -> None:
        """Load what the learner sends.

        Raises:
            RuntimeError: This worker is in no group, or the learner has failed or did not send in time.
        """
        if self._group is None:
            raise RuntimeError("the worker has joined no group that weights could come from")
        received = self._received(self._group, update_info)
        try:
            self.model.load_weights(received)
            for _ in received:  # whatever a model has no use for is sent all the same
                pass
        except BaseException:
            self.shutdown()  # or the others would wait for this one
            raise

    def _received(self, group: GlooGroup, update_info: GlooUpdateInfo) -> Iterator[tuple[str, torch.Tensor]]:
        for name, dtype, shape in zip(update_info.names, update_info.dtype_names, update_info.shapes, strict=True):
            tensor = torch.empty(shape, dtype=getattr(torch, dtype), device="cpu")
            group.broadcast(tensor)
            yield name, tensor.to(self.device)

    def shutdown(self) -> None:
        """Leave the group."""
        if self._group is not None:
            self._group.close()
            self._group = None


@dataclass
class GlooTrainerInitInfo(TrainerInitInfo):
    """The learner's side: `rank` 0 sends.

    Attributes:
        master_address: Address of this machine at which workers reach it.
        world_size: Processes in the group: this one and all workers.
        timeout_s: See `GlooGroup`.
    """

    backend: ClassVar[str] = NAME

    master_address: str
    world_size: int
    timeout_s: float


class GlooTrainerEngine(TrainerWeightTransferEngine[GlooTrainerInitInfo]):
    """The learner's side: broadcasts the weights of every update while the workers receive them."""

    init_info_cls = GlooTrainerInitInfo
    _group: GlooGroup | None = None

    @classmethod
    def trainer_init(
        cls, init_info: GlooTrainerInitInfo, *, client: VLLMWeightSyncClient, source: WeightSource | None = None
    ) -> Self:
        """Form the group and return a sender of ``source``.

        Raises:
            ValueError: There is no source.
            TimeoutError: A worker did not come in time.
            Exception: What the client has raised.
        """
        if source is None:
            raise ValueError(f"the weight transfer {NAME!r} sends a WeightSource, and there is none")
        engine = cls(client=client, source=source, is_sender=init_info.is_sender)
        if engine.is_sender:
            engine._meet(init_info)
        return engine

    def _meet(self, info: GlooTrainerInitInfo) -> None:
        timeout = timedelta(seconds=info.timeout_s)
        # Port 0: a free one, which nobody else can take before it is used.
        store = TCPStore(info.master_address, 0, is_master=True, timeout=timeout, wait_for_workers=False)
        theirs = GlooInitInfo(info.master_address, int(store.port), 1, info.world_size, info.timeout_s)
        joining = _beside(self.client.init_weight_transfer_engine, asdict(theirs))
        _await_arrivals(store, info.world_size, joining, info.timeout_s)
        self._group = GlooGroup(store, info.master_address, 0, info.world_size, info.timeout_s)
        joining.result()

    def send_weights(self) -> None:
        """Broadcast the weights, and have the workers load them.

        Raises:
            ValueError: The source gives other tensors than it has declared.
            RuntimeError: The sender or a worker has left the group, or one did not receive in time.
            Exception: What the client has raised.
        """
        source: Any = self.source  # trainer_init has refused none
        metadata = source.metadata()
        if not self.is_sender:
            for _ in source:  # whole tensors are gathered by all ranks together
                pass
            return
        if self._group is None:
            raise RuntimeError("the sender has left its group: form another")
        info = GlooUpdateInfo(
            [entry.name for entry in metadata],
            [str(entry.dtype).removeprefix("torch.") for entry in metadata],
            [list(entry.shape) for entry in metadata],
        )
        self.client.start_weight_update()
        receiving = _beside(self.client.update_weights, asdict(info))
        for tensor in _as_declared(source, metadata):
            if receiving.done():  # before all was sent: it has failed
                receiving.result()
            try:
                self._group.broadcast(tensor.detach().to("cpu").contiguous())
            except RuntimeError:  # a worker has left the group, and why is what the client will say
                wait([receiving], _REASON)
                if receiving.done():
                    receiving.result()
                raise
        receiving.result()
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        """Leave the group. Workers that wait for weights get an error."""
        if self._group is not None:
            self._group.close()
            self._group = None


def register() -> None:
    """Add the back end to vLLM's, in this process; twice does no harm."""
    if NAME not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(NAME, GlooWorkerEngine)
    if NAME not in WeightTransferTrainerFactory._registry:
        WeightTransferTrainerFactory.register_engine(NAME, GlooTrainerEngine)


def _beside(call: Any, *args: Any) -> Future[None]:
    """Make a call in a thread that nobody waits for if it hangs, but the end of the process."""
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="weights")
    future = executor.submit(call, *args)
    executor.shutdown(wait=False)
    return future


def _arrived(rank: int) -> str:
    return f"arrived/{rank}"


def _await_arrivals(store: TCPStore, size: int, joining: Future[None], timeout_s: float) -> None:
    """Wait until all workers are about to join; if one of them has failed, they never will."""
    ends = time.monotonic() + timeout_s
    while missing := [rank for rank in range(1, size) if not store.check([_arrived(rank)])]:
        if joining.done():
            joining.result()
            raise RuntimeError(f"the workers say that they have joined, and rank {missing[0]} has not")
        if time.monotonic() > ends:
            raise TimeoutError(f"{len(missing)} of {size - 1} workers did not come within {timeout_s:g} s")
        time.sleep(_POLL)


def _own_address(other: str) -> str:
    """The address of this machine on the network over which it reaches another."""
    family, kind, protocol, _, target = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # of a datagram socket: nothing is sent
        return str(probe.getsockname()[0])


def _as_declared(source: WeightSource, metadata: Sequence[ParamMeta]) -> Iterator[torch.Tensor]:
    """Yield the tensors of a source, each of which must be what the workers were told to expect."""
    given = iter(source)
    for entry in metadata:
        name, tensor = next(given, (None, None))
        if tensor is None:
            raise ValueError(f"the source ends where it has declared {entry.name!r}")
        if (name, tensor.dtype, tuple(tensor.shape)) != (entry.name, entry.dtype, tuple(entry.shape)):
            raise ValueError(
                f"the source gives {name!r} {tensor.dtype} {tuple(tensor.shape)} where it has declared {entry.name!r} "
                f"{entry.dtype} {tuple(entry.shape)}"
            )
        yield tensor
    if (extra := next(given, None)) is not None:
        raise ValueError(f"the source gives {extra[0]!r} beyond what it has declared")
