"""A run on a Ray cluster with vLLM as its engine: weights arrive there, and the run is that of one process."""

from __future__ import annotations

import asyncio

import pytest

from trainers.config import load_config
from trainers.distributed.workers import RayWorkers
from trainers.trainer import Trainer

pytestmark = [pytest.mark.slow, pytest.mark.vllm]


@pytest.mark.parametrize("lora", [None, {"rank": 8}], ids=["full", "lora"])
def test_every_sync_is_proved_and_the_numbers_are_those_of_one_process(recipe, tmp_path, runs, lora, monkeypatch):
    """One engine, one runner, one rank. The model's embeddings are tied, which is what a reload must not forget."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    values = recipe(
        {"backend": "vllm", "engine": {"max_model_len": 256}, "learning_rate": 0.003, "lora": lora},
        cluster={"runners": 1, "engines": 1, "learner_ranks": 1},
        threads=1,
    )
    config = load_config({**values, "policies": {"everyone": values["policies"]["solver"]}})
    seen = []
    rows = []
    for name, workers in (("alone", None), ("cluster", RayWorkers("local:4"))):
        trainer = Trainer(config, tmp_path / name, workers=workers, on_progress=seen.append)
        rows.append(runs.metrics(asyncio.run(trainer.run()).run_dir))
    reports = [progress.synced["everyone"] for progress in seen]
    assert [report.weight_version for report in reports] == [0, 1, 2] * 2
    assert all(report.n_tokens > 0 and report.max_abs_diff <= 2e-5 for report in reports)
    assert reports[-1].policy.endswith("engine 0")
    assert len(rows[0]) == len(rows[1]) == 2
    for one, other in zip(*rows, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-4)
