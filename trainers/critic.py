"""A learned value of the state before a turn: a copy of the policy's decoder with one linear output.

The value is read at the last token of the prompt. A prompt holds all that its agent knows, so one critic a policy
judges every agent that the policy plays. The head starts at 0: the first advantages are the returns themselves.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainers.algorithms.critic_config import CriticConfig
from trainers.batching import plan_micro_batches
from trainers.ranks import Ranks
from trainers.trained import Trained
from trainers.update_metrics import NonFiniteGradient

__all__ = ["Critic", "value_losses"]

Prompts = Sequence[Sequence[int]]


def value_losses(values: Tensor, targets: Tensor, old_values: Tensor, clip: float | None) -> Tensor:
    """Return ½(V − R)² of each item; with ``clip`` the larger of that and ½(V_old + clip(V − V_old) − R)².

    Args:
        values: V, shape [B], with gradient.
        targets: R, shape [B].
        old_values: V before the update, shape [B].
        clip: ε, or None.
    """
    losses = 0.5 * (values - targets) ** 2
    if clip is None:
        return losses
    near = old_values + (values - old_values).clamp(-clip, clip)
    return torch.maximum(losses, 0.5 * (near - targets) ** 2)


class ValueForward:
    """A forward pass that ends in one value for each prompt.

    Attributes:
        model: Decoder and head, as ``backbone`` and ``head``.
    """

    def __init__(self, backbone: nn.Module, head: nn.Linear, autocast: torch.dtype | None) -> None:
        self.model = nn.ModuleDict({"backbone": backbone, "head": head})
        self._autocast = autocast

    def __call__(self, ids: Tensor, last: Tensor) -> Tensor:
        """Return the values of B prompts, shape [B], in the precision of the head.

        Args:
            ids: Their tokens, padded with id 0 on the right, shape [B, T].
            last: Index of the last token of each, shape [B].
        """
        positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        mask = (positions <= last.unsqueeze(1)).long()
        precision = (
            torch.autocast(ids.device.type, dtype=self._autocast) if self._autocast else contextlib.nullcontext()
        )
        with precision:
            output = self.model["backbone"](input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        states = output.last_hidden_state[torch.arange(len(ids), device=ids.device), last]
        head = self.model["head"]
        values: Tensor = head(states.to(head.weight.dtype)).squeeze(-1)
        return values


class Critic(Trained):
    """The value function of one policy. A decoder that is not trained is no part of its state.

    Nothing is random in it but the split into minibatches: dropout is off, and the head starts at 0.

    Args:
        model: The causal language model of the policy, before any adapter is put on it. Its decoder is copied.
        config: How it learns.
        name: Of the policy, for messages.
        micro_batch_tokens: Upper bound on the padded tokens of one forward pass. The result does not depend on it.
        dtype: ``float32``, ``float64`` or ``bfloat16`` (products under autocast, trained weights in float32).
        seed: Of the split into minibatches.
        ranks: How work and weights are divided over processes; not at all if not given.

    Raises:
        ValueError: If ``dtype`` is unknown.
    """

    part = "critic"

    def __init__(
        self,
        model: Any,
        config: CriticConfig | None = None,
        *,
        name: str = "policy",
        micro_batch_tokens: int = 4096,
        dtype: str = "float32",
        seed: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(ranks)
        if dtype not in ("float32", "float64", "bfloat16"):
            raise ValueError(f"dtype is {dtype!r}; it is float32, float64 or bfloat16")
        self.config = config or CriticConfig()
        self.name = name
        self._seed = seed
        self._micro_batch_tokens = micro_batch_tokens
        half = dtype == "bfloat16"
        weights = torch.float32 if half else getattr(torch, dtype)
        backbone = copy.deepcopy(model.base_model).eval()
        backbone = backbone.to(weights) if self.config.train_backbone or not half else backbone
        backbone.requires_grad_(self.config.train_backbone)
        device = next(backbone.parameters()).device
        head = nn.utils.skip_init(nn.Linear, int(backbone.config.hidden_size), 1, device=device, dtype=weights)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        forward = ValueForward(backbone, head, torch.bfloat16 if half else None)
        self._forward = self._ranks.shard(forward)
        self._trainable = {name: p for name, p in forward.model.named_parameters() if p.requires_grad}
        self._optimizer = torch.optim.AdamW(
            list(self._trainable.values()), lr=self.config.learning_rate, weight_decay=0.0
        )

    @torch.no_grad()
    def values(self, prompts: Prompts) -> NDArray[np.float64]:
        """Return the value of each of N prompts, shape [N].

        Raises:
            ValueError: If a prompt is empty.
        """
        found: dict[int, Tensor] = {}
        for part, counts in self._plan(prompts, range(len(prompts))):
            values = self._evaluate([prompts[i] for i in part]).double().cpu()
            if counts:
                found |= zip(part, values, strict=True)
        found = self._ranks.gather(found)
        return np.array([float(found[i]) for i in range(len(prompts))])

    def update(
        self, prompts: Prompts, targets: NDArray[np.float64], old_values: NDArray[np.float64]
    ) -> dict[str, float]:
        """Fit the values of N prompts to their targets.

        Args:
            prompts: The prompts.
            targets: What should have been said of them, shape [N].
            old_values: What was said, shape [N].

        Returns:
            ``value_loss`` (mean of the steps), ``value_grad_norm`` (before clipping, mean of the steps) and
            ``explained_variance`` (1 − Var(R − V_old)/Var(R); left out where the targets are all equal).

        Raises:
            ValueError: If there is no prompt, lengths differ, or a number is not finite.
            NonFiniteGradient: If the loss or the gradient is not finite; that step was not taken.
        """
        n = len(prompts)
        if n == 0 or targets.shape != (n,) or old_values.shape != (n,):
            raise ValueError(f"{n} prompts, targets of shape {targets.shape}, values of shape {old_values.shape}")
        if not (np.isfinite(targets).all() and np.isfinite(old_values).all()):
            raise ValueError(f"A target or a value of the critic of {self.name!r} is not finite")
        losses, norms = [], []
        minibatches = min(self.config.minibatches, n)
        for epoch in range(self.config.epochs):
            order = np.random.default_rng([self._seed, self.updates, epoch]).permutation(n)
            for part in np.array_split(order, minibatches):
                loss, norm = self._step(prompts, targets, old_values, [int(i) for i in part])
                losses.append(loss)
                norms.append(norm)
        self.updates += 1
        metrics = {"value_loss": float(np.mean(losses)), "value_grad_norm": float(np.mean(norms))}
        if targets.var() > 0:
            metrics["explained_variance"] = float(1 - (targets - old_values).var() / targets.var())
        return metrics

    def _plan(self, prompts: Prompts, chosen: Sequence[int]) -> list[tuple[list[int], bool]]:
        """The micro-batches of the chosen prompts that are this process's, and whether each counts."""
        lengths = [len(prompts[i]) for i in chosen]
        if not all(lengths):
            raise ValueError("A prompt has no token; there is no state to value")
        # Padded to the longest, the rows of each process: in one process all of them.
        rows = math.ceil(len(lengths) / self._ranks.size)
        budget = self._ranks.budget(rows * self._ranks.size * max(lengths, default=0), self._micro_batch_tokens)
        parts = self._ranks.deal(plan_micro_batches(lengths, budget))
        return [([chosen[j] for j in part], counts) for part, counts in parts]

    def _evaluate(self, prompts: Prompts) -> Tensor:
        """Return the values of prompts, shape [B], in the precision of the head."""
        width = max(map(len, prompts))
        ids = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts], device=self.device)
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self.device)
        return self._forward(ids, last)

    def _step(
        self, prompts: Prompts, targets: NDArray[np.float64], old_values: NDArray[np.float64], chosen: list[int]
    ) -> tuple[float, float]:
        """Take one optimiser step on the mean loss of the chosen prompts; return that loss and the gradient's norm."""
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for part, counts in self._plan(prompts, chosen):
            values = self._evaluate([prompts[i] for i in part])
            wanted = torch.as_tensor(targets[part]).to(values)
            losses = value_losses(values, wanted, torch.as_tensor(old_values[part]).to(values), self.config.value_clip)
            loss = losses.sum() / len(chosen)
            if counts:
                loss.backward()
                total += float(loss.detach())
            else:
                (0.0 * loss).backward()
        total = self._ranks.total(total)
        gradients = [p.grad for p in self._trainable.values() if p.grad is not None]
        norm = self._ranks.norm(gradients)
        if not (math.isfinite(total) and math.isfinite(norm)):
            self._optimizer.zero_grad(set_to_none=True)
            raise NonFiniteGradient(f"critic of {self.name}", self.steps, total, norm)
        bound = self.config.max_grad_norm
        if bound is not None and norm > bound:
            for gradient in gradients:
                gradient.mul_(bound / (norm + 1e-6))
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return total, norm
