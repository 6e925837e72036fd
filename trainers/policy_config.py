"""The settings of one policy of a training run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trainers.config_checks import Section
from trainers.policies.base import PolicySpecError, Sampling, parse_spec

__all__ = ["LEARNING", "LoraConfig", "PolicyConfig", "SamplingConfig", "engine_key"]

LEARNING = ("vllm", "hf")
"""Back ends whose samplers take new weights."""
SERVER = "openai"
SCRIPTED = ("oracle", "random", "minimax", "mcts")


class LoraConfig(Section):
    """A low-rank adapter in place of full fine-tuning (arXiv 2106.09685).

    Attributes:
        rank: Rank of the update.
        alpha: Scale; the update is multiplied by alpha / rank.
        dropout: Dropout on the adapter's input.
        target_modules: Which linear layers; ``all-linear`` or a list of names.
    """

    rank: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0, lt=1)
    target_modules: str | list[str] = "all-linear"


class SamplingConfig(Section):
    """How completions are drawn. Log-probs are those of the distribution that was drawn from."""

    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = -1
    max_tokens: int = Field(512, ge=1)
    stop: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> SamplingConfig:
        self.build()
        return self

    def build(self) -> Sampling:
        """The policies' own form of it."""
        return Sampling(**self.model_dump())


_Decay = Annotated[float, Field(ge=0, lt=1)]


class PolicyConfig(Section):
    """One policy of the team: its model, where it is sampled, and how it learns.

    Attributes:
        model: ``smollm2-135m``, a hub id or a local folder; of ``openai`` the name that the server knows. Left out for
            a policy without a model.
        backend: Where completions come from: ``vllm``, ``hf`` (transformers), or for a frozen policy ``openai`` (a
            server) or a scripted player: ``oracle``, ``random``, ``minimax``, ``mcts`` (``mcts:sims=500``).
        base_url: Address of the server of ``openai``, such as ``http://localhost:8000/v1``.
        trainable: False holds the weights still: the policy plays and never learns.
        lora: Train an adapter; None trains all weights.
        loss: Fields of :class:`~trainers.algorithms.loss_config.LossConfig` in which this policy's loss differs from
            the algorithm's, such as ``kl_coef``.
        learning_rate: Peak learning rate of AdamW.
        schedule: ``constant``, ``linear`` or ``cosine`` decay over the run. Like the warm-up it moves on with the
            optimiser's steps, of which an update in which all advantages of the policy are 0 takes none.
        warmup_updates: Updates of linear warm-up. Here as in the decay only updates count in which the policy learns.
        final_learning_rate: Where a decay ends, as a share of the peak.
        betas: AdamW's moment decays.
        weight_decay: AdamW's decoupled weight decay.
        max_grad_norm: The norm that the gradient of the policy is clipped to.
        epochs: Passes over a batch.
        minibatches: Optimiser steps a pass.
        minibatch_by: ``prompt`` keeps the turns of a prompt together in a minibatch, ``turn`` shuffles each by itself.
        packing: ``shared`` computes a prefix that turns have in common once, ``padded`` for each of them; the same but
            for rounding.
        micro_batch_tokens: Most tokens in one forward pass; bounds memory, changes no result.
        gradient_checkpointing: Recompute activations in the backward pass; slower, less memory.
        kernels: What computes the learner's norms, MLPs and rotary embeddings: ``torch``, or ``liger`` (fused kernels,
            on an NVIDIA GPU).
        sampling: How its completions are drawn.
        system_prompt: A system message before the observation; None leaves none.
        engine: Options of the back end (for vLLM: engine arguments such as ``max_model_len``).
    """

    model: str | None = None
    backend: str = "vllm"
    base_url: str | None = None
    trainable: bool = True
    lora: LoraConfig | None = None
    loss: dict[str, Any] = Field(default_factory=dict)
    learning_rate: float = Field(1e-6, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_updates: int = Field(0, ge=0)
    final_learning_rate: float = Field(0.0, ge=0, le=1)
    betas: tuple[_Decay, _Decay] = (0.9, 0.999)
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    minibatch_by: Literal["prompt", "turn"] = "prompt"
    packing: Literal["shared", "padded"] = "shared"
    micro_batch_tokens: int = Field(4096, ge=1)
    gradient_checkpointing: bool = False
    kernels: Literal["torch", "liger"] = "torch"
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    system_prompt: str | None = None
    engine: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> PolicyConfig:
        kind = self.backend.partition(":")[0]
        if kind not in (*LEARNING, SERVER, *SCRIPTED) or (":" in self.backend and kind not in SCRIPTED):
            raise ValueError(
                f"backend is {self.backend!r}; it is one of {', '.join((*LEARNING, SERVER, *SCRIPTED))} "
                "(mcts and minimax with options, such as `mcts:sims=500`)"
            )
        if self.scripted:
            self._check_scripted()
        elif self.model is None:
            raise ValueError(f"model is missing: the back end {self.backend!r} plays a model")
        if (self.base_url is not None) != (kind == SERVER):
            raise ValueError(
                "base_url is missing: the address of the server, such as `http://localhost:8000/v1`"
                if kind == SERVER
                else f"base_url has no effect with the back end {self.backend!r}; it is for `backend: openai`"
            )
        if self.trainable and kind not in LEARNING:
            raise ValueError(
                f"a policy with the back end {self.backend!r} cannot be trained: set `trainable: false`, or sample a "
                "model of your own with `vllm` or `hf`"
            )
        try:
            parse_spec(self.spec)
        except PolicySpecError as problem:
            raise ValueError(str(problem)) from problem
        return self

    def _check_scripted(self) -> None:
        for name in ("model", "system_prompt"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} has no effect: the back end {self.backend!r} plays without a model")

    @property
    def scripted(self) -> bool:
        """Whether it plays without a model."""
        return self.backend.partition(":")[0] in SCRIPTED

    @property
    def spec(self) -> str:
        """The policy spec, as :func:`trainers.policies.make_policy` takes it."""
        if self.scripted:
            return self.backend
        return f"{self.backend}:{self.model}" + (f"@{self.base_url}" if self.base_url is not None else "")


def engine_key(policy: PolicyConfig) -> tuple[str, str]:
    """Policies of one key have the same base model and engine options, so their adapters can share an engine."""
    # How prompts are written is the policy's own affair, not the engine's.
    options = {name: value for name, value in policy.engine.items() if name != "chat_template_kwargs"}
    return str(policy.model), repr(sorted(options.items()))
