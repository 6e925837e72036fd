"""The measurement of weight syncs, on a small model."""

from __future__ import annotations

import pytest

from benchmarks.performance.weights import measure_weight_sync


@pytest.mark.vllm
@pytest.mark.slow
def test_both_ways_are_measured() -> None:
    shared, folder, ratio = measure_weight_sync(hidden=64, layers=2, repeats=2)
    assert shared.value > 0
    assert folder.value > 0
    assert ratio.value == pytest.approx(folder.value / shared.value)
    assert ratio.unit == "x"


def test_without_vllm_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert measure_weight_sync() == []
