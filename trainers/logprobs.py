"""Log-probs and entropies of completion tokens under a causal language model, without the logits of the prompts.

Prompts are long and vocabularies are large: logits of shape [B, T, V] would be the largest tensor of a run. Here the
output layer sees only the hidden states that predict a completion token, a chunk at a time, and log-softmax runs in
float32 or better.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainers.batching import MicroBatch, model_inputs
from trainers.packing import Tree

logger = logging.getLogger(__name__)

_PROBE = 16
# Three turns that share 2 tokens, two of them 5; and two turns of another tree, one the beginning of the other.
_PROBE_PROMPTS = ([11, 2, 7, 19, 5], [11, 2, 7, 19, 5], [11, 2, 23], [3, 17], [3, 17, 29, 13])
_PROBE_COMPLETIONS = ([23, 4, 9, 31, 2, 6], [8, 31, 14], [10, 1, 22, 12], [29, 13, 26], [26, 7, 15])
_LOGITS = 1024 * 49_152
# On a CPU the time of some 64 tokens, for a model of 0.3M as of 135M parameters. Elsewhere an estimate: launching the
# kernels of a forward and a backward pass takes tens of milliseconds.
_OVERHEAD_CPU, _OVERHEAD_ELSEWHERE = 64.0, 1024.0
_REFUSALS = (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError)
_WINDOWS = ("sliding_window", "attention_chunk_size", "window_size")


def token_logprobs(
    logits: Tensor, targets: Tensor, temperature: float, states: Tensor | None = None, *, entropy_grad: bool = True
) -> tuple[Tensor, Tensor]:
    """Return log softmax(logits/temperature) at the targets, and the entropy of each distribution.

    Args:
        logits: Shape [U, V]. Half precision is raised to float32 first.
        targets: Token ids, shape [M].
        temperature: Above 0.
        states: Row of the logits that each target is read from, shape [M]; None: they are in the same order.
        entropy_grad: Whether gradients flow through the entropies. If not, nothing is kept for them.

    Returns:
        Log-probs, shape [M], and entropies (nats), shape [U].
    """
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    normaliser = torch.logsumexp(logits, dim=-1)
    with contextlib.nullcontext() if entropy_grad else torch.no_grad():
        expected = (torch.exp(logits - normaliser.unsqueeze(-1)) * logits).sum(-1)
        entropy = normaliser - expected
    if states is None:
        return logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - normaliser, entropy
    return logits[states, targets] - normaliser[states], entropy


class CompletionForward:
    """A forward pass that ends in one log-prob and one entropy for each completion token.

    The decoder and the output layer are called one after the other where that gives the very logits that the model
    gives (checked at construction on a few tokens). Where it does not, because the architecture caps or scales its
    logits, the whole model is called and the prompts' logits are thrown away, and a warning says so.

    Args:
        model: A transformers causal language model, or one wrapped by peft.
        temperature: Divides the logits.
        chunk: Completion tokens whose logits exist at once; None: as many as make 0.2 GiB in float32.
        autocast: Precision of matrix products; None leaves that of the weights.
        share: Whether batches with shared prefixes are wanted. It is found out whether the model computes them rightly;
            if not, a warning says so.

    Attributes:
        shares: Whether batches with shared prefixes (``MicroBatch.sharing``) may be given.
        attention_cost: What attention to one more token costs in a row, over all the rest that is computed of a token.
        overhead: What one more micro-batch costs, in tokens.
    """

    def __init__(
        self,
        model: Any,
        *,
        temperature: float = 1.0,
        chunk: int | None = None,
        autocast: torch.dtype | None = None,
        share: bool = False,
    ) -> None:
        self.model = model
        self.temperature = temperature
        self.autocast = autocast
        causal = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._decoder: nn.Module = causal.base_model
        self._dtype: torch.dtype = causal.dtype
        self._head: Any = causal.get_output_embeddings()
        self.chunk = chunk or max(1, _LOGITS // self._head.weight.shape[0])
        self._split = self._can_split()
        if not self._split:
            logger.warning(
                "%s changes its logits after the output layer: logits of prompt tokens are computed too, which takes "
                "more memory",
                type(causal).__name__,
            )
        self.attention_cost = _attention_cost(causal)
        self.overhead = _OVERHEAD_CPU if self._head.weight.device.type == "cpu" else _OVERHEAD_ELSEWHERE
        self.shares = False
        if share:
            problem = self._sharing_problem(causal)
            self.shares = problem is None
            if problem is not None:
                logger.warning(
                    "%s %s: turns are padded and prefixes that they share are computed for each of them, which takes "
                    "more time. Set packing='padded' if that is meant",
                    type(causal).__name__,
                    problem,
                )

    def __call__(self, batch: MicroBatch, *, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies of the completion tokens, both of shape [M], turn by turn.

        Args:
            batch: The turns.
            entropy_grad: Let gradients flow through the entropies too.
        """
        with self._precision(batch.input_ids.device):
            return self._score(batch, entropy_grad)

    def _score(self, batch: MicroBatch, entropy_grad: bool) -> tuple[Tensor, Tensor]:
        inputs = {
            "input_ids": batch.input_ids,
            "attention_mask": batch.attention_mask if batch.ends is None else self._tree_mask(batch.ends),
            "position_ids": batch.positions,
            "use_cache": False,
        }
        score: Callable[[Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]
        if self._split:
            states = self._decoder(**inputs).last_hidden_state[batch.rows, batch.columns]
            score = self._score_states
        else:
            states = self.model(**inputs).logits[batch.rows, batch.columns]
            score = self._score_logits
        # Completion tokens in the order of the states that predict them, so that both can be cut together.
        order = torch.argsort(batch.states, stable=True)
        owners, targets = batch.states[order], batch.targets[order]
        bounds = range(0, len(states), self.chunk)
        cuts = torch.searchsorted(owners, torch.tensor([*bounds, len(states)], device=owners.device)).tolist()
        recompute = len(bounds) > 1 and torch.is_grad_enabled()
        logprobs, entropies = [], []
        for first, start, stop in zip(bounds, cuts, cuts[1:], strict=False):
            arguments = (
                states[first : first + self.chunk],
                targets[start:stop],
                owners[start:stop] - first,
                entropy_grad,
            )
            logprob, entropy = checkpoint(score, *arguments, use_reentrant=False) if recompute else score(*arguments)
            logprobs.append(logprob)
            entropies.append(entropy)
        return torch.cat(logprobs)[torch.argsort(order)], torch.cat(entropies)[batch.states]

    def _tree_mask(self, ends: Tensor) -> Tensor:
        """An additive mask [B, 1, T, T] in which token i sees token j if j ≤ i < ends[j]."""
        column = torch.arange(ends.shape[1], device=ends.device)
        unseen = (column.unsqueeze(1) < column) | (column.unsqueeze(1) >= ends.unsqueeze(1))
        mask = torch.zeros(unseen.shape, dtype=self.autocast or self._dtype, device=ends.device)
        return mask.masked_fill_(unseen, torch.finfo(mask.dtype).min).unsqueeze(1)

    def _score_states(self, states: Tensor, targets: Tensor, owners: Tensor, grad: bool) -> tuple[Tensor, Tensor]:
        return token_logprobs(self._head(states), targets, self.temperature, owners, entropy_grad=grad)

    def _score_logits(self, logits: Tensor, targets: Tensor, owners: Tensor, grad: bool) -> tuple[Tensor, Tensor]:
        return token_logprobs(logits, targets, self.temperature, owners, entropy_grad=grad)

    def _precision(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=self.autocast)

    def _can_split(self) -> bool:
        weight = next(iter(self.model.parameters()))
        # Many different tokens: one that is the padding token has zero logits, which a cap does not change.
        vocabulary = self._head.weight.shape[0]
        ids = torch.linspace(0, vocabulary - 1, min(vocabulary, _PROBE), device=weight.device).long().unsqueeze(0)
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad(), self._precision(weight.device):
                states = getattr(self._decoder(input_ids=ids, use_cache=False), "last_hidden_state", None)
                if states is None:
                    return False
                return torch.equal(self._head(states), self.model(input_ids=ids, use_cache=False).logits)
        finally:
            self.model.train(training)

    def _sharing_problem(self, causal: Any) -> str | None:
        """Say why shared prefixes cannot be given to this model, or return None: they give what separate turns give."""
        if has_attention_window(causal.config):
            return "has layers that do not attend to all earlier tokens"
        if "position_ids" not in inspect.signature(self._decoder.forward).parameters:
            return "takes no position_ids"
        vocabulary = self._head.weight.shape[0]
        prompts = [[token % vocabulary for token in prompt] for prompt in _PROBE_PROMPTS]
        completions = [[token % vocabulary for token in completion] for completion in _PROBE_COMPLETIONS]
        device = self._head.weight.device
        # Two trees in one row, so that every token has others before it that it must not see.
        inputs = [model_inputs(p, c) for p, c in zip(prompts, completions, strict=True)]
        trees = [Tree((0, 1, 2), (0, 5, 2)), Tree((3, 4), (0, 4))]
        tree = MicroBatch.sharing(inputs, completions, [trees], device)
        plain = torch.arange(tree.input_ids.shape[1], device=device).expand_as(tree.input_ids)
        training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                alone = [self(MicroBatch.of([p], [c], device))[0] for p, c in zip(prompts, completions, strict=True)]
                right = torch.cat(alone)
                try:
                    error = float((self(tree)[0] - right).abs().max())
                except (
                    AttributeError,
                    IndexError,
                    NotImplementedError,
                    RuntimeError,
                    TypeError,
                    ValueError,
                ) as refusal:
                    return f"refuses an attention mask of four dimensions ({refusal})"
                unmasked = self(replace(tree, ends=None, positions=plain))[0]
        finally:
            self.model.train(training)
        scale = max(1.0, float(right.abs().max()))
        tolerance = 200 * torch.finfo(self.autocast or self._dtype).eps * scale
        if not error <= min(tolerance, 0.1 * float((unmasked - right).abs().max())):
            return f"gives other log-probs where prefixes are shared (by up to {error:.1g} nats)"
        return None


def has_attention_window(config: Any) -> bool:
    """Whether some layers of a transformers model see less than all earlier tokens, by a window or by recurrence."""
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    if kinds:
        return any(kind != "full_attention" for kind in kinds)
    return any(
        getattr(text, name, None) is not None for name in ("sliding_window", "attention_chunk_size", "window_size")
    )


def _attention_cost(causal: Any) -> float:
    """Estimate what attention to one token costs over the products with the decoder's matrices for one token.

    Attention multiplies 2·layers·heads·head_dim numbers for each pair of tokens, the matrices as many as they have
    entries for each token.
    """
    text = causal.config.get_text_config()
    embeddings = (causal.get_input_embeddings(), causal.get_output_embeddings())
    outside = {id(p) for module in embeddings if module is not None for p in module.parameters()}
    matrices = sum(p.numel() for p in causal.parameters() if p.ndim >= 2 and id(p) not in outside)
    heads = int(getattr(text, "num_attention_heads", 1))
    head_dim = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    return 2.0 * int(getattr(text, "num_hidden_layers", 1)) * heads * head_dim / max(1, matrices)
