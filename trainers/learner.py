"""One policy's torch side: exact gradients over micro-batches, their norm per agent, AdamW, a state that resumes.

The loss of an optimiser step is one weighted sum over all completion tokens of its minibatch
(:mod:`trainers.algorithms.losses`), so micro-batches only bound memory: their size changes the result by rounding.
Where one policy serves several agents, gradients are taken agent by agent and added, which yields each agent's own
gradient norm and names the agent whose gradient is not finite.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.algorithms.losses import LossConfig, LossMetrics, policy_loss, turn_weights
from trainers.batching import MicroBatch, Sample, model_inputs, plan_micro_batches
from trainers.learner_config import LearnerConfig
from trainers.logprobs import CompletionForward
from trainers.lora import add_lora, merged_named_tensors
from trainers.packing import plan_trees
from trainers.ranks import Forward, Ranks
from trainers.trained import Trained
from trainers.update_metrics import NonFiniteGradient, Step, UpdateMetrics

__all__ = ["Learner", "LearnerConfig", "NonFiniteGradient", "Sample", "UpdateMetrics"]


class Learner(Trained):
    """Trains one causal language model.

    Args:
        model: A transformers causal language model. It is trained in place, in the precision that ``config.dtype``
            describes.
        config: Optimiser, micro-batches, precision.
        loss: The policy loss.
        lora: A ``peft.LoraConfig``, or its arguments, to train adapters only; None trains all weights.
        ref_model: Reference for the KL term. By default the adapter-less model with LoRA, else a frozen copy of
            ``model`` as it is now. Only used, and only copied, if ``loss.kl_coef`` > 0 or ``reference``.
        reference: Keep a reference whatever the loss, for :meth:`reference_kl`.
        ranks: How work and weights are divided over processes; not at all if not given.

    Raises:
        ValueError: If the LoRA configuration has a feature whose weights cannot be merged exactly (DoRA,
            ``modules_to_save``), or the model has no trainable weight.
    """

    part = "learner"

    def __init__(
        self,
        model: Any,
        config: LearnerConfig | None = None,
        loss: LossConfig | None = None,
        *,
        lora: Any | Mapping[str, Any] | None = None,
        ref_model: Any | None = None,
        reference: bool = False,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(ranks)
        self.config = config or LearnerConfig()
        self.loss = loss or LossConfig()
        self._lora = lora is not None
        half = self.config.dtype == "bfloat16"
        self._autocast = torch.bfloat16 if half else None
        model = model.to(torch.float32 if half and not self._lora else getattr(torch, self.config.dtype))
        self._ref: Forward | None = None
        self._has_reference = reference or self.loss.kl_coef > 0
        if self._has_reference and (ref_model is not None or not self._lora):
            frozen = (copy.deepcopy(model) if ref_model is None else ref_model.to(model.dtype)).requires_grad_(False)
            self._ref = self._forward_of(frozen.to(model.device).eval())
        self.model = add_lora(model, lora, self.config.seed) if self._lora else model
        self.model.eval()
        if self.config.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._forward = self._forward_of(self.model)
        self._trainable = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        if not self._trainable:
            raise ValueError("The model has no trainable weight: every parameter has requires_grad=False")
        matrices = [p for p in self._trainable.values() if p.ndim >= 2]
        vectors = [p for p in self._trainable.values() if p.ndim < 2]
        groups = [
            {"params": params, "weight_decay": decay}
            for params, decay in ((matrices, self.config.weight_decay), (vectors, 0.0))
            if params
        ]
        self._optimizer = torch.optim.AdamW(
            groups, lr=self.config.lr, betas=self.config.betas, eps=self.config.adam_eps
        )

    def logprobs(self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the log-prob of every completion token under the current weights, without gradient.

        Args:
            prompt_ids: N prompts.
            completion_ids: N completions, each of at least one token.

        Returns:
            N tensors on the CPU, each as long as its completion.

        Raises:
            ValueError: If the numbers differ, or a prompt or completion is empty.
        """
        if len(prompt_ids) != len(completion_ids):
            raise ValueError(f"{len(prompt_ids)} prompts for {len(completion_ids)} completions")
        samples = [Sample(p, c, None, 0.0, "") for p, c in zip(prompt_ids, completion_ids, strict=True)]
        for i, sample in enumerate(samples):
            sample.check(f"Item {i}")
        return self._logprobs(samples, self._forward)

    def reference_kl(self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]) -> list[float]:
        """Return Σ (log π − log π_ref) over the tokens of each completion: the k1 estimate of the divergence.

        Args:
            prompt_ids: N prompts.
            completion_ids: N completions, each of at least one token.

        Raises:
            ValueError: If there is no reference (``reference=True`` keeps one), the numbers differ, or a prompt or
                completion is empty.
        """
        if not self._has_reference:
            raise ValueError("This learner has no reference model: build it with reference=True")
        ours = self.logprobs(prompt_ids, completion_ids)
        samples = [Sample(p, c, None, 0.0, "") for p, c in zip(prompt_ids, completion_ids, strict=True)]
        theirs = self._reference_logprobs(samples)
        return [float((one.double() - other.double()).sum()) for one, other in zip(ours, theirs, strict=True)]

    def update(self, samples: Sequence[Sample], *, epochs: int = 1, minibatches: int = 1) -> UpdateMetrics:
        """Train on a batch of turns.

        Takes epochs × minibatches optimiser steps. With one minibatch the order of the samples has no influence; with
        several, each epoch shuffles them with a generator of its own (seed, update, epoch), by default so that the
        turns of one prompt stay together.

        Args:
            samples: The turns, each once.
            epochs: Passes over the batch.
            minibatches: Parts of the batch, of almost equal numbers of turns; one optimiser step each.

        Returns:
            Metrics of all steps.

        Raises:
            ValueError: If there is no sample, fewer samples than minibatches, or a sample cannot be trained on.
            NonFiniteGradient: If an agent's loss or gradient is not finite. Earlier steps of this update stand, the
                failing one was not taken.
        """
        if not samples:
            raise ValueError("There is no sample to train on. Skip the update of this policy")
        if epochs < 1 or not 1 <= minibatches <= len(samples):
            raise ValueError(f"epochs={epochs}, minibatches={minibatches} do not fit {len(samples)} samples")
        for i, sample in enumerate(samples):
            sample.check(f"Sample {i}")
            if self.loss.needs_sampler_logprobs and sample.sampler_logprobs is None:
                raise ValueError(
                    f"Sample {i} (agent {sample.agent!r}) has no sampler log-probs, which importance="
                    f"{self.loss.importance!r} needs. Set importance='off' and reference='learner'"
                )
        orders = [self._order(samples, epoch, minibatches) for epoch in range(epochs)]
        old: dict[int, Tensor] | None = None
        if epochs * minibatches > 1 and self.loss.needs_old_logprobs:
            # At the first step they are the current ones; without another pass they are not asked for again.
            first = set(orders[0][0]) if epochs == 1 else set()
            later = [i for i in range(len(samples)) if i not in first]
            values = self._logprobs([samples[i] for i in later], self._forward)
            old = dict(zip(later, values, strict=True))
        ref = self._reference_logprobs(samples) if self.loss.kl_coef > 0 else None
        metrics: dict[str, LossMetrics] = {}
        steps: list[Step] = []
        for chosen in [part for order in orders for part in order]:
            known = old if old is not None and chosen[0] in old else None
            steps.append(self._step(samples, chosen, known, ref, metrics))
        self.updates += 1
        return UpdateMetrics.of(samples, steps, self._ranks.merge(metrics), self.config.lr_at(self.steps - 1))

    def full_named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights under the names of the plain model, LoRA merged in: what a sampler loads.

        A weight that is tied to another is yielded once, under its first name. The model itself is not changed.
        """
        if self._lora:
            yield from merged_named_tensors(self.model)
            return
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model where ``from_pretrained`` finds it; with LoRA merged, the adapter alone in ``adapter/``."""
        if self._lora:
            self.model.save_pretrained(Path(folder) / "adapter")
            merged = {name: tensor.contiguous() for name, tensor in self.full_named_tensors()}
            self.model.get_base_model().save_pretrained(folder, state_dict=merged)
        else:
            self.model.save_pretrained(folder)

    def _forward_of(self, model: Any) -> Forward:
        return self._ranks.shard(
            CompletionForward(
                model,
                temperature=self.config.temperature,
                chunk=self.config.logits_chunk,
                autocast=self._autocast,
                share=self.config.packing == "shared",
            )
        )

    def _order(self, samples: Sequence[Sample], epoch: int, minibatches: int) -> list[list[int]]:
        """Split the samples into the minibatches of an epoch."""
        if minibatches == 1:
            return [list(range(len(samples)))]
        groups: dict[object, list[int]] = {}
        for i, sample in enumerate(samples):
            groups.setdefault(tuple(sample.prompt_ids) if self.config.minibatch_by == "prompt" else i, []).append(i)
        alike = list(groups.values())
        shuffled = np.random.default_rng([self.config.seed, self.updates, epoch]).permutation(len(alike))
        order = np.array([i for group in shuffled for i in alike[group]])
        return [part.tolist() for part in np.array_split(order, minibatches)]

    def _micro_batches(
        self, samples: Sequence[Sample], chosen: Sequence[int], forward: Forward
    ) -> Iterator[tuple[list[int], MicroBatch, bool]]:
        """Yield the micro-batches of the chosen samples that are this process's.

        Each comes with the indices of its samples in its order, and whether it counts (:meth:`Ranks.deal`).
        """
        prompts = [samples[i].prompt_ids for i in chosen]
        completions = [samples[i].completion_ids for i in chosen]
        lengths = [len(p) + len(c) - 1 for p, c in zip(prompts, completions, strict=True)]
        budget = self._ranks.budget(sum(lengths), self.config.micro_batch_tokens)
        if not forward.shares:
            for part, counts in self._ranks.deal(plan_micro_batches(lengths, budget)):
                batch = MicroBatch.of([prompts[j] for j in part], [completions[j] for j in part], self.device)
                yield [chosen[j] for j in part], batch, counts
            return
        inputs = [model_inputs(p, c) for p, c in zip(prompts, completions, strict=True)]
        plan = plan_trees(inputs, budget, forward.attention_cost, forward.overhead)
        for rows, counts in self._ranks.deal(plan):
            part = [j for row in rows for tree in row for j in tree.members]
            yield [chosen[j] for j in part], MicroBatch.sharing(inputs, completions, rows, self.device), counts

    @torch.no_grad()
    def _logprobs(self, samples: Sequence[Sample], forward: Forward) -> list[Tensor]:
        found: dict[int, Tensor] = {}
        for part, batch, _ in self._micro_batches(samples, range(len(samples)), forward):
            values, _ = forward(batch)
            found |= zip(part, values.cpu().split(batch.lengths), strict=True)
        found = self._ranks.gather(found)
        return [found[i] for i in range(len(samples))]

    def _reference_logprobs(self, samples: Sequence[Sample]) -> list[Tensor]:
        if self._ref is not None:
            return self._logprobs(samples, self._ref)
        with self.model.disable_adapter():
            return self._logprobs(samples, self._forward)

    def _step(
        self,
        samples: Sequence[Sample],
        chosen: Sequence[int],
        old: Mapping[int, Tensor] | None,
        ref: Sequence[Tensor] | None,
        metrics: dict[str, LossMetrics],
    ) -> Step:
        """Take one optimiser step on the chosen samples."""
        weights = turn_weights(
            [len(samples[i].completion_ids) for i in chosen],
            self.loss,
            agents=[samples[i].agent for i in chosen],
            sample_weights=[samples[i].weight for i in chosen],
        )
        weight_of = dict(zip(chosen, weights.tolist(), strict=True))
        agents = sorted({samples[i].agent for i in chosen})
        parameters = list(self._trainable.values())
        total: list[Tensor | None] = [None] * len(parameters)
        norms: dict[str, float] = {}
        found: dict[str, LossMetrics] = {}
        loss = 0.0
        self._optimizer.zero_grad(set_to_none=True)
        with self._training():
            for agent in agents:
                found[agent] = LossMetrics()
                agent_loss = 0.0
                own = [i for i in chosen if samples[i].agent == agent]
                for part, batch, counts in self._micro_batches(samples, own, self._forward):
                    weighed = weight_of if counts else dict.fromkeys(part, 0.0)
                    part_loss, part_metrics = self._backward(samples, part, batch, weighed, old, ref)
                    if counts:
                        agent_loss += part_loss
                        found[agent].add(part_metrics)
                agent_loss = self._ranks.total(agent_loss)
                norms[agent] = self._ranks.norm([p.grad for p in parameters])
                if not (math.isfinite(agent_loss) and math.isfinite(norms[agent])):
                    self._optimizer.zero_grad(set_to_none=True)
                    raise NonFiniteGradient(agent, self.steps, agent_loss, norms[agent])
                loss += agent_loss
                for i, parameter in enumerate(parameters):
                    total[i] = _add(total[i], parameter.grad)
                    parameter.grad = None
        norm = norms[agents[0]] if len(agents) == 1 else self._ranks.norm(total)
        scale = 1.0 if self.config.max_grad_norm is None else min(1.0, self.config.max_grad_norm / (norm + 1e-6))
        for parameter, gradient in zip(parameters, total, strict=True):
            parameter.grad = gradient if gradient is None or scale == 1.0 else gradient.mul_(scale)
        for group in self._optimizer.param_groups:
            group["lr"] = self.config.lr_at(self.steps)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        for agent, agent_metrics in found.items():
            metrics.setdefault(agent, LossMetrics()).add(agent_metrics)
        return Step(loss, norm, norms)

    def _backward(
        self,
        samples: Sequence[Sample],
        part: Sequence[int],
        batch: MicroBatch,
        weight_of: Mapping[int, float],
        old: Mapping[int, Tensor] | None,
        ref: Sequence[Tensor] | None,
    ) -> tuple[float, LossMetrics]:
        """Add the gradient of one micro-batch to the parameters' gradients; return its part of the loss and metrics."""
        logprobs, entropy = self._forward(batch, entropy_grad=self.loss.entropy_coef > 0)

        def row(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=logprobs.dtype, device=logprobs.device)

        def rows(tensors: Mapping[int, Tensor] | Sequence[Tensor] | None) -> Tensor | None:
            return None if tensors is None else torch.cat([tensors[i] for i in part]).to(logprobs)

        sampler: list[float] | None = []
        for i in part:
            known = samples[i].sampler_logprobs
            if known is None or sampler is None:
                sampler = None  # a metric only: what the loss needs was checked before
                break
            sampler.extend(known)
        loss, found = policy_loss(
            logprobs,
            advantages=row([a for i in part for a in samples[i].token_advantages()]),
            weights=row([weight_of[i] for i in part for _ in samples[i].completion_ids]),
            segments=batch.segments,
            config=self.loss,
            old_logprobs=rows(old),
            sampler_logprobs=None if sampler is None else row(sampler),
            ref_logprobs=rows(ref),
            entropy=entropy,
        )
        loss.backward()
        return float(loss.detach()), found

    @contextlib.contextmanager
    def _training(self) -> Iterator[None]:
        """Training mode, with a generator for dropout that depends on the seed and the step alone."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            stream = [self.config.seed, self.steps, *([self._ranks.rank] if self._ranks.size > 1 else [])]
            torch.manual_seed(int(np.random.default_rng(stream).integers(2**63)))
            self.model.train()
            try:
                yield
            finally:
                self.model.eval()


def _add(total: Tensor | None, gradient: Tensor | None) -> Tensor | None:
    if gradient is None:
        return total
    return gradient if total is None else total.add_(gradient)
