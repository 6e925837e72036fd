r"""The policy loss: one plain masked sum.

Everything that averages (over tokens, turns, agents) is turned into **one weight a turn, fixed before micro-batching**
by :func:`turn_weights`. The loss of any part of a batch is then Σ weight·(loss of a token), and the parts add up to the
whole however the batch is split, ordered or padded.

Tokens come flat: M completion tokens of S turns in one row, without padding, with ``segments`` [M] naming the turn of
each. All log-probs are natural logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.algorithms.choices import check_choice
from trainers.algorithms.loss_config import KL_ESTIMATORS, LossConfig

__all__ = ["LossConfig", "LossMetrics", "kl_estimate", "policy_loss", "sequence_mean", "sequence_sum", "turn_weights"]


def turn_weights(
    lengths: Sequence[int],
    config: LossConfig,
    *,
    agents: Sequence[str] | None = None,
    sample_weights: Sequence[float] | None = None,
) -> NDArray[np.float64]:
    """Return the weight that every token of each turn has in the loss of the whole batch.

    With N turns of T_i tokens: ``token-mean`` 1/ΣT, ``seq-mean-token-mean`` 1/(N·T_i), ``seq-mean-token-sum`` 1/N,
    ``seq-mean-token-sum-norm`` 1/(N·norm_length). With ``balance_agents`` this is done for each agent's turns alone and
    divided by the number of agents.

    Args:
        lengths: Completion tokens of the N turns, all at least 1.
        config: The loss.
        agents: Agent of each turn; needed for ``balance_agents``.
        sample_weights: Factor of each turn (default 1). It does not change the denominators: a turn of weight 0 is
            counted and contributes nothing.

    Returns:
        Float64 weights, shape [N].

    Raises:
        ValueError: If there is no turn, a turn has no token, lengths differ, or ``norm_length`` is not set though
            the aggregation needs it.
    """
    tokens = np.asarray(lengths, dtype=np.float64)
    if tokens.size == 0:
        raise ValueError("There is no turn to weigh")
    if (tokens < 1).any():
        raise ValueError(f"Turn {int(np.argmin(tokens))} has no completion token; an empty sample cannot be trained on")
    if config.balance_agents and agents is None:
        raise ValueError("balance_agents needs the agent of every turn")
    names = [""] * tokens.size if agents is None or not config.balance_agents else list(agents)
    if len(names) != tokens.size:
        raise ValueError(f"{len(names)} agents for {tokens.size} turns")
    weights = np.empty_like(tokens)
    groups = sorted(set(names))
    for name in groups:
        members = np.array([other == name for other in names])
        weights[members] = _aggregation_weights(tokens[members], config) / len(groups)
    if sample_weights is not None:
        factors = np.asarray(sample_weights, dtype=np.float64)
        if factors.shape != tokens.shape:
            raise ValueError(f"{factors.size} sample weights for {tokens.size} turns")
        weights *= factors
    return weights


def _aggregation_weights(tokens: NDArray[np.float64], config: LossConfig) -> NDArray[np.float64]:
    n = tokens.size
    if config.aggregation == "token-mean":
        return np.full(n, 1.0 / tokens.sum())
    if config.aggregation == "seq-mean-token-mean":
        return 1.0 / (n * tokens)
    if config.aggregation == "seq-mean-token-sum":
        return np.full(n, 1.0 / n)
    if config.norm_length is None:
        raise ValueError(
            "aggregation 'seq-mean-token-sum-norm' divides by a constant: set norm_length to the generation budget "
            "(LossConfig.with_max_tokens(max_tokens))"
        )
    return np.full(n, 1.0 / (n * config.norm_length))


def sequence_sum(values: Tensor, segments: Tensor, size: int) -> Tensor:
    """Return the sum of ``values`` [M] over each of ``size`` segments, shape [size]."""
    return values.new_zeros(size).index_add(0, segments, values)


def sequence_mean(values: Tensor, segments: Tensor, size: int) -> Tensor:
    """Return the mean of ``values`` [M] over each of ``size`` segments, shape [size]."""
    return sequence_sum(values, segments, size) / sequence_sum(torch.ones_like(values), segments, size).clamp(min=1)


def kl_estimate(logprobs: Tensor, reference: Tensor, estimator: str) -> Tensor:
    """Estimate KL(π ‖ π_ref) at each sampled token (Schulman, "Approximating KL divergence", 2020).

    With log r = log π_ref − log π: k1 = −log r (unbiased), k2 = ½(log r)², k3 = r − 1 − log r (unbiased, ≥ 0).

    Args:
        logprobs: log π of the tokens.
        reference: log π_ref of the tokens, same shape.
        estimator: ``k1``, ``k2`` or ``k3``.

    Raises:
        ValueError: If the estimator is unknown.
    """
    check_choice("KL estimator", estimator, KL_ESTIMATORS)
    log_r = reference - logprobs
    if estimator == "k1":
        return -log_r
    if estimator == "k2":
        return 0.5 * log_r**2
    return torch.expm1(log_r) - log_r


@dataclass(slots=True)
class LossMetrics:
    """Sums over tokens that add up over micro-batches, and extremes.

    Attributes:
        tokens: Completion tokens seen.
        sums: Sum over tokens of each quantity.
        largest: Maxima.
        smallest: Minima.
    """

    tokens: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    smallest: dict[str, float] = field(default_factory=dict)

    def add(self, other: LossMetrics) -> None:
        """Take another part of the batch in."""
        self.tokens += other.tokens
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
        for name, value in other.largest.items():
            self.largest[name] = max(self.largest.get(name, value), value)
        for name, value in other.smallest.items():
            self.smallest[name] = min(self.smallest.get(name, value), value)

    def to_dict(self) -> dict[str, float]:
        """Return token means, ``<name>_max`` and ``<name>_min``."""
        means = {name: value / self.tokens for name, value in self.sums.items()} if self.tokens else {}
        return {
            **means,
            **{f"{name}_max": value for name, value in self.largest.items()},
            **{f"{name}_min": value for name, value in self.smallest.items()},
        }


def policy_loss(
    logprobs: Tensor,
    *,
    advantages: Tensor,
    weights: Tensor,
    segments: Tensor,
    config: LossConfig,
    old_logprobs: Tensor | None = None,
    sampler_logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    entropy: Tensor | None = None,
) -> tuple[Tensor, LossMetrics]:
    """Return the loss of some turns of a batch, to be summed over all of them, and its metrics.

    Args:
        logprobs: log π of M completion tokens, with gradient.
        advantages: A of each token, shape [M].
        weights: Weight of each token, shape [M]: the entry of :func:`turn_weights` of its turn.
        segments: Index 0…S−1 of the turn of each token, shape [M], int64. All tokens of a turn must be present.
        config: Which loss.
        old_logprobs: log π before the first step of the update, shape [M]. None: this is the first step, where it
            equals ``logprobs``. Not read with ``reference="sampler"``.
        sampler_logprobs: Log-probs the tokens were drawn with, shape [M].
        ref_logprobs: Log-probs under the reference model, shape [M]; needed if ``kl_coef`` > 0.
        entropy: Entropy of the policy at each token, shape [M]; needed with gradient if ``entropy_coef`` > 0.

    Returns:
        A scalar Σ weight·loss, and the metrics of these tokens: ``token_loss`` (unweighted mean over
        tokens), ``ratio``,
        ``clip_low`` and ``clip_high`` (share of tokens where the clip acts), ``dual_clip``, ``approx_kl``
        (k3 of old ‖ new), and where known ``entropy``, ``sampler_diff`` (|log π_learner − log π_sampler| before the
        update), ``importance``, ``importance_capped``, ``ref_kl``.

    Raises:
        ValueError: If a tensor that the configuration needs is missing.
    """
    if config.needs_sampler_logprobs and sampler_logprobs is None:
        raise ValueError(
            f"importance={config.importance!r} with reference={config.reference!r} needs the sampler's log-probs; "
            "sample with a policy that returns them, or set importance='off' and reference='learner'"
        )
    size = int(segments.max()) + 1 if segments.numel() else 0
    detached = logprobs.detach()
    old = detached if old_logprobs is None else old_logprobs.detach()
    reference = old
    if config.reference == "sampler" and sampler_logprobs is not None:
        reference = sampler_logprobs

    log_ratio = logprobs - reference
    ratio = torch.exp(log_ratio)
    if config.ratio == "sequence":
        ratio = torch.exp(sequence_mean(log_ratio, segments, size))[segments]
    low, high = 1.0 - config.clip_low, 1.0 + config.clip_high
    flags: dict[str, Tensor] = {}
    if config.kind == "reinforce":
        token_loss = -advantages * logprobs
    elif config.kind == "cispo":
        token_loss = -ratio.detach().clamp(low, high) * advantages * logprobs
        flags = {"clip_low": ratio < low, "clip_high": ratio > high}
    else:
        token_loss = torch.maximum(-ratio * advantages, -ratio.clamp(low, high) * advantages)
        flags = {"clip_low": (ratio < low) & (advantages < 0), "clip_high": (ratio > high) & (advantages > 0)}
        if config.dual_clip is not None:
            bound = -config.dual_clip * advantages
            flags["dual_clip"] = (advantages < 0) & (token_loss > bound)
            token_loss = torch.where(advantages < 0, torch.minimum(token_loss, bound), token_loss)

    means: dict[str, Tensor] = {}
    if config.importance != "off" and sampler_logprobs is not None:
        importance, capped = _importance(old - sampler_logprobs, segments, size, config)
        token_loss = token_loss * importance
        means["importance"] = importance
        flags["importance_capped"] = capped
    if config.kl_coef > 0:
        if ref_logprobs is None:
            raise ValueError(f"kl_coef={config.kl_coef} needs the reference model's log-probs")
        kl = kl_estimate(logprobs, ref_logprobs, config.kl_estimator)
        token_loss = token_loss + config.kl_coef * kl
        means["ref_kl"] = kl
    if config.entropy_coef > 0:
        if entropy is None:
            raise ValueError(f"entropy_coef={config.entropy_coef} needs the entropy of every token")
        token_loss = token_loss - config.entropy_coef * entropy

    if entropy is not None:
        means["entropy"] = entropy
    if sampler_logprobs is not None:
        means["sampler_diff"] = (old - sampler_logprobs).abs()
    token_log_ratio = detached - reference
    means |= {"token_loss": token_loss, "approx_kl": torch.expm1(token_log_ratio) - token_log_ratio}
    if config.uses_ratio:
        means["ratio"] = ratio
    return (weights * token_loss).sum(), _metrics(means, flags)


def _importance(log_weight: Tensor, segments: Tensor, size: int, config: LossConfig) -> tuple[Tensor, Tensor]:
    """Return w = π_learner/π_sampler of each token, cut at the cap, and where it was cut. No gradient flows."""
    log_weight = log_weight.detach()
    if config.importance == "sequence":
        log_weight = sequence_sum(log_weight, segments, size)[segments]
    weight = torch.exp(log_weight)
    capped = weight > config.importance_cap
    if config.importance_mode == "mask":
        return torch.where(capped, torch.zeros_like(weight), weight), capped
    return weight.clamp(max=config.importance_cap), capped


def _metrics(means: dict[str, Tensor], flags: dict[str, Tensor]) -> LossMetrics:
    metrics = LossMetrics(tokens=means["token_loss"].numel())
    if metrics.tokens == 0:
        return metrics
    for name, value in (means | flags).items():
        metrics.sums[name] = float(value.detach().double().sum())
    for name in ("ratio", "sampler_diff"):
        if name in means:
            metrics.largest[name] = float(means[name].detach().max())
    if "ratio" in means:
        metrics.smallest["ratio"] = float(means["ratio"].detach().min())
    return metrics
