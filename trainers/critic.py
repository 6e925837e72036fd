"""A learned value of the state before a turn: a copy of the policy's decoder with one linear output.

The value is read at the last token of the prompt. A prompt holds all that its agent knows, so one critic a policy
judges every agent that the policy plays. The head starts at 0: the first advantages are the returns themselves.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainers.algorithms.critic_config import CriticConfig
from trainers.batching import plan_micro_batches
from trainers.learner import NonFiniteGradient

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


class Critic:
    """The value function of one policy.

    Nothing is random in it but the split into minibatches: dropout is off, and the head starts at 0.

    Args:
        model: The causal language model of the policy, before any adapter is put on it. Its decoder is copied.
        config: How it learns.
        name: Of the policy, for messages.
        micro_batch_tokens: Upper bound on the padded tokens of one forward pass. The result does not depend on it.
        dtype: ``float32``, ``float64`` or ``bfloat16`` (products under autocast, trained weights in float32).
        seed: Of the split into minibatches.

    Raises:
        ValueError: If ``dtype`` is unknown.
    """

    def __init__(
        self,
        model: Any,
        config: CriticConfig | None = None,
        *,
        name: str = "policy",
        micro_batch_tokens: int = 4096,
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        if dtype not in ("float32", "float64", "bfloat16"):
            raise ValueError(f"dtype is {dtype!r}; it is float32, float64 or bfloat16")
        self.config = config or CriticConfig()
        self.name = name
        self._seed = seed
        self._micro_batch_tokens = micro_batch_tokens
        half = dtype == "bfloat16"
        self._autocast = torch.bfloat16 if half else None
        weights = torch.float32 if half else getattr(torch, dtype)
        backbone = copy.deepcopy(model.base_model).eval()
        self._backbone = backbone.to(weights) if self.config.train_backbone or not half else backbone
        self._backbone.requires_grad_(self.config.train_backbone)
        hidden = int(self._backbone.config.hidden_size)
        head = nn.utils.skip_init(nn.Linear, hidden, 1, device=next(self._backbone.parameters()).device, dtype=weights)
        self._head = nn.init.zeros_(head.weight), nn.init.zeros_(head.bias)
        trained = {f"backbone.{n}": p for n, p in self._backbone.named_parameters() if p.requires_grad}
        self._trainable: dict[str, nn.Parameter] = {**trained, "head.weight": head.weight, "head.bias": head.bias}
        self._optimizer = torch.optim.AdamW(
            list(self._trainable.values()), lr=self.config.learning_rate, weight_decay=0.0
        )
        self.steps = 0
        """Optimiser steps taken since the start of the run."""
        self.updates = 0
        """Calls of :meth:`update` that took their steps."""

    @torch.no_grad()
    def values(self, prompts: Prompts) -> NDArray[np.float64]:
        """Return the value of each of N prompts, shape [N].

        Raises:
            ValueError: If a prompt is empty.
        """
        result = np.empty(len(prompts))
        for part in self._plan(prompts, range(len(prompts))):
            result[part] = self._forward([prompts[i] for i in part]).double().cpu().numpy()
        return result

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

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to go on bit for bit, on the CPU; ``torch.load(…, weights_only=True)`` reads it.

        A decoder that is not trained is no part of it: build the critic from the same model.
        """
        return {
            "weights": {name: p.detach().to("cpu", copy=True) for name, p in self._trainable.items()},
            "optimizer": {
                str(i): {key: value.detach().to("cpu", copy=True) for key, value in moments.items()}
                for i, moments in self._optimizer.state_dict()["state"].items()
            },
            "steps": self.steps,
            "updates": self.updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, into a critic that was built in the same way.

        Raises:
            ValueError: If the weights differ in name or shape. Nothing is changed then.
        """
        weights: Mapping[str, Tensor] = state["weights"]
        ours = {name: tuple(p.shape) for name, p in self._trainable.items()}
        theirs = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        if ours != theirs:
            odd = sorted(set(ours.items()) ^ set(theirs.items()))
            raise ValueError(f"The saved weights are not those of this critic; they differ in {odd[:4]}")
        with torch.no_grad():
            for name, parameter in self._trainable.items():
                parameter.copy_(weights[name])
        moments = {int(i): dict(values) for i, values in state["optimizer"].items()}
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self._optimizer.zero_grad(set_to_none=True)
        self.steps = int(state["steps"])
        self.updates = int(state["updates"])

    def _plan(self, prompts: Prompts, chosen: Sequence[int]) -> list[list[int]]:
        lengths = [len(prompts[i]) for i in chosen]
        if not all(lengths):
            raise ValueError("A prompt has no token; there is no state to value")
        return [[chosen[j] for j in part] for part in plan_micro_batches(lengths, self._micro_batch_tokens)]

    def _forward(self, prompts: Prompts) -> Tensor:
        """Return the values of prompts, shape [B], in the precision of the head."""
        weight, bias = self._head
        width = max(map(len, prompts))
        ids = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in prompts], device=weight.device)
        last = torch.tensor([len(prompt) - 1 for prompt in prompts], device=weight.device)
        positions = torch.arange(width, device=weight.device).expand_as(ids)
        mask = (positions <= last.unsqueeze(1)).long()
        precision = (
            torch.autocast(weight.device.type, dtype=self._autocast) if self._autocast else contextlib.nullcontext()
        )
        with precision:
            output = self._backbone(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        states = output.last_hidden_state[torch.arange(len(prompts), device=weight.device), last]
        return nn.functional.linear(states.to(weight.dtype), weight, bias).squeeze(-1)

    def _step(
        self, prompts: Prompts, targets: NDArray[np.float64], old_values: NDArray[np.float64], chosen: list[int]
    ) -> tuple[float, float]:
        """Take one optimiser step on the mean loss of the chosen prompts; return that loss and the gradient's norm."""
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for part in self._plan(prompts, chosen):
            values = self._forward([prompts[i] for i in part])
            wanted = torch.as_tensor(targets[part]).to(values)
            losses = value_losses(values, wanted, torch.as_tensor(old_values[part]).to(values), self.config.value_clip)
            loss = losses.sum() / len(chosen)
            loss.backward()
            total += float(loss.detach())
        gradients = [p.grad for p in self._trainable.values() if p.grad is not None]
        norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]).double()))
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
