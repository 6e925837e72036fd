"""How much of an engine the rollout uses is measured with a real engine, on the same prompts and lengths."""

from __future__ import annotations

import os

import pytest

from benchmarks.performance import engine_use


def test_the_rows_say_what_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("REQUIRE_VLLM") != "1":
        pytest.importorskip("vllm")
    fed: list[list[int]] = []
    feed = engine_use._feed

    async def spy(engine, turns, seed):
        fed.append([turn.completion_tokens for turn in turns])
        return await feed(engine, turns, seed)

    monkeypatch.setattr(engine_use, "_feed", spy)
    rows = engine_use.measure_engine_use({3: 6}, hidden=64, layers=1, max_tokens=8, repeats=1)
    assert [len(lengths) for lengths in fed] == [24]  # all turns of the rollout, once
    assert all(1 <= length <= 8 for lengths in fed for length in lengths)
    rate, use, lock_step = rows
    assert rate.value > 0
    assert (use.target, lock_step.target) == (0.95, 1.5)
    assert 0 < use.value < 2
    assert lock_step.value > 0


def test_without_vllm_a_line_says_what_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_use.importlib.util, "find_spec", lambda name: None)
    assert engine_use.measure_engine_use() == []
    assert "vllm" in engine_use.missing_vllm()[0]
