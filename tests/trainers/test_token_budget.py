"""A run that ends by the tokens it has generated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainers.api import train
from trainers.models import build_tiny_model
from trainers.tracking import read_metrics


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Every update generates 8 answers of at most 2 tokens."""
    model = build_tiny_model(tmp_path / "m", vocab=[r"\boxed{4}", "no"], hidden_size=16, layers=1, head_dim=8)
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"question": f"Four ({i})?", "answer": "4"}) + "\n" for i in range(20)))
    return {
        "env": {"id": "math-1agent", "tasks": str(tasks), "split": "train"},
        "algorithm": {"preset": "grpo"},
        "policies": {"solver": {"model": str(model), "backend": "hf", "sampling": {"max_tokens": 2}}},
        "tasks_per_update": 2,
        "samples_per_task": 4,
        "updates": 50,
        "checkpoint": {"every": 100},
    }


def test_the_run_ends_with_the_update_that_spends_the_budget(settings: dict[str, Any], tmp_path: Path) -> None:
    train(settings, "token_budget=30", out=tmp_path / "run")
    totals = [row["train/total_tokens"] for row in read_metrics(tmp_path / "run")]
    assert totals[-2] < 30 <= totals[-1]
    assert len(totals) < 50
    assert list((tmp_path / "run" / "checkpoints").iterdir())  # the last update is saved, whenever it comes
    assert (tmp_path / "run" / "models" / "solver" / "config.json").is_file()


def test_a_resumed_run_counts_on(settings: dict[str, Any], tmp_path: Path) -> None:
    train(settings, "token_budget=30", out=tmp_path / "a")
    train(settings, "updates=1", out=tmp_path / "b")
    train(settings, "token_budget=30", out=tmp_path / "b", resume=True)
    rows = [
        [{k: v for k, v in row.items() if not k.startswith("time/")} for row in read_metrics(tmp_path / name)]
        for name in "ab"
    ]
    assert rows[0] == rows[1]
