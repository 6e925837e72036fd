"""A batched sampling loop for transformers models, with random numbers of its own for every row.

A row's noise comes from its seed alone, so it does not depend on which other rows share the batch. The probabilities
do so only through rounding: a matrix product of another batch size may differ in its last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from trainers.policies.base import Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_GREEDY_BELOW = 1e-5  # temperatures below this one are greedy, as in vLLM


@dataclass(frozen=True, slots=True)
class Row:
    """One completion to sample.

    Attributes:
        prompt_ids: Token ids of the prompt, at least one.
        seed: Seed of this row's random numbers.
    """

    prompt_ids: tuple[int, ...]
    seed: int


@dataclass(frozen=True, slots=True)
class Decoded:
    """A sampled completion: its token ids, their log-probs and what ended it."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: Literal["stop", "length"]


def processed_logprobs(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return the log-probabilities that tokens are drawn from.

    Temperature first, then top-k, then top-p over what is left, renormalised: the order and the treatment of ties
    (tokens tied with the k-th are kept) of vLLM's `processed_logprobs`. Greedy sampling leaves the distribution as it
    is.

    Args:
        logits: Shape `(..., vocabulary)`.
        sampling: Temperature, top_p and top_k.

    Returns:
        float32 log-probabilities of the same shape; removed tokens have -inf.
    """
    logits = logits.float()
    if sampling.temperature < _GREEDY_BELOW:
        return logits.log_softmax(dim=-1)
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        kth = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, index = logits.sort(dim=-1)
        mass = ordered.softmax(dim=-1).cumsum(dim=-1)
        removed = mass <= 1.0 - sampling.top_p
        removed[..., -1] = False
        logits = torch.full_like(logits, -torch.inf).scatter(-1, index, ordered.masked_fill(removed, -torch.inf))
    return logits.log_softmax(dim=-1)


def _draw(logprobs: torch.Tensor, uniforms: torch.Tensor, greedy: bool) -> torch.Tensor:
    """Draw one token a row by inversion of the cumulative distribution, in float64; shape `(rows,)`."""
    if greedy:
        return logprobs.argmax(dim=-1)
    mass = logprobs.double().exp().cumsum(dim=-1)
    point = uniforms.unsqueeze(-1) * mass[:, -1:]
    return torch.searchsorted(mass, point, right=True).squeeze(-1).clamp_(max=logprobs.shape[-1] - 1)


class _State:
    """The rows that still run, in batch order: their cache, mask and last tokens."""

    def __init__(self, model: PreTrainedModel, prompts: Sequence[tuple[int, ...]], pad_id: int) -> None:
        from trainers.policies.kv_cache import make_cache

        self.model = model
        unique = {prompt: index for index, prompt in enumerate(dict.fromkeys(prompts))}
        width = max(map(len, unique))
        ids = torch.full((len(unique), width), pad_id, dtype=torch.long, device=model.device)
        mask = torch.zeros_like(ids)
        for prompt, index in unique.items():
            ids[index, width - len(prompt) :] = torch.tensor(prompt, device=model.device)
            mask[index, width - len(prompt) :] = 1
        self.cache = make_cache(model.config.get_text_config())
        self.mask = mask
        position = (mask.cumsum(dim=-1) - 1).clamp_(min=0)
        logits = self._forward(ids, position)
        # Equal prompts are computed once; from here on every row has its own copy.
        rows = torch.tensor([unique[prompt] for prompt in prompts], device=model.device)
        self.logits = logits[rows]
        self.position = position[rows, -1:]
        if len(unique) < len(prompts):
            self.cache.batch_select_indices(rows)
            self.mask = self.mask[rows]

    def _forward(self, ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        output: Any = self.model(
            input_ids=ids,
            attention_mask=self.mask,
            position_ids=position,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1]

    def keep(self, rows: list[int]) -> None:
        index = torch.tensor(rows, device=self.mask.device)
        self.cache.batch_select_indices(index)
        self.mask = self.mask[index]
        self.position = self.position[index]

    def advance(self, tokens: torch.Tensor) -> None:
        self.mask = torch.cat([self.mask, self.mask.new_ones((len(tokens), 1))], dim=-1)
        self.position = self.position + 1
        self.logits = self._forward(tokens.unsqueeze(-1), self.position)


@torch.no_grad()
def decode(
    model: PreTrainedModel,
    rows: Sequence[Row],
    sampling: Sampling,
    *,
    end_ids: Sequence[int],
    pad_id: int,
    to_text: Callable[[Sequence[int]], str],
) -> list[Decoded]:
    """Sample one completion a row.

    Args:
        model: A causal language model in evaluation mode.
        rows: What to sample; row i of the result belongs to `rows[i]`.
        sampling: The settings of all rows.
        end_ids: Tokens that end a completion; they are part of it.
        pad_id: Token that fills the left of short prompts. It is masked.
        to_text: Token ids to text, to look for stop strings.

    Returns:
        The completions, in the order of `rows`.
    """
    greedy = sampling.temperature < _GREEDY_BELOW
    uniforms = torch.stack([_uniforms(row.seed, sampling.max_tokens) for row in rows]).to(model.device)
    state = _State(model, [row.prompt_ids for row in rows], pad_id)
    ends = frozenset(end_ids)
    tokens: list[list[int]] = [[] for _ in rows]
    logprobs: list[list[float]] = [[] for _ in rows]
    reasons: list[Literal["stop", "length"]] = ["length"] * len(rows)
    active = list(range(len(rows)))  # rows in the batch, in batch order
    done: set[int] = set()
    for step in range(sampling.max_tokens):
        table = processed_logprobs(state.logits, sampling)
        drawn = _draw(table, uniforms[active, step], greedy)
        values = table.gather(-1, drawn.unsqueeze(-1)).squeeze(-1).tolist()
        for row, token, value in zip(active, drawn.tolist(), values, strict=True):
            if row in done:
                continue
            tokens[row].append(token)
            logprobs[row].append(value)
            if token in ends or (sampling.stop and _has_stop(to_text(tokens[row]), sampling.stop)):
                reasons[row] = "stop"
                done.add(row)
        if len(done) == len(rows) or step + 1 == sampling.max_tokens:
            break
        keep = [index for index, row in enumerate(active) if row not in done]
        if 4 * len(keep) <= 3 * len(active):  # copying the cache pays once a quarter of the rows has ended
            state.keep(keep)
            drawn = drawn[torch.tensor(keep, device=drawn.device)]
            active = [active[index] for index in keep]
        state.advance(drawn)
    return [Decoded(tuple(t), tuple(p), r) for t, p, r in zip(tokens, logprobs, reasons, strict=True)]


def _uniforms(seed: int, count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, generator=generator, dtype=torch.float64)


def _has_stop(text: str, stop: tuple[str, ...]) -> bool:
    return any(word in text for word in stop)
