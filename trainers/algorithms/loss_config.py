"""The policy loss as data. Torch is not needed to read, check or change it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from trainers.algorithms.choices import check_choice

KINDS = ("ppo", "cispo", "reinforce")
RATIOS = ("token", "sequence")
REFERENCES = ("learner", "sampler")
AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
IMPORTANCE = ("off", "token", "sequence")
IMPORTANCE_MODES = ("truncate", "mask")
KL_ESTIMATORS = ("k1", "k2", "k3")


@dataclass(frozen=True, slots=True)
class LossConfig:
    r"""Which policy loss, and how tokens are averaged. The formulas are in :mod:`trainers.algorithms.losses`.

    With :math:`\rho` the ratio of the policy under training to the policy at the start of the update, A the advantage
    and w the truncated importance weight, the loss of one token is

    ==============  ======================================================================  ====================
    ``kind``        loss of a token                                                         source
    ==============  ======================================================================  ====================
    ``ppo``         −w·min(ρA, clip(ρ, 1−clip_low, 1+clip_high)A), dual clip for A < 0      arXiv 1707.06347
    ``cispo``       −w·sg[clip(ρ, 1−clip_low, 1+clip_high)]·A·log π                         arXiv 2506.13585
    ``reinforce``   −w·A·log π                                                              Williams, 1992
    ==============  ======================================================================  ====================

    and ``kl_coef``·KL(π, reference model) − ``entropy_coef``·entropy is added to it.

    Attributes:
        kind: One of the above. ``reinforce`` has no trust region: use it with one optimiser step a batch.
        ratio: ``token``, or ``sequence`` for GSPO (arXiv 2507.18071): ρ = exp(mean log-ratio of the turn).
        reference: Denominator of ρ. ``learner``: the learner's own log-probs before the first step of the update.
            ``sampler``: the log-probs that came with the tokens (saves a forward pass; ``importance`` must be off,
            since ρ then already holds that correction).
        clip_low: ε below 1. 1 or more: no lower bound.
        clip_high: ε above 1 (DAPO: 0.28).
        dual_clip: c > 1 bounds the loss of a token with A < 0 by −cA (arXiv 1912.09729), or None.
        aggregation: ``token-mean``: every token of the batch weighs the same (DAPO). ``seq-mean-token-mean``: every
            turn weighs the same (GRPO). ``seq-mean-token-sum``: turns by their length. ``seq-mean-token-sum-norm``:
            as before, over the constant ``norm_length`` (Dr. GRPO, arXiv 2503.20783).
        norm_length: Generation budget in tokens; needed by ``seq-mean-token-sum-norm`` only.
        balance_agents: Aggregate every agent's turns by themselves, then take the mean over the agents (weight
            1/n_agent), so that an agent that speaks often does not own the gradient.
        importance: Level of the weight w = π_learner/π_sampler, which corrects for a sampler whose numbers differ
            from the learner's. ``sequence`` is the product over the turn's tokens. ``off``: w = 1.
        importance_mode: ``truncate``: min(w, cap). ``mask``: w where w ≤ cap, else 0.
        importance_cap: The cap C (Yao et al., https://fengyao.notion.site/off-policy-rl; TRL 1.16 defaults to 3).
        kl_coef: β. 0: the reference model is not even loaded.
        kl_estimator: ``k1`` −log r, ``k2`` ½(log r)², ``k3`` r − 1 − log r with r = π_ref/π (Schulman, "Approximating
            KL divergence", 2020). k1's gradient is zero in expectation when used in the loss; it is meant for logs.
        entropy_coef: Weight of the entropy bonus.

    Raises:
        ValueError: At construction, if a mode name is unknown or a number is out of range.
    """

    kind: Literal["ppo", "cispo", "reinforce"] = "ppo"
    ratio: Literal["token", "sequence"] = "token"
    reference: Literal["learner", "sampler"] = "learner"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    aggregation: Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm"] = (
        "token-mean"
    )
    norm_length: int | None = None
    balance_agents: bool = False
    importance: Literal["off", "token", "sequence"] = "token"
    importance_mode: Literal["truncate", "mask"] = "truncate"
    importance_cap: float = 2.0
    kl_coef: float = 0.0
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    entropy_coef: float = 0.0

    def __post_init__(self) -> None:
        check_choice("loss kind", self.kind, KINDS)
        check_choice("ratio level", self.ratio, RATIOS)
        check_choice("ratio reference", self.reference, REFERENCES)
        check_choice("loss aggregation", self.aggregation, AGGREGATIONS)
        check_choice("importance level", self.importance, IMPORTANCE)
        check_choice("importance mode", self.importance_mode, IMPORTANCE_MODES)
        check_choice("KL estimator", self.kl_estimator, KL_ESTIMATORS)
        for name in ("clip_low", "clip_high", "kl_coef", "entropy_coef"):
            value = getattr(self, name)
            if not value >= 0:
                raise ValueError(f"{name} is {value}; it must not be negative")
        if self.dual_clip is not None and not self.dual_clip > 1:
            raise ValueError(f"dual_clip is {self.dual_clip}; it must be above 1, or None for no dual clip")
        if not self.importance_cap > 0:
            raise ValueError(
                f"importance_cap is {self.importance_cap}; it must be positive (importance='off' disables)"
            )
        if self.norm_length is not None and self.norm_length < 1:
            raise ValueError(f"norm_length is {self.norm_length}; it is the generation budget in tokens, at least 1")
        if self.reference == "sampler" and self.importance != "off":
            raise ValueError(
                f"reference='sampler' already divides by the sampler's probabilities; with importance="
                f"{self.importance!r} the correction would count twice. Set importance='off'"
            )

    @property
    def uses_ratio(self) -> bool:
        """Whether the loss compares the policy with the one at the start of the update."""
        return self.kind != "reinforce"

    @property
    def needs_sampler_logprobs(self) -> bool:
        """Whether every sample must bring the log-probs it was drawn with."""
        return self.importance != "off" or (self.uses_ratio and self.reference == "sampler")

    @property
    def needs_old_logprobs(self) -> bool:
        """Whether steps after the first need the learner's log-probs before the update."""
        return self.importance != "off" or (self.uses_ratio and self.reference == "learner")

    def with_max_tokens(self, max_tokens: int) -> LossConfig:
        """Return the loss with ``norm_length`` set to the generation budget, unless it is set already."""
        return self if self.norm_length is not None else replace(self, norm_length=max_tokens)
