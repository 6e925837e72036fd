"""The distribution that tokens are drawn from, and the draw itself."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.policies.base import Sampling
from trainers.policies.chat import completion_text
from trainers.policies.decode import _draw, processed_logprobs
from trainers.tokenizing import byte_tokenizer

LOGITS = torch.tensor([[math.log(0.5), math.log(0.25), math.log(0.15), math.log(0.1)]])


def probabilities(**settings: float) -> list[float]:
    result: list[float] = processed_logprobs(LOGITS, Sampling(**settings)).exp()[0].tolist()  # type: ignore[arg-type]
    return result


def test_plain_and_greedy_are_the_softmax() -> None:
    assert probabilities() == pytest.approx([0.5, 0.25, 0.15, 0.1])
    assert probabilities(temperature=0.0, top_k=1, top_p=0.1) == pytest.approx([0.5, 0.25, 0.15, 0.1])


def test_temperature_one_half_squares_the_odds() -> None:
    total = 0.25 + 0.0625 + 0.0225 + 0.01
    assert probabilities(temperature=0.5) == pytest.approx([0.25 / total, 0.0625 / total, 0.0225 / total, 0.01 / total])


def test_top_k_keeps_the_k_largest() -> None:
    assert probabilities(top_k=2) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert probabilities(top_k=1) == pytest.approx([1, 0, 0, 0])
    assert probabilities(top_k=99) == pytest.approx([0.5, 0.25, 0.15, 0.1])


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass() -> None:
    assert probabilities(top_p=0.4) == pytest.approx([1, 0, 0, 0])
    assert probabilities(top_p=0.7) == pytest.approx([2 / 3, 1 / 3, 0, 0])
    assert probabilities(top_p=0.8) == pytest.approx([0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0])


def test_top_p_counts_the_mass_after_top_k() -> None:
    # top_k leaves 2/3 and 1/3; 0.6 of that is reached by the first token alone, though it has only half of the whole.
    assert probabilities(top_k=2, top_p=0.6) == pytest.approx([1, 0, 0, 0])


@settings(deadline=None)
@given(
    st.lists(st.integers(-80, 80).map(lambda value: value / 4), min_size=2, max_size=30),
    st.floats(0.1, 3.0),
    st.floats(0.05, 1.0),
    st.integers(1, 40),
)
def test_processed_distribution_is_a_distribution_that_keeps_the_order(
    logits: list[float], temperature: float, top_p: float, top_k: int
) -> None:
    table = processed_logprobs(torch.tensor([logits]), Sampling(temperature=temperature, top_p=top_p, top_k=top_k))[0]
    assert float(table.exp().sum()) == pytest.approx(1.0, abs=1e-5)
    kept = [value for value, logprob in zip(logits, table.tolist(), strict=True) if math.isfinite(logprob)]
    dropped = [value for value, logprob in zip(logits, table.tolist(), strict=True) if not math.isfinite(logprob)]
    assert max(kept) == max(logits)
    assert not dropped or min(kept) >= max(dropped)


def test_draw_inverts_the_cumulative_distribution() -> None:
    table = processed_logprobs(LOGITS, Sampling()).repeat(6, 1)
    uniforms = torch.tensor([0.0, 0.49, 0.51, 0.74, 0.76, 0.999], dtype=torch.float64)
    assert _draw(table, uniforms, greedy=False).tolist() == [0, 0, 1, 1, 2, 3]


def test_draw_never_takes_a_removed_token() -> None:
    table = processed_logprobs(LOGITS.flip(-1), Sampling(top_k=2))  # the first two tokens are removed
    uniforms = torch.tensor([0.0], dtype=torch.float64)
    assert _draw(table, uniforms, greedy=False).tolist() == [2]
    table = processed_logprobs(LOGITS, Sampling(top_k=2))  # the last two are
    uniforms = torch.tensor([1.0 - 2.0**-53], dtype=torch.float64)
    assert _draw(table, uniforms, greedy=False).tolist() == [1]


def test_text_ends_before_the_first_of_several_stop_strings() -> None:
    tokenizer = byte_tokenizer()
    ids = tokenizer("one two three<|im_end|>")["input_ids"]
    assert completion_text(tokenizer, ids, ("three", "two")) == "one "
    assert completion_text(tokenizer, ids, ("four",)) == "one two three"
    assert completion_text(tokenizer, ids, ()) == "one two three"
