"""Log-probs and entropies of completion tokens under a causal language model, without the logits of the prompts.

Prompts are long and vocabularies are large: logits of shape [B, T, V] would be the largest tensor of a run. Here the
output layer sees only the hidden states that predict a completion token, a chunk at a time, and log-softmax runs in
float32 or better.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainers.batching import MicroBatch

logger = logging.getLogger(__name__)

_PROBE = 16


def token_logprobs(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return log softmax(logits/temperature) at the targets, and the entropy of each distribution.

    Args:
        logits: Shape [M, V]. Half precision is raised to float32 first.
        targets: Token ids, shape [M].
        temperature: Above 0.

    Returns:
        Log-probs and entropies (nats), both of shape [M].
    """
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    normaliser = torch.logsumexp(logits, dim=-1)
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    expected = (torch.exp(logits - normaliser.unsqueeze(-1)) * logits).sum(-1)
    return chosen - normaliser, normaliser - expected


class CompletionForward:
    """A forward pass that ends in one log-prob and one entropy for each completion token.

    The decoder and the output layer are called one after the other where that gives the very logits that the model
    gives (checked at construction on a few tokens). Where it does not, because the architecture caps or scales its
    logits, the whole model is called and the prompts' logits are thrown away, and a warning says so.

    Args:
        model: A transformers causal language model, or one wrapped by peft.
        temperature: Divides the logits.
        chunk: Completion tokens whose logits exist at once.
        autocast: Precision of matrix products; None leaves that of the weights.
    """

    def __init__(
        self, model: Any, *, temperature: float = 1.0, chunk: int = 1024, autocast: torch.dtype | None = None
    ) -> None:
        self.model = model
        self.temperature = temperature
        self.chunk = chunk
        self.autocast = autocast
        causal = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._decoder: nn.Module = causal.base_model
        self._head: Any = causal.get_output_embeddings()
        self._split = self._can_split()
        if not self._split:
            logger.warning(
                "%s changes its logits after the output layer: logits of prompt tokens are computed too, which takes "
                "more memory",
                type(causal).__name__,
            )

    def __call__(self, batch: MicroBatch, *, entropy_grad: bool = False) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies of the completion tokens, both of shape [M], turn by turn.

        Args:
            batch: Right-padded turns.
            entropy_grad: Let gradients flow through the entropies too.
        """
        with self._precision(batch.input_ids.device):
            return self._score(batch, entropy_grad)

    def _score(self, batch: MicroBatch, entropy_grad: bool) -> tuple[Tensor, Tensor]:
        positions = torch.arange(batch.input_ids.shape[1], device=batch.input_ids.device).expand_as(batch.input_ids)
        inputs = {
            "input_ids": batch.input_ids,
            "attention_mask": batch.attention_mask,
            "position_ids": positions,
            "use_cache": False,
        }
        score: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
        if self._split:
            states = self._decoder(**inputs).last_hidden_state[batch.rows, batch.columns]
            score = self._score_states
        else:
            states = self.model(**inputs).logits[batch.rows, batch.columns]
            score = self._score_logits
        parts = list(zip(states.split(self.chunk), batch.targets.split(self.chunk), strict=True))
        if len(parts) > 1 and torch.is_grad_enabled():
            results = [checkpoint(score, part, targets, use_reentrant=False) for part, targets in parts]
        else:
            results = [score(part, targets) for part, targets in parts]
        logprobs = torch.cat([logprob for logprob, _ in results])
        entropies = torch.cat([entropy if entropy_grad else entropy.detach() for _, entropy in results])
        return logprobs, entropies

    def _score_states(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return token_logprobs(self._head(states), targets, self.temperature)

    def _score_logits(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        return token_logprobs(logits, targets, self.temperature)

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
