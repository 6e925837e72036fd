"""LoRA through peft: add adapters, and read the merged weights without touching the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

ADAPTER = "default"


def add_lora(model: Any, lora: Any | Mapping[str, Any], seed: int) -> Any:
    """Return the model wrapped by peft, with fresh adapters whose start depends on ``seed`` alone.

    Args:
        model: A transformers causal language model; its own weights are frozen.
        lora: A ``peft.LoraConfig`` or its arguments.
        seed: Seeds the adapters' first weights. The global generator is left as it was.

    Raises:
        ValueError: If the configuration has a feature whose weights cannot be merged exactly.
    """
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(task_type="CAUSAL_LM", **lora) if isinstance(lora, Mapping) else lora
    if getattr(config, "use_dora", False) or config.modules_to_save:
        raise ValueError("LoRA with use_dora or modules_to_save cannot be merged exactly; use plain LoRA")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # Adapters of a half-precision model are float32: their steps would be rounded away in half precision.
        return get_peft_model(model, config, adapter_name=ADAPTER, autocast_adapter_dtype=True)


class Bases:
    """Frozen weights of models, kept in memory once however many adapters are trained on them.

    >>> first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    >>> bases = Bases()
    >>> bases.share("plain", first)
    >>> bases.share("plain", second)
    >>> second.weight.data_ptr() == first.weight.data_ptr(), second.weight is first.weight
    (True, False)
    """

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, str], Tensor] = {}

    def share(self, source: str, model: torch.nn.Module) -> None:
        """Let the weights of ``model`` be those of the first model of the same source. They must stay as they are.

        Args:
            source: What the model was loaded from: equal sources mean equal weights.
            model: A model that is about to get an adapter.

        Raises:
            ValueError: A weight has another shape or type than that of the first model.
        """
        for name, parameter in model.named_parameters():
            first = self._tensors.setdefault((source, name), parameter.data)
            if (first.shape, first.dtype, first.device) != (parameter.shape, parameter.dtype, parameter.device):
                raise ValueError(f"{name} of {source} is {parameter.dtype} {tuple(parameter.shape)}, was {first.dtype}")
            parameter.data = first


def merged_named_tensors(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a peft model under the names of the plain model, W + scale·BA where there is an adapter.

    The sums are new tensors, made one at a time; the model keeps its weights as they are.
    """
    plain = model.get_base_model()
    modules = dict(plain.named_modules())
    for name, parameter in plain.named_parameters():
        if ".lora_" in name:
            continue
        owner, _, leaf = name.rpartition(".")
        tensor = parameter.detach()
        if owner.endswith(".base_layer"):
            owner = owner.removesuffix(".base_layer")
            if leaf == "weight":
                with torch.no_grad():
                    tensor = tensor + modules[owner].get_delta_weight(ADAPTER).to(tensor.dtype)
        yield f"{owner}.{leaf}" if owner else leaf, tensor
