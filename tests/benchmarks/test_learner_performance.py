"""The comparison of the learner with TRL measures what it says, on a model of a few thousand parameters."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

from benchmarks.performance import learner
from benchmarks.performance.learner import grpo_batch, measure_learner, missing_trl

LENGTHS: dict[str, Any] = {"prompt": (9, 15), "completion": (2, 6)}


def tiny_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config)


def test_batches_have_the_shape_of_groups() -> None:
    samples = grpo_batch(50, groups=3, size=8)
    assert len(samples) == 24
    assert len({tuple(sample.prompt_ids) for sample in samples}) == 3
    prompts = sum(len(sample.prompt_ids) for sample in samples)
    assert 2 < prompts / sum(len(sample.completion_ids) for sample in samples) < 4
    assert samples == grpo_batch(50, groups=3, size=8)


def test_without_trl_the_learner_is_measured_alone_and_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "trl" else find(name))
    assert [line.partition(":")[0] for line in missing_trl()] == ["trl not installed"]
    model = tiny_model()
    before = [p.clone() for p in model.parameters()]
    rows = measure_learner(model, groups=2, repeats=1, **LENGTHS)
    assert [row.unit for row in rows] == ["/s", "x", ""] * 2
    assert all(row.value > 0 for row in rows if row.unit)
    assert [row.met for row in rows if not row.unit] == [True, True]
    assert not any("TRL" in row.name for row in rows)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_gradients_that_differ_are_seen() -> None:
    model = tiny_model()
    batches = [grpo_batch(50, groups=1, seed=seed, **LENGTHS) for seed in (0, 1)]
    one, other = (learner._gradient(model, learner._our_update(model, batch, "padded")) for batch in batches)
    assert learner._difference(one, one, "same").met is True
    assert learner._difference(one, other, "other").met is False


def test_trl_pads_over_the_whole_batch() -> None:
    samples = grpo_batch(50, groups=2, **LENGTHS)
    batches = learner._trl_batches(samples)
    assert [len(batch["advantages"]) for batch in batches] == [8, 8]
    width = max(len(sample.prompt_ids) for sample in samples)
    height = max(len(sample.completion_ids) for sample in samples)
    assert {batch["prompt_ids"].shape[1] for batch in batches} == {width}
    assert {batch["completion_ids"].shape[1] for batch in batches} == {height}
    tokens = sum(int(batch["completion_mask"].sum()) for batch in batches)
    assert tokens == float(batches[0]["num_items_in_batch"]) == sum(len(sample.completion_ids) for sample in samples)
    assert all(bool(batch["prompt_mask"][:, -1].all()) for batch in batches)


def test_trl_has_the_same_gradient() -> None:
    pytest.importorskip("trl", reason="trl is compared with where it is installed")
    rows = measure_learner(tiny_model(), groups=2, repeats=1, **LENGTHS)
    assert [row.target for row in rows if row.name.startswith("learner / TRL")] == [1.5, 1.2]
    gradients = [row for row in rows if "learner and TRL" in row.name]
    assert len(gradients) == 2
    assert all(row.met for row in gradients)
