"""A learner, and a critic, divided over the ranks of a process group, by PyTorch's FSDP2.

Weights, gradients and AdamW's moments are divided; micro-batches are dealt out. FSDP averages gradients over the ranks
by default; here they are added up, because every rank's loss is its part of one sum (:mod:`trainers.ranks`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import Store
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor

from trainers.algorithms.losses import LossMetrics
from trainers.ranks import Ranks

__all__ = ["FSDPRanks", "process_group", "whole"]


@contextlib.contextmanager
def process_group(store: Store, rank: int, size: int, timeout: float = 600.0) -> Iterator[None]:
    """Join the processes of a learner: NCCL where there are GPUs, gloo elsewhere.

    Args:
        store: Where they meet.
        rank: Number of this one.
        size: How many they are.
        timeout: Seconds that an operation of theirs may take.
    """
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
    try:
        yield
    finally:
        distributed.destroy_process_group()


class FSDPRanks(Ranks):
    """The ranks of the process group that this process has joined."""

    def __init__(self) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._mesh = init_device_mesh(self._device, (self.size,))

    def shard(self, forward: Any) -> Any:
        """Divide the weights behind a forward pass; see :meth:`Ranks.shard`."""
        return _ShardedForward(forward, self._mesh)

    def local(self, parameter: Tensor, whole: Tensor) -> Tensor:
        """Return ``whole`` divided as ``parameter`` is."""
        if isinstance(whole, DTensor) or not isinstance(parameter, DTensor):
            return whole
        # Every rank has the whole and takes its part: nothing is sent.
        return distribute_tensor(
            whole.to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
        )

    def total(self, value: float) -> float:
        """Return the sum of a value over the processes."""
        summed = torch.tensor(value, dtype=torch.float64, device=self._device)
        distributed.all_reduce(summed)
        return float(summed)

    def norm(self, gradients: Sequence[Tensor | None]) -> float:
        """Return the Euclidean norm of gradients of which every process has a part."""
        parts = [g.to_local() if isinstance(g, DTensor) else g for g in gradients if g is not None]
        squares = sum(float(torch.linalg.vector_norm(part.detach()).double() ** 2) for part in parts)
        return float(self.total(squares) ** 0.5)

    def merge(self, metrics: Mapping[str, LossMetrics]) -> dict[str, LossMetrics]:
        """Return the metrics of each agent over all processes."""
        everywhere: list[dict[str, LossMetrics]] = [{} for _ in range(self.size)]
        distributed.all_gather_object(everywhere, dict(metrics))
        merged: dict[str, LossMetrics] = {}
        for found in everywhere:
            for agent, part in found.items():
                merged.setdefault(agent, LossMetrics()).add(part)
        return merged

    def gather(self, found: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """Return what all processes have found."""
        everywhere: list[dict[int, Tensor]] = [{} for _ in range(self.size)]
        distributed.all_gather_object(everywhere, dict(found))
        return {i: value for part in everywhere for i, value in part.items()}


class _ShardedForward(nn.Module):
    """A forward pass whose weights are gathered layer by layer while it runs.

    The whole of it, output layer and log-softmax included, is the forward of FSDP's root: the decoder and the output
    layer are called one after the other, and only the root's hooks gather what belongs to neither layer of the decoder.
    """

    def __init__(self, forward: Any, mesh: DeviceMesh) -> None:
        super().__init__()
        self.model = forward.model
        self._undivided = forward
        if not any(isinstance(module, FSDPModule) for module in self.model.modules()):
            layers = {n for m in self.model.modules() for n in getattr(m, "_no_split_modules", None) or ()}
            for module in [m for m in self.model.modules() if type(m).__name__ in layers]:
                fully_shard(module, mesh=mesh, reshard_after_forward=True)
        # The root too is divided again after a pass without gradients, or it would keep weights that have changed.
        fully_shard(self, mesh=mesh, reshard_after_forward=True)
        for module in self.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def __getattr__(self, name: str) -> Any:
        """Return what the forward pass says of itself."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_undivided"], name)

    def forward(self, *args: Any, **options: Any) -> Any:
        """Return what the forward pass returns, as tensors of their own.

        FSDP hooks what a root returns, and the hook of a view is lost when somebody writes to it.
        """
        found = self._undivided(*args, **options)
        return found.clone() if isinstance(found, Tensor) else tuple(part.clone() for part in found)


def whole(tensor: Tensor) -> Tensor:
    """Return all of a tensor of which every process has a part, on the CPU; all of them must call it."""
    if isinstance(tensor, DTensor):
        tensor = tensor.redistribute(placements=[Replicate()]).to_local()
    return tensor.detach().cpu()
