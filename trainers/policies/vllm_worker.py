"""What runs inside a vLLM worker, beside the served model: the repair and the inspection of its weights.

vLLM mixes `WorkerExtension` into its worker class (`worker_extension_cls`), so the methods are called by name through
`collective_rpc`, in this process or in another one.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import nn

EXTENSION = "trainers.policies.vllm_worker.WorkerExtension"
GROUPS = ("embeddings", "attention layers", "mlp layers", "norms", "output head", "other layers")
_HEAD = "lm_head"


def layer_group(name: str) -> str:
    """Return the group of `GROUPS` that a parameter's or module's name belongs to."""
    if _HEAD in name:
        return "output head"
    if "norm" in name:
        return "norms"
    if "attn" in name or "attention" in name:
        return "attention layers"
    if "mlp" in name:
        return "mlp layers"
    if "embed" in name:
        return "embeddings"
    return "other layers"


class WorkerExtension:
    """Methods that are added to vLLM's worker. `self` is the worker."""

    model_runner: Any
    vllm_config: Any
    device: torch.device
    weight_transfer_engine: Any
    update_weights: Any
    _weight_update_active: bool

    def transfer_device(self) -> str | None:
        """Return the identity of the worker's GPU, the same in every process; None without one."""
        on_gpu = self.device.type == "cuda"
        return str(torch.cuda.get_device_properties(self.device).uuid) if on_gpu else None

    def open_weight_transfer(self, backend: str) -> None:
        """Open this end of vLLM's weight transfer, as an engine that is started with a `weight_transfer_config` does.

        Here it is opened once the other end is known: which back end fits depends on where the learner is. One that was
        open is closed.
        """
        from vllm.config.weight_transfer import WeightTransferConfig
        from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

        from trainers.policies import vllm_gloo, vllm_shared

        vllm_shared.register()
        vllm_gloo.register()
        if self.weight_transfer_engine is not None:
            self.weight_transfer_engine.shutdown()
        self.weight_transfer_engine = WeightTransferEngineFactory.create_engine(
            WeightTransferConfig(backend=backend), self.vllm_config, self.device, self.model_runner.get_model()
        )

    def update_pickled_weights(self, pickled: bytes) -> None:
        """Receive weights whose description was pickled by the process that has started this one."""
        self.update_weights(pickle.loads(pickled))  # noqa: S301  (our own parent's)

    def abandon_weight_update(self) -> None:
        """End an update that has failed midway, so that another can begin. The weights are of no use until then.

        vLLM keeps count of what each layer has got, and does not begin anew while a layer waits for the rest.
        """
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        with set_current_vllm_config(self.vllm_config):
            finalize_layerwise_reload(self.model_runner.get_model(), self.vllm_config.model_config)
        self._weight_update_active = False

    def repack_output_head(self) -> bool:
        """Pack the output head's weights again; return whether there was anything to pack.

        On a CPU, vLLM multiplies by packed copies of the weights. A weight reload packs every linear layer again, but
        not the output head of a model whose head is tied to the embeddings: without this call it goes on with the old
        weights.
        """
        from vllm.platforms import current_platform

        head = getattr(self.model_runner.get_model(), _HEAD, None)
        head = getattr(head, "base_layer", head)
        if not current_platform.is_cpu() or getattr(head, "weight", None) is None:
            return False
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

        dispatch_cpu_unquantized_gemm(head, remove_weight=False)
        return True

    def release_memory(self, level: int) -> int:
        """Sleep on a CPU; see :func:`trainers.policies.vllm_sleep.release`."""
        from trainers.policies import vllm_sleep

        return vllm_sleep.release(self, level)

    def restore_memory(self, parts: Sequence[str]) -> None:
        """Wake on a CPU; see :func:`trainers.policies.vllm_sleep.restore`."""
        from trainers.policies import vllm_sleep

        vllm_sleep.restore(self, parts)

    def group_cpu_lora(self) -> None:
        """Let adapters be computed a matrix product each; see :mod:`trainers.policies.vllm_cpu_lora`."""
        from trainers.policies import vllm_cpu_lora

        vllm_cpu_lora.install()

    def compare_weights(
        self, named_tensors: Sequence[tuple[str, torch.Tensor]] | None = None, folder: str | None = None
    ) -> dict[str, float]:
        """Compare what the served layers compute with given weights.

        Args:
            named_tensors: Weights under the names of the checkpoint, or None to read them from a folder.
            folder: Folder with `model.safetensors`.

        Returns:
            Largest relative difference of each layer group that could be compared. A linear layer and the output head
            are compared by their product with a fixed random matrix, because the packed weights cannot be read back.
        """
        if named_tensors is None:
            from safetensors.torch import load_file

            named_tensors = list(load_file(Path(str(folder)) / "model.safetensors").items())
        with torch.no_grad():
            return compare_served(self.model_runner.get_model(), named_tensors)


def compare_served(model: nn.Module, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, float]:
    """Compare a served vLLM model with weights; see `WorkerExtension.compare_weights`."""
    reference = dict(named_tensors)
    packed: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    differences: dict[str, float] = {}
    for name, module in model.named_modules():
        if name.endswith(".base_layer"):  # reached through its LoRA wrapper
            continue
        module = getattr(module, "base_layer", module)
        prefix, dot, leaf = name.rpartition(".")
        names = [f"{prefix}{dot}{part}.weight" for part in packed.get(leaf, [leaf])]
        if leaf == _HEAD and names[0] not in reference:
            names = [key for key in reference if key.endswith("embed_tokens.weight")][:1]
        if not names or any(key not in reference for key in names):
            continue
        difference = _difference(module, torch.cat([reference[key] for key in names]))
        if difference is not None:
            group = layer_group(name)
            differences[group] = max(differences.get(group, 0.0), difference)
    return differences


def _difference(module: nn.Module, weight: torch.Tensor) -> float | None:
    """Return the relative difference of one layer, or None if it holds only a shard of the weight."""
    own: Any = module
    # A packed linear layer has given up its weight; its product below shows what it computes with.
    example = own.weight if own.weight.numel() else torch.empty(0, dtype=weight.dtype)
    weight = weight.to(device=example.device, dtype=example.dtype)
    if weight.ndim == 1:
        served, expected = own.weight, weight
    elif hasattr(own, "num_embeddings") and type(own).__name__ != "ParallelLMHead":
        served, expected = own.weight[: weight.shape[0]], weight
    else:
        generator = torch.Generator().manual_seed(0)
        hidden = torch.randn(4, weight.shape[1], generator=generator).to(weight)
        served = own.quant_method.apply(own, hidden, bias=None)[:, : weight.shape[0]]
        expected = hidden @ weight.T
    if served.shape != expected.shape:
        return None
    scale = float(expected.abs().max()) or 1.0
    return float((served - expected).abs().max()) / scale
