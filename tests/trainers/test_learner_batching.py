"""Samples and micro-batches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.batching import MicroBatch, Sample, plan_micro_batches, samples_by_policy
from trainers.rollout.records import Turn


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120))
def test_law_every_item_once_within_the_budget(lengths: list[int], budget: int) -> None:
    plan = plan_micro_batches(lengths, budget)
    assert sorted(i for part in plan for i in part) == list(range(len(lengths)))
    for part in plan:
        assert len(part) == 1 or len(part) * max(lengths[i] for i in part) <= budget


def test_padding_positions_and_targets() -> None:
    batch = MicroBatch.of([[1, 2], [3]], [[4, 5, 6], [7]])
    assert batch.input_ids.tolist() == [[1, 2, 4, 5], [3, 0, 0, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert batch.rows.tolist() == [0, 0, 0, 1]
    assert batch.columns.tolist() == [1, 2, 3, 0]
    assert batch.targets.tolist() == [4, 5, 6, 7]
    assert batch.segments.tolist() == [0, 0, 0, 1]
    assert batch.lengths == (3, 1)


def _turn(**fields: object) -> Turn:
    given = {"prompt_ids": (1, 2), "completion_ids": (3,), "logprobs": (-0.5,), "policy": "a", "agent": "solver_0"}
    return Turn(
        episode="t#0", task="t", index=0, agent_turn=0, observation="", action="", **{**given, **fields}  # type: ignore[arg-type]
    )  # fmt: skip


def test_samples_by_policy() -> None:
    turns = [_turn(), _turn(policy="b", agent="verifier_0"), _turn(masked=True, completion_ids=None), _turn()]
    turns.append(_turn(policy="api", prompt_ids=None, completion_ids=None))
    advantages = np.array([1.0, 2.0, 0.0, 3.0, 4.0])
    mine = [Sample((1, 2), (3,), (-0.5,), a, "solver_0") for a in (1.0, 3.0)]
    other = [Sample((1, 2), (3,), (-0.5,), 2.0, "verifier_0")]
    assert samples_by_policy(turns, advantages, ["a", "b", "silent"]) == {"a": mine, "b": other, "silent": []}
    assert samples_by_policy(turns, advantages, ["b"]) == {"b": other}
    with pytest.raises(ValueError, match="has no token ids, so policy 'api' cannot be trained"):
        samples_by_policy(turns, advantages, ["a", "api"])
    with pytest.raises(ValueError, match="has no token ids"):
        samples_by_policy([_turn(completion_ids=())], np.zeros(1), ["a"])
    with pytest.raises(ValueError, match="2 advantages for 1 turns"):
        samples_by_policy([_turn()], np.zeros(2), ["a"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"completion_ids": ()}, "Sample 0 .*no completion token"),
        ({"prompt_ids": ()}, "no prompt token"),
        ({"sampler_logprobs": (-1.0,)}, "1 log-probs for 2 completion tokens"),
        ({"sampler_logprobs": (-1.0, -math.inf)}, "log-prob that is not finite"),
        ({"advantage": math.nan}, "'solver_0'.*advantage that is not finite"),
        ({"advantage": (1.0,)}, "1 advantages for 2"),
        ({"weight": -1.0}, "weight -1.0"),
    ],
)
def test_samples_that_cannot_be_trained_on(fields: dict[str, object], message: str) -> None:
    good = Sample((1,), (2, 3), (-1.0, -2.0), 0.5, "solver_0")
    good.check("Sample 0")
    with pytest.raises(ValueError, match=message):
        replace(good, **fields).check("Sample 0")  # type: ignore[arg-type]
