"""Learner to sampler: new weights into a policy, and the proof that they arrived.

One small adapter a backend puts the learner's weights into the policy that samples:

* `HFSync`: `hf:` policies, full weights or a LoRA adapter, copied in memory.
* `VLLMSync`: `vllm:` policies, full weights; in memory to an engine of this process, through a folder to another.
* `VLLMLoRASync`: `vllm:` policies, a LoRA adapter under a new name for each version.

`verify` then compares the sampler's log-probs of its own tokens with the learner's. An update that is lost in part
gives plausible text and wrong gradients, so this is checked and not assumed. Weight transfer between GPUs is not part
of this module: `VLLMSync` to another process goes through the file system.
"""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.policies.base import Policy, PolicyError, Request, Sampling

if TYPE_CHECKING:
    import torch
    from torch import nn

    from trainers.policies.hf import HFPolicy
    from trainers.policies.vllm import VLLMPolicy

LearnerLogprobs = Callable[[Sequence[int], Sequence[int]], Sequence[float]]
"""Prompt ids and completion ids to the log-prob of each completion token under the learner's weights."""

_ADAPTER_IDS = itertools.count(1)  # vLLM asks for ids that are unique in an engine; these are in a process
_SAME = 1e-3  # relative difference up to which a served layer counts as equal in float32
_SAME_LOW_PRECISION = 5e-2  # the same for 16-bit weights


class WeightSyncError(RuntimeError):
    """The sampler does not compute with the learner's weights.

    Attributes:
        report: The comparison that failed, or None if none was made.
        groups: Layer groups that differ, if they could be found out.
    """

    def __init__(self, message: str, report: SyncReport | None = None, groups: tuple[str, ...] = ()) -> None:
        """Keep the message and what was found."""
        super().__init__(message)
        self.report = report
        self.groups = groups


@dataclass(frozen=True, slots=True)
class SyncReport:
    """Outcome of a verification.

    Attributes:
        policy: Label of the policy.
        weight_version: Version of the weights that sampled.
        max_abs_diff: Largest absolute difference of a token's log-prob.
        mean_abs_diff: Mean absolute difference.
        n_tokens: Number of tokens compared.
        tol: Largest difference that passes.
    """

    policy: str
    weight_version: int
    max_abs_diff: float
    mean_abs_diff: float
    n_tokens: int
    tol: float

    @property
    def ok(self) -> bool:
        """Whether every token's log-prob agrees to `tol`. A NaN does not agree with anything."""
        return self.max_abs_diff <= self.tol

    def __str__(self) -> str:
        """Return one line for a log."""
        state = "verified" if self.ok else "DIFFER"
        return (
            f"weights {state}: {self.policy} version {self.weight_version}, {self.n_tokens} tokens, "
            f"max |Δ log-prob| {self.max_abs_diff:.2e} (tolerance {self.tol:.0e})"
        )


def named_tensors(source: nn.Module | Iterable[tuple[str, torch.Tensor]]) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters of a model under the names of its checkpoint, detached; tied parameters come once.

    A peft model gives the weights of its base model. Anything else is taken as (name, tensor) pairs already.
    """
    from torch import nn

    if not isinstance(source, nn.Module):
        return [(name, tensor.detach()) for name, tensor in source]
    return [
        (name.removeprefix("base_model.model.").replace(".base_layer.", "."), parameter.detach())
        for name, parameter in source.named_parameters()
        if ".lora_" not in name
    ]


def _is_peft(source: object) -> bool:
    return hasattr(source, "peft_config")


class WeightSync(ABC):
    """Puts a learner's weights into one policy."""

    policy: Policy

    @abstractmethod
    async def push(self, source: nn.Module | Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Replace the policy's weights.

        Running requests finish with the weights they started with; later ones use the new weights and carry the new
        version.

        Args:
            source: The learner's model, or its (name, tensor) pairs under the names of the checkpoint.
            version: Version of the weights.

        Raises:
            WeightSyncError: If this kind of weights cannot be pushed to the policy.
            PolicyError: If the weights do not fit, or the engine has failed.
        """

    async def close(self) -> None:  # noqa: B027  (an optional hook)
        """Remove the files that the sync has left on disk."""


def make_sync(policy: Policy, *, lora: bool = False) -> WeightSync:
    """Return the sync for a policy.

    Args:
        policy: An `hf:` or `vllm:` policy.
        lora: Whether the learner trains a LoRA adapter.

    Raises:
        WeightSyncError: If the policy has no weights that can be replaced.
    """
    if hasattr(policy, "engine"):
        return VLLMLoRASync(policy) if lora else VLLMSync(policy)  # type: ignore[arg-type]
    if hasattr(policy, "load_weights"):
        return HFSync(policy)  # type: ignore[arg-type]
    raise WeightSyncError(f"policy {policy.name!r} cannot be trained: only hf: and vllm: policies take new weights")


class HFSync(WeightSync):
    """Copies full weights, or a LoRA adapter, into a transformers policy."""

    def __init__(self, policy: HFPolicy) -> None:
        """Sync to a policy."""
        self.policy: HFPolicy = policy

    async def push(self, source: nn.Module | Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Replace the policy's weights; see `WeightSync.push`. A peft model pushes its active adapter."""
        if not _is_peft(source):
            await self.policy.load_weights(named_tensors(source), version)
            return
        from peft import get_peft_model_state_dict

        learner: Any = source
        adapter = learner.active_adapter
        tensors = get_peft_model_state_dict(learner, adapter_name=adapter)
        await self.policy.load_adapter(learner.peft_config[adapter], tensors, version)


class VLLMSync(WeightSync):
    """Reloads full weights in a running vLLM engine and drops the prefix cache."""

    def __init__(self, policy: VLLMPolicy) -> None:
        """Sync to a policy."""
        self.policy: VLLMPolicy = policy

    async def push(self, source: nn.Module | Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Replace the engine's weights; see `WeightSync.push`."""
        engine = self.policy.engine
        if _is_peft(source):
            raise WeightSyncError(
                f"policy {self.policy.name!r}: the learner trains a LoRA adapter; push it with VLLMLoRASync"
            )
        if engine.users > 1:
            raise WeightSyncError(
                f"policy {self.policy.name!r} shares its engine with {engine.users - 1} other, whose weights would "
                "change too: make policies whose full weights are trained with share=False, or train LoRA adapters"
            )
        tensors = named_tensors(source)
        if engine.in_process:
            await engine.reload(version, weights_iterator=iter(tensors))
        else:
            with tempfile.TemporaryDirectory(prefix="llm-envs-weights-") as folder:
                _save(tensors, Path(folder))
                await engine.reload(version, weights_path=folder)


def _save(tensors: Iterable[tuple[str, torch.Tensor]], folder: Path) -> None:
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous().cpu() for name, tensor in tensors}, folder / "model.safetensors")


