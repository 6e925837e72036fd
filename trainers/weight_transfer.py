"""Full weights to a vLLM engine in another process, through vLLM's own weight transfer.

vLLM's transfer has two ends: the learner's (`WeightTransferTrainerFactory`) and the workers'
(`WeightTransferEngineFactory`), which talk through a client of four calls: init, start, update, finish. Here are the
client for our engines, the source of the weights, and the choice of a back end:

* `ipc`: the workers map the learner's own GPU memory. Learner and engine are on one GPU.
* `nccl`: the learner broadcasts to GPUs that are not its own.
* `shared`: through main memory (:mod:`trainers.policies.vllm_shared`), which every process of the machine can reach.

On a cluster, learner and engines have machines and GPUs of their own: see :mod:`trainers.distributed.weight_groups`.
Which of them fits is known once both ends are there, so the workers open theirs at the first push.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trainers.weight_check import WeightSyncError

if TYPE_CHECKING:
    import torch
    from vllm.distributed.weight_transfer.base import ParamMeta, TrainerInitInfo, WeightSource

    from trainers.policies.vllm_async import AsyncVLLMEngine

__all__ = ["EngineClient", "WeightTransfer", "at_rest", "choose_backend", "device_id", "nccl_info", "weight_source"]

Call = Callable[..., list[Any]]
"""Calls a method of every worker by name with keyword arguments, and returns what each of them has returned."""

Tensors = Sequence[tuple[str, "torch.Tensor"]]


def device_id(tensor: torch.Tensor) -> str | None:
    """Return the identity of the GPU that holds a tensor, the same in every process; None if it is not on one."""
    import torch

    return str(torch.cuda.get_device_properties(tensor.device).uuid) if tensor.is_cuda else None


def choose_backend(learner: str | None, workers: Sequence[str | None], asked: str = "auto") -> str:
    """Return the back end of vLLM's transfer that joins a learner and the workers of an engine.

    Args:
        learner: The GPU that the learner's weights are on, see :func:`device_id`; None for main memory.
        workers: The GPU of each worker.
        asked: `auto` or the name of a back end.

    Raises:
        WeightSyncError: The back end that was asked for cannot join them.

    >>> choose_backend("GPU-a", ["GPU-a"]), choose_backend("GPU-a", ["GPU-b", "GPU-c"]), choose_backend(None, [None])
    ('ipc', 'nccl', 'shared')
    """
    on_gpus = learner is not None and None not in workers
    alone = on_gpus and list(workers) == [learner]
    apart = on_gpus and learner not in workers
    if asked == "auto":
        return "ipc" if alone else "nccl" if apart else "shared"
    where = f"the learner is on {learner or 'no GPU'}, the engine on {', '.join(w or 'no GPU' for w in workers)}"
    if asked == "ipc" and not alone:
        raise WeightSyncError(f"transfer `ipc` needs learner and engine on one GPU; {where}. Set transfer to `auto`")
    if asked == "nccl" and not apart:
        raise WeightSyncError(f"transfer `nccl` needs them on different GPUs; {where}. Set transfer to `auto`")
    return asked


class EngineClient:
    """vLLM's `VLLMWeightSyncClient` for our engines: its four calls, made on every worker."""

    def __init__(self) -> None:
        """A client that is not connected: `call` is set for the time of a transfer."""
        self.call: Call | None = None

    def _on_workers(self, method: str, **kwargs: Any) -> None:
        if self.call is None:
            raise WeightSyncError(f"`{method}` outside of a transfer")
        self.call(method, **kwargs)

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Have the workers meet the learner."""
        self._on_workers("init_weight_transfer_engine", init_info=init_info)

    def start_weight_update(self) -> None:
        """Have the workers make ready for new weights."""
        self._on_workers("start_weight_update")

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Have the workers receive weights."""
        if isinstance(update_info, dict) and "ipc_handles" in update_info:
            # Handles are made of torch's own objects, which vLLM's messages do not carry; bytes they do.
            self._on_workers("update_pickled_weights", pickled=pickle.dumps(update_info))
        else:
            self._on_workers("update_weights", update_info=update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Have the workers serve them, the output head included (see `WorkerExtension.repack_output_head`)."""
        self._on_workers("finish_weight_update")
        self._on_workers("repack_output_head")


def weight_source(current: Callable[[], Tensors], device: torch.device | None = None) -> WeightSource:
    """Return the source that vLLM's senders read, over the weights that `current` returns at the time of a push.

    Args:
        current: Returns the weights under the names of the checkpoint.
        device: Where each tensor is moved when its turn comes; nowhere if not given.
    """
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource

    class Source(WeightSource):
        def metadata(self) -> list[ParamMeta]:
            return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in current()]

        def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
            for name, tensor in current():
                yield name, tensor if device is None else tensor.to(device)

    return Source()


def nccl_info(workers: int, address: str | None = None) -> TrainerInitInfo:
    """Return what the learner's end of `nccl` is opened with.

    Args:
        workers: The workers of all engines.
        address: Address of this machine; vLLM's guess if not given.
    """
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
    from vllm.utils.network_utils import get_ip, get_open_port

    return NCCLTrainerInitInfo(
        master_address=address or get_ip(), master_port=get_open_port(), world_size=1 + workers, rank=0
    )


def _init_info(backend: str, workers: int) -> TrainerInitInfo:
    """What the learner's end of a back end is opened with."""
    if backend == "nccl":
        return nccl_info(workers)
    if backend == "ipc":
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        return IPCTrainerInitInfo(rank=0)
    from trainers.policies.vllm_shared import SharedTrainerInitInfo

    return SharedTrainerInitInfo(rank=0)


class WeightTransfer:
    """The way from a learner in this process to one engine in another.

    Attributes:
        backend: The back end in use; None before the first push.
    """

    def __init__(self, engine: AsyncVLLMEngine, asked: str, timeout_s: float) -> None:
        """Keep what is to be joined; the ends meet at the first push.

        Args:
            engine: The engine.
            asked: `auto` or the name of a back end, see :func:`choose_backend`.
            timeout_s: Seconds that one push, or the meeting of both ends, may take.
        """
        self.backend: str | None = None
        self._engine = engine
        self._asked = asked
        self._timeout_s = timeout_s
        self._client = EngineClient()
        self._tensors: Tensors = ()
        self._sender: Any = None

    async def push(self, tensors: Tensors, version: int) -> None:
        """Replace the engine's weights while it is idle.

        Args:
            tensors: The weights under the names of the checkpoint.
            version: Their version.

        Raises:
            WeightSyncError: The transfer has failed or took too long. The engine's weights are then unknown, and it
                refuses every request.
        """

        def send(call: Call) -> None:
            self._client.call = call
            self._tensors = tensors
            try:
                with at_rest(tensors[0][1]):
                    if self._sender is None:
                        self._open(call)
                    self._sender.send_weights()
            finally:
                self._tensors = ()
                self._client.call = None

        what = f"the vLLM engine of {self._engine.model!r} did not get weights of version {version}"
        try:
            await self._engine.transfer(version, send, self._timeout_s)
        except TimeoutError as error:
            raise WeightSyncError(
                f"{what} by {self.backend or self._asked!r} within {self._timeout_s:g} s. "
                "Raise transfer_timeout, or take another transfer"
            ) from error
        except WeightSyncError:
            raise
        except Exception as error:
            raise WeightSyncError(
                f"{what} by {self.backend or self._asked!r}: {type(error).__name__}: {error}"
            ) from error

    def _open(self, call: Call) -> None:
        """Choose the back end and let both ends meet."""
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

        from trainers.policies import vllm_shared

        vllm_shared.register()
        workers = call("transfer_device")
        self.backend = choose_backend(device_id(self._tensors[0][1]), workers, self._asked)
        call("open_weight_transfer", backend=self.backend)
        self._sender = WeightTransferTrainerFactory.trainer_init(
            _init_info(self.backend, len(workers)), client=self._client, source=weight_source(lambda: self._tensors)
        )


@contextlib.contextmanager
def at_rest(tensor: torch.Tensor) -> Iterator[None]:
    """Make the learner's GPU the current one of this thread, with nothing left to compute on it.

    vLLM's back ends take the current one, and read the weights on streams of their own that do not wait for others.
    """
    import torch

    if not tensor.is_cuda:
        yield
        return
    with torch.cuda.device(tensor.device):
        torch.cuda.synchronize()
        yield
