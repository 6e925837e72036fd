"""Settings of a learner as data. Torch is not needed to read, check or change them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from trainers.algorithms.choices import check_choice

SCHEDULES = ("constant", "linear", "cosine")
DTYPES = ("float32", "float64", "bfloat16")
PACKINGS = ("shared", "padded")
MINIBATCH_UNITS = ("prompt", "turn")


@dataclass(frozen=True, slots=True)
class LearnerConfig:
    """How one policy's weights are trained.

    Attributes:
        lr: Peak learning rate of AdamW.
        betas: Decay rates of its two moments.
        adam_eps: Its ε.
        weight_decay: Decoupled decay of matrices; vectors (norms, biases) are not decayed.
        max_grad_norm: Bound on the global gradient norm; None does not clip.
        schedule: What follows the warm-up: ``constant``, or ``linear`` or ``cosine`` down to ``min_lr_ratio`` · lr at
            ``total_steps``.
        warmup_steps: Optimiser steps over which the rate rises linearly from lr/warmup_steps to lr.
        total_steps: Optimiser steps of the whole run; needed by ``linear`` and ``cosine``.
        min_lr_ratio: Last learning rate over the peak.
        packing: ``shared``: a prefix that turns have in common is computed once for all of them (the prompt of a group,
            the history of an episode), as :mod:`trainers.packing` lays it out. ``padded``: every turn is a row of its
            own. Both give the same numbers to rounding; a model that cannot be given shared prefixes is found out at
            construction and padded, with a warning.
        micro_batch_tokens: Upper bound on the padded tokens (rows × longest row, prompts included) of one forward
            pass. A single turn that is longer makes a micro-batch of its own. The result does not depend on it.
        minibatch_by: What is shuffled into the minibatches of an update. ``prompt``: turns of the same prompt stay
            together, but for those at the border of two minibatches, so that the prompt is computed once. ``turn``:
            each turn by itself. They differ only where turns share a prompt.
        logits_chunk: Completion tokens whose logits exist at once; where there are more, logits are computed again in
            the backward pass. None: as many as make 0.2 GiB in float32 (1,024 at a vocabulary of 49,152).
        temperature: Sampling temperature of the policy: log-probs are those of softmax(logits/temperature), as the
            sampler reports them.
        gradient_checkpointing: Recompute every layer in the backward pass: less memory, about a third more time.
        dtype: What is computed in. With ``bfloat16`` the weights that are trained are kept in float32 all the same (a
            step of AdamW is far below the 8 bits of a bfloat16 weight and would be rounded away) and products are
            taken under autocast; the frozen weights of a LoRA run are bfloat16. On a CPU without native bfloat16,
            float32 is the faster one as well.
        seed: Seeds what is random in a learner: the split into minibatches, dropout, the start of LoRA weights.

    Raises:
        ValueError: At construction, if a name is unknown or a number is out of range.
    """

    lr: float = 1e-6
    betas: tuple[float, float] = (0.9, 0.999)
    adam_eps: float = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: float | None = 1.0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: int = 0
    total_steps: int | None = None
    min_lr_ratio: float = 0.0
    packing: Literal["shared", "padded"] = "shared"
    micro_batch_tokens: int = 4096
    minibatch_by: Literal["prompt", "turn"] = "prompt"
    logits_chunk: int | None = None
    temperature: float = 1.0
    gradient_checkpointing: bool = False
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("packing", self.packing, PACKINGS)
        check_choice("minibatch_by", self.minibatch_by, MINIBATCH_UNITS)
        for name, minimum in (("warmup_steps", 0), ("micro_batch_tokens", 1), ("logits_chunk", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < minimum:
                raise ValueError(f"{name} is {value}; it must be at least {minimum}")
        for name in ("lr", "weight_decay", "adam_eps"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value}; it must be finite and not negative")
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; a policy that is trained is sampled above 0")
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(f"max_grad_norm is {self.max_grad_norm}; it must be positive, or None for no clipping")
        if not 0 <= self.min_lr_ratio <= 1:
            raise ValueError(f"min_lr_ratio is {self.min_lr_ratio}; it is between 0 and 1")
        if self.schedule != "constant" and self.total_steps is None:
            raise ValueError(f"schedule={self.schedule!r} needs total_steps")
        if self.total_steps is not None and self.total_steps <= self.warmup_steps:
            raise ValueError(f"total_steps={self.total_steps} must be above warmup_steps={self.warmup_steps}")

    def lr_at(self, step: int) -> float:
        """Return the learning rate of optimiser step ``step`` (from 0).

        >>> LearnerConfig(lr=1.0, warmup_steps=2, schedule="linear", total_steps=4).lr_at(3)
        0.5
        """
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        if self.schedule == "constant" or self.total_steps is None:
            return self.lr
        done = min(1.0, (step - self.warmup_steps) / (self.total_steps - self.warmup_steps))
        shape = 1 - done if self.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
        return self.lr * (self.min_lr_ratio + (1 - self.min_lr_ratio) * shape)
