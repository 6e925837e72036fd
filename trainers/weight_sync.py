"""Learner to sampler: new weights into a policy, and the proof that they arrived.

One small adapter a backend puts the learner's weights into the policy that samples:

* `HFSync`: `hf:` policies, full weights or a LoRA adapter, copied in memory.
* `VLLMSync`: `vllm:` policies, full weights; copied to an engine of this process, through vLLM's weight transfer
  (`trainers.weight_transfer`) or a folder to one in another.
* `VLLMLoRASync`: `vllm:` policies, a LoRA adapter under a new name for each version.

`WeightSync.verify` then proves that the sampler computes with them (see `trainers.weight_check`).

`WeightSync.set_aside` copies a learner's weights, so that a sampler can be given them when the learner has gone on.
"""

from __future__ import annotations

import copy
import itertools
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.policies.base import Policy, Sampling
from trainers.policies.vllm_async import AsyncVLLMEngine
from trainers.weight_check import (
    CHECK_PROMPTS,
    Source,
    SyncReport,
    WeightSyncError,
    forward_logprobs,
    is_peft,
    learner_model,
    named_tensors,
    save_tensors,
    verify,
)
from trainers.weight_transfer import WeightTransfer

if TYPE_CHECKING:
    import torch
    from peft import PeftConfig

    from trainers.policies.hf import HFPolicy
    from trainers.policies.vllm import VLLMPolicy

__all__ = [
    "Adapter",
    "HFSync",
    "SyncReport",
    "VLLMLoRASync",
    "VLLMSync",
    "WeightSync",
    "WeightSyncError",
    "forward_logprobs",
    "make_sync",
    "named_tensors",
    "verify",
]

