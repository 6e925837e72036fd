"""The comparison of overlap with one after the other, on a model so small that it says nothing of speed."""

from __future__ import annotations

import pytest
import torch

from benchmarks.performance.overlap import measure_overlap


@pytest.mark.slow
def test_every_figure_is_a_ratio_or_a_share_of_one_run() -> None:
    threads = torch.get_num_threads()
    rows = measure_overlap((0,), updates=5, hidden=64, tasks_per_update=4, samples_per_task=8)
    assert torch.get_num_threads() == threads
    assert len({row.name for row in rows}) == len(rows) == 8
    assert all(row.value > 0 for row in rows if "seconds" in row.name or "a second" in row.name)
    assert [row.target for row in rows if row.target] == [0.9, 1.5, 0.95]
    share = next(row.value for row in rows if "share" in row.name)
    assert 0 < share <= 1