class VLLMLoRASync(WeightSync):
    """Gives a vLLM policy a LoRA adapter, under a new name for each version.

    A new name, and not a new file under the old one, because vLLM caches adapters and prefixes by name. The engine
    needs `enable_lora=True`, and one more slot in `max_loras` than there are adapters.
    """

    def __init__(self, policy: VLLMPolicy, *, adapter: str | None = None, folder: str | Path | None = None) -> None:
        """Sync to a policy.

        Args:
            policy: The policy that samples with the adapter.
            adapter: Name of the adapter in the learner's peft model; the active one if not given.
            folder: Where the newest adapter is kept; a temporary folder that `close` removes if not given.
        """
        self.policy: VLLMPolicy = policy
        self.adapter = adapter
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="llm-envs-lora-") if folder is None else folder)

    async def push(self, source: nn.Module | Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        """Save the adapter, load it, use it from now on and drop the one before; see `WeightSync.push`."""
        from vllm.lora.request import LoRARequest

        if not _is_peft(source):
            raise WeightSyncError(f"policy {self.policy.name!r}: a LoRA sync pushes a peft model, not full weights")
        learner: Any = source
        adapter = self.adapter or learner.active_adapter
        number = next(_ADAPTER_IDS)
        path = self.folder / f"v{version}-{number}"
        learner.save_pretrained(path, selected_adapters=[adapter])
        if adapter != "default":  # peft puts every other adapter into a folder of its own
            path = path / adapter
        new, old = LoRARequest(f"{adapter}-v{version}-{number}", number, str(path)), self.policy.lora
        await self.policy.engine.add_lora(new)
        self.policy.lora = new
        self.policy.weight_version = version
        if old is not None:  # requests that started with it have ended once the engine is idle
            await self.policy.engine.remove_lora(old)
        for stale in self.folder.glob("v*-*"):
            if stale not in (path, *path.parents):
                shutil.rmtree(stale)

    async def close(self) -> None:
        """Remove the temporary folder, if there is one."""
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)


