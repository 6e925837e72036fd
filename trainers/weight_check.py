"""The proof that a sampler computes with the learner's weights, and the search for the layers where it does not.

An update that is lost in part gives plausible text and wrong gradients. So the sampler's log-probs of its own tokens
are compared with the learner's, which catches every way to lose one; the served weights are compared after a failure
only, to say where to look.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from trainers.policies.base import Policy, PolicyError, Request, Sampling

if TYPE_CHECKING:
    import torch
    from torch import nn

Source: TypeAlias = Union["nn.Module", "Iterable[tuple[str, torch.Tensor]]", Any]
"""A learner's weights: a model, an object whose `model` is one, or pairs of name (the checkpoint's) and tensor."""

LearnerLogprobs: TypeAlias = Callable[[Sequence[int], Sequence[int]], Sequence[float]]
"""Prompt ids and completion ids to the log-prob of each completion token under the learner's weights."""

CHECK_PROMPTS = (
    "What is 2 + 3?",
    "Name three colours.",
    "Solve for x: 3x - 7 = 11. Show every step.",
    "Write one sentence about the sea, then count its words.",
)
"""Observations that `verify` uses if none are given."""

_SAME = 1e-5  # relative difference up to which a served layer counts as equal in float32
_SAME_LOW_PRECISION = 1e-2  # the same for 16-bit weights


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


def named_tensors(source: Source) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters of a model under the names of its checkpoint, detached; tied parameters come once.

    A peft model gives the weights of its base model. Anything else is taken as (name, tensor) pairs already.
    """
    from torch import nn

    source = learner_model(source)
    if not isinstance(source, nn.Module):
        return [(name, tensor.detach()) for name, tensor in source]
    return [
        (name.removeprefix("base_model.model.").replace(".base_layer.", "."), parameter.detach())
        for name, parameter in source.named_parameters()
        if ".lora_" not in name
    ]


def learner_model(source: Source) -> Source:
    """Return the model of a learner, or `source` itself if it is a model or pairs."""
    from torch import nn

    model = getattr(source, "model", None)
    return model if isinstance(model, nn.Module) and not isinstance(source, nn.Module) else source


def is_peft(source: object) -> bool:
    """Return whether a model is a peft model."""
    return hasattr(source, "peft_config")


def save_tensors(tensors: Iterable[tuple[str, torch.Tensor]], folder: Path) -> None:
    """Write weights as `model.safetensors` into a folder."""
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous().cpu() for name, tensor in tensors}, folder / "model.safetensors")


async def verify(
    policy: Policy,
    learner_logprobs: LearnerLogprobs,
    prompts: Sequence[str] = CHECK_PROMPTS,
    *,
    tol: float = 1e-4,
    source: Source | None = None,
    temperature: float = 1.0,
    max_tokens: int = 16,
    seed: int = 0,
) -> SyncReport:
    """Prove that a policy samples with the learner's weights.

    The policy answers each prompt; the log-probs that it reports for its own tokens must be those that the learner
    computes for them.

    Args:
        policy: The policy that samples.
        learner_logprobs: The learner's log-probs, e.g. `forward_logprobs(model)`.
        prompts: Observations, at least one.
        tol: Largest absolute difference of a log-prob that passes. 1e-4 suits float32 on both sides.
        source: The learner's weights. With them a failure names the layer group that differs.
        temperature: Temperature of the completions; the learner's log-probs must be those at the same one.
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
    sampling = Sampling(temperature=temperature, max_tokens=max_tokens)
    requests = [
        Request(prompt, "verify", sampling, seed=seed + index, key=(-1, index, 0, "verify"))
        for index, prompt in enumerate(prompts)
    ]
    differences: list[float] = []
    for (completion,) in await asyncio.gather(*map(policy.generate, requests)):
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


async def _differing_groups(policy: Policy, source: Source | None) -> tuple[tuple[str, ...], str]:
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
    if is_peft(learner_model(source)):
        return ("LoRA adapter",), "The served base weights agree, so it is the LoRA adapter that differs"
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
                save_tensors(tensors, Path(folder))
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


def forward_logprobs(model: Any, *, temperature: float = 1.0) -> LearnerLogprobs:
    """Return a function that gives a model's log-probs of a completion, by one plain forward pass.

    Args:
        model: A causal language model. It is put into evaluation mode for the call and back into its own after it.
        temperature: Divides the logits.
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
                table = (logits.float() / temperature).log_softmax(dim=-1)
                values: list[float] = table.gather(-1, ids[0, len(prompt_ids) :, None]).squeeze(-1).tolist()
        finally:
            model.train(training)
        return values

    return logprobs