_ADAPTER_IDS = itertools.count(1)  # vLLM asks for ids that are unique in an engine; these are in a process


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter without the model that it was trained on.

    Attributes:
        name: Its name in that model.
        config: Its peft configuration.
        tensors: Its weights, as `peft.get_peft_model_state_dict` names them.
    """

    name: str
    config: PeftConfig
    tensors: Mapping[str, torch.Tensor]

    @classmethod
    def of(cls, model: Any, name: str | None = None) -> Adapter:
        """Take an adapter of a peft model, the active one if not named. Its tensors are the model's own."""
        from peft import get_peft_model_state_dict

        name = name or model.active_adapter
        return cls(name, model.peft_config[name], get_peft_model_state_dict(model, adapter_name=name))

    def save(self, folder: Path) -> None:
        """Write it as peft does."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in self.tensors.items()}
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        config = copy.deepcopy(self.config)
        config.inference_mode = True
        config.save_pretrained(str(folder))


class WeightSync(ABC):
    """Puts a learner's weights into one policy."""

    policy: Policy

    @abstractmethod
    async def push(self, source: Source, version: int) -> None:
        """Replace the policy's weights.

        Running requests finish with the weights they started with; later ones use the new weights and carry the new
        version.

        Args:
            source: The learner, its model, what `set_aside` has returned, or (name, tensor) pairs under the names of
                the checkpoint.
            version: Version of the weights.

        Raises:
            WeightSyncError: If this kind of weights cannot be pushed to the policy.
            PolicyError: If the weights do not fit, or the engine has failed.
        """

    async def set_aside(self, source: Source) -> Source:
        """Copy the weights of a learner as they are now, for a later `push`.

        Args:
            source: The learner, or its model; of a peft model the active adapter is copied.
        """
        model = learner_model(source)
        if not is_peft(model):
            return [(name, tensor.clone()) for name, tensor in named_tensors(model)]
        adapter = Adapter.of(model)
        tensors = {name: tensor.detach().clone() for name, tensor in adapter.tensors.items()}
        return Adapter(adapter.name, copy.deepcopy(adapter.config), tensors)

    async def verify(
        self,
        learner: Any,
        *,
        tolerance: float = 1e-4,
        prompts: Sequence[str] = CHECK_PROMPTS,
        sampling: Sampling | None = None,
        max_tokens: int = 16,
        seed: int = 0,
    ) -> SyncReport:
        """Prove that the policy samples with the learner's weights; see `trainers.weight_check.verify`.

        Args:
            learner: A model, or an object with a `model` and a batched `logprobs(prompts, completions)`.
            tolerance: Largest absolute difference of a log-prob that passes.
            prompts: Observations.
            sampling: Its temperature is used, which must be the learner's; 1 if not given.
            max_tokens: Length of the completions.
            seed: Seed of the completions.

        Raises:
            WeightSyncError: If a log-prob differs by more than `tolerance`.
        """
        temperature = 1.0 if sampling is None else sampling.temperature
        batched = getattr(learner, "logprobs", None)
        if batched is None:
            logprobs = forward_logprobs(learner_model(learner), temperature=temperature)
        else:

            def logprobs(prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> Sequence[float]:
                values: Sequence[float] = batched([prompt_ids], [completion_ids])[0]
                return values

        return await verify(
            self.policy,
            logprobs,
            prompts,
            tol=tolerance,
            source=learner,
            temperature=temperature,
            max_tokens=max_tokens,
            seed=seed,
        )

    async def close(self) -> None:  # noqa: B027  (an optional hook)
        """Remove the files that the sync has left on disk."""


def make_sync(
    policy: Policy, *, lora: bool = False, name: str | None = None, folder: str | Path | None = None
) -> WeightSync:
    """Return the sync for a policy.

    Args:
        policy: An `hf:` or `vllm:` policy.
        lora: Whether the learner trains a LoRA adapter.
        name: Name of the adapter in the engine, for LoRA; peft's name of it if not given.
        folder: Where a vLLM policy finds its newest adapter; a temporary folder if not given.

    Raises:
        WeightSyncError: If the policy has no weights that can be replaced.
    """
    if hasattr(policy, "engine"):
        return VLLMLoRASync(policy, name=name, folder=folder) if lora else VLLMSync(policy)  # type: ignore[arg-type]
    if hasattr(policy, "load_weights"):
        return HFSync(policy)  # type: ignore[arg-type]
    raise WeightSyncError(f"policy {policy.name!r} cannot be trained: only hf: and vllm: policies take new weights")


class HFSync(WeightSync):
    """Copies full weights, or a LoRA adapter, into a transformers policy."""

    def __init__(self, policy: HFPolicy) -> None:
        """Sync to a policy."""
        self.policy: HFPolicy = policy

    async def push(self, source: Source, version: int) -> None:
        """Replace the policy's weights; see `WeightSync.push`. A peft model pushes its active adapter."""
        source = learner_model(source)
        if is_peft(source):
            source = Adapter.of(source)
        if isinstance(source, Adapter):
            await self.policy.load_adapter(source.config, source.tensors, version)
        else:
            await self.policy.load_weights(named_tensors(source), version)


class VLLMSync(WeightSync):
    """Replaces full weights in a running vLLM engine, in the way that `VLLMPolicy.transfer` names.

    Attributes:
        transfer: vLLM's weight transfer to an engine in another process; None to one of this process.
    """

    def __init__(self, policy: VLLMPolicy) -> None:
        """Sync to a policy."""
        self.policy: VLLMPolicy = policy
        self._asked, engine = policy.transfer, policy.engine
        self.transfer = (
            WeightTransfer(engine, self._asked, policy.transfer_timeout)
            if isinstance(engine, AsyncVLLMEngine)
            else None
        )

    async def push(self, source: Source, version: int) -> None:
        """Replace the engine's weights; see `WeightSync.push`."""
        engine = self.policy.engine
        source = learner_model(source)
        if is_peft(source) or isinstance(source, Adapter):
            raise WeightSyncError(
                f"policy {self.policy.name!r}: the learner trains a LoRA adapter; push it with VLLMLoRASync"
            )
        if engine.users > 1:
            raise WeightSyncError(
                f"policy {self.policy.name!r} shares its engine with {engine.users - 1} other, whose weights would "
                "change too: make policies whose full weights are trained with share=False, or train LoRA adapters"
            )
        tensors = named_tensors(source)
        if self.transfer is None:
            await engine.reload(version, weights_iterator=iter(tensors))
        elif self._asked != "folder" and not (self._asked == "auto" and tensors[0][1].device.type == "cpu"):
            await self.transfer.push(tensors, version)
        else:
            with tempfile.TemporaryDirectory(prefix="llm-envs-weights-") as folder:
                save_tensors(tensors, Path(folder))
                await engine.reload(version, weights_path=folder)


class VLLMLoRASync(WeightSync):
    """Gives a vLLM policy a LoRA adapter, under a new name for each version.

    A new name, and not a new file under the old one, because vLLM caches adapters and prefixes by name. The engine
    needs `enable_lora=True`, and one more slot in `max_loras` than there are adapters.
    """

    def __init__(
        self,
        policy: VLLMPolicy,
        *,
        name: str | None = None,
        adapter: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """Sync to a policy.

        Args:
            policy: The policy that samples with the adapter.
            name: Name of the adapter in the engine; the one in the peft model if not given.
            adapter: Name of the adapter in the learner's peft model; the active one if not given.
            folder: Where the newest adapter is kept; a temporary folder that `close` removes if not given.
        """
        self.policy: VLLMPolicy = policy
        self.name = name
        self.adapter = adapter
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="llm-envs-lora-") if folder is None else folder)

    async def push(self, source: Source, version: int) -> None:
        """Save the adapter, load it, use it from now on and drop the one before; see `WeightSync.push`."""
        from vllm.lora.request import LoRARequest

        source = learner_model(source)
        if is_peft(source):
            source = Adapter.of(source, self.adapter)
        if not isinstance(source, Adapter):
            raise WeightSyncError(f"policy {self.policy.name!r}: a LoRA sync pushes a peft model, not full weights")
        number = next(_ADAPTER_IDS)
        path = self.folder / f"v{version}-{number}"
        source.save(path)
        name = f"{self.name or source.name}-v{version}-{number}"
        new, old = LoRARequest(name, number, str(path)), self.policy.lora
        await self.policy.engine.add_lora(new)
        self.policy.lora = new
        self.policy.weight_version = version
        if old is not None:  # requests that started with it have ended once the engine is idle
            await self.policy.engine.remove_lora(old)
        for stale in self.folder.glob("v*-*"):
            if stale != path:
                shutil.rmtree(stale)

    async def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