async def verify(
    policy: Policy,
    learner_logprobs: LearnerLogprobs,
    prompts: Sequence[str],
    *,
    tol: float = 1e-4,
    source: nn.Module | Iterable[tuple[str, torch.Tensor]] | None = None,
    max_tokens: int = 16,
    seed: int = 0,
) -> SyncReport:
    """Prove that a policy samples with the learner's weights.

    The policy answers each prompt at temperature 1; the log-probs that it reports for its own tokens must be those
    that the learner computes for them.

    Args:
        policy: The policy that samples.
        learner_logprobs: The learner's log-probs, e.g. `forward_logprobs(model)`.
        prompts: Observations, at least one.
        tol: Largest absolute difference of a log-prob that passes. 1e-4 suits float32 on both sides.
        source: The learner's weights. With them a failure names the layer group that differs.
        max_tokens: Length of the completions.
        seed: Seed of the completions.

    Returns:
        The comparison, which has passed.

    Raises:
        WeightSyncError: If a log-prob differs by more than `tol`. The message names the policy, the difference and,
            where the served weights can be compared, the layer group.
        ValueError: If there are no prompts.
    """
    if not prompts:
        raise ValueError("verify needs at least one prompt")
    sampling = Sampling(temperature=1.0, max_tokens=max_tokens)
    requests = [
        Request(prompt, "verify", sampling, seed=seed + index, key=(-1, index, 0, "verify"))
        for index, prompt in enumerate(prompts)
    ]
    differences: list[float] = []
    for request in requests:
        (completion,) = await policy.generate(request)
        if completion.prompt_ids is None or completion.token_ids is None or completion.logprobs is None:
            raise WeightSyncError(f"policy {policy.name!r} reports no token ids or log-probs, so it cannot be verified")
        learner = [float(value) for value in learner_logprobs(completion.prompt_ids, completion.token_ids)]
        differences += [abs(a - b) for a, b in zip(completion.logprobs, learner, strict=True)]
    worst = math.nan if any(math.isnan(value) for value in differences) else max(differences)
    report = SyncReport(
        policy.label, policy.weight_version, worst, math.fsum(differences) / len(differences), len(differences), tol
    )
    if report.ok:
        return report
    groups, reason = await _differing_groups(policy, source)
    raise WeightSyncError(
        f"policy {policy.label!r} does not sample with the learner's weights of version {policy.weight_version}: over "
        f"{report.n_tokens} tokens the log-probs differ by up to {worst:.3g} (tolerance {tol:g}). {reason}",
        report,
        groups,
    )


async def _differing_groups(
    policy: Policy, source: nn.Module | Iterable[tuple[str, torch.Tensor]] | None
) -> tuple[tuple[str, ...], str]:
    """Find the layer groups that differ, and say it in a sentence."""
    if source is None:
        return (), "Which layers differ is unknown: pass the learner's weights as `source` to find out"
    try:
        differences = await _compare(policy, named_tensors(source))
    except PolicyError as error:
        return (), f"Which layers differ is unknown: {error}"
    if not differences:
        return (), "Which layers differ is unknown: none of the served layers could be compared"
    limit = _SAME if _is_float32(policy) else _SAME_LOW_PRECISION
    stale = {group: value for group, value in differences.items() if not value <= limit}
    if stale:
        listed = ", ".join(f"{group} (relative difference {value:.2g})" for group, value in stale.items())
        return tuple(stale), f"The served weights differ in: {listed}"
    if _is_peft(source):
        return ("LoRA adapter",), "The base weights agree, so the LoRA adapter differs: LoRA adapter"
    agreeing = ", ".join(differences)
    return (), f"The served weights agree ({agreeing}); look at the tokens, the attention mask or the precision"


def _is_float32(policy: Any) -> bool:
    import torch

    model = getattr(policy, "model", None)
    if model is not None:
        return bool(next(model.parameters()).dtype == torch.float32)
    return policy.engine.dtype == "float32"


async def _compare(policy: Any, tensors: list[tuple[str, torch.Tensor]]) -> dict[str, float]:
    """Return the largest relative difference of each layer group between a policy's weights and given ones."""
    if hasattr(policy, "engine"):
        if policy.engine.in_process:
            (result,) = await policy.engine.rpc("compare_weights", named_tensors=tensors)
        else:
            with tempfile.TemporaryDirectory(prefix="llm-envs-weights-") as folder:
                _save(tensors, Path(folder))
                result = (await policy.engine.rpc("compare_weights", folder=folder))[0]
        return dict(result)
    from trainers.policies.vllm_worker import layer_group

    reference = dict(tensors)
    differences: dict[str, float] = {}
    # With duplicates, so that a tied head shows as a layer of its own.
    for name, tensor in policy.model.named_parameters(remove_duplicate=False):
        name = name.removeprefix("base_model.model.").replace(".base_layer.", ".")
        expected = reference.get(name)
        if expected is None and name == "lm_head.weight":
            expected = reference.get("model.embed_tokens.weight")
        if expected is not None:
            own = tensor.detach().float()
            scale = float(expected.abs().max()) or 1.0
            difference = float((own - expected.to(own)).abs().max()) / scale
            group = layer_group(name)
            differences[group] = max(differences.get(group, 0.0), difference)
    return differences


def forward_logprobs(model: nn.Module) -> LearnerLogprobs:
    """Return a function that gives a model's log-probs of a completion, by one plain forward pass at temperature 1.

    Args:
        model: A causal language model. It is put into evaluation mode for the call and back into its own after it.
    """

    def logprobs(prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> list[float]:
        import torch

        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                device = next(model.parameters()).device
                ids = torch.tensor([[*prompt_ids, *completion_ids]], device=device)
                logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt_ids) - 1 : -1]
                table = logits.float().log_softmax(dim=-1)
                values: list[float] = table.gather(-1, ids[0, len(prompt_ids) :, None]).squeeze(-1).tolist()
        finally:
            model.train(training)
        return values

    return logprobs
