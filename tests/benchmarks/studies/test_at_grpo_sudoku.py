"""The study of AT-GRPO on sudoku, at a size of seconds: every arm, its budget, its evaluation, going on, its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.studies import at_grpo_sudoku as study
from benchmarks.studies import sudoku_page
from benchmarks.studies.short_sudoku import PAIR, SOLO
from benchmarks.studies.study_arms import train_config
from benchmarks.studies.sudoku_arms import ARMS, COMPARISONS, SudokuSettings
from trainers.tracking import read_metrics

TINY = SudokuSettings(
    min_clues=12,
    max_clues=13,
    tokens=500,
    turns=2,
    eval_tasks=12,
    hidden=32,
    layers=1,
    demo_tasks=30,
    candidates=2,
    solo_tasks=2,
    refills=0,
    minibatches=2,
    warmup_updates=1,
)


@pytest.mark.slow
def test_all_arms_run_within_the_same_budget_and_are_not_repeated(tmp_path: Path) -> None:
    lines: list[str] = []
    report = study.run_study(TINY, tmp_path, [0], list(ARMS), lines.append)
    found = json.loads(report.read_text())
    assert list(found["arms"]) == list(ARMS)
    for name, arm in found["arms"].items():
        assert set(arm["evaluation"]) == {"greedy/1", "sampled/1", "greedy/2", "sampled/2"}
        for result in arm["evaluation"].values():
            low, high = result["interval"]
            assert 0 <= low <= result["success"] <= high <= 1
        (training,) = arm["training"]
        assert bool(training) == (ARMS[name].preset is not None)
        if training:
            rows = read_metrics(tmp_path / "seed0" / name / "train")
            totals = [row["train/total_tokens"] for row in rows]
            assert totals[-1] == training["tokens"] >= 500
            assert all(total < 500 for total in totals[:-1])
            # Of a tree no success is reported, neither in training nor in the evaluation.
            assert ("train/success" in rows[0]) == (ARMS[name].preset == "grpo")
    models = {path.name for path in (tmp_path / "seed0" / "at-grpo-roles" / "train" / "models").iterdir()}
    assert models == {"proposer", "planner"}
    # One warm start plays for both: what differs between the arms is the environment and the training.
    assert {path.name for path in (tmp_path / "models").iterdir()} == {"random", "warm"}
    assert [(row["arm"], row["against"]) for row in found["differences"]] == list(COMPARISONS)

    docs = tmp_path / "docs"
    assert sudoku_page.main([str(tmp_path), "--docs", str(docs), "--variants", str(tmp_path)]) == 0
    text = (docs / "at_grpo_sudoku.md").read_text()
    assert f"{found['arms']['pair-grpo']['evaluation']['sampled/2']['success']:.3f} [" in text
    assert (docs / "at_grpo_sudoku.png").stat().st_size > 1000
    assert sudoku_page.main([str(tmp_path / "none"), "--docs", str(docs)]) == 2

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    lines.clear()
    study.run_study(TINY, tmp_path, [0], list(ARMS), lines.append)
    assert lines == [f"seed 0, {name}: done before" for name in ARMS]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")} == before
    assert study.main(["--out", str(tmp_path), "--arms", "solo"]) == 2


def test_arms_differ_only_in_what_they_are_about(tmp_path: Path) -> None:
    settings = SudokuSettings()
    configs = {
        name: train_config(arm, settings, dict.fromkeys(arm.players(), tmp_path), 3)
        for name, arm in ARMS.items()
        if arm.preset is not None
    }
    assert {name: config.tasks_per_update for name, config in configs.items()} == {
        "solo-grpo": settings.solo_tasks, **dict.fromkeys(list(configs)[1:], settings.solo_tasks // 2)
    }  # fmt: skip
    assert {name: config.env.id for name, config in configs.items()} == {
        "solo-grpo": SOLO, "pair-grpo": PAIR, "at-grpo-shared": PAIR, "at-grpo-roles": PAIR
    }  # fmt: skip
    assert [config.algorithm.build().sampling for config in configs.values()] == ["episodes"] * 2 + ["tree"] * 2
    assert {config.token_budget for config in configs.values()} == {settings.tokens}
    rates = {policy.learning_rate for config in configs.values() for policy in config.policies.values()}
    assert rates == {settings.learning_rate}
    assert configs["at-grpo-roles"].role_map() == {"proposer": "proposer", "planner": "planner"}


def test_the_command_names_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        study.main(["--arms", "trio"])
    assert "at-grpo-roles" in capsys.readouterr().err


def test_the_page_in_the_documentation_is_that_of_its_data() -> None:
    data = sudoku_page.DOCS / "at_grpo_sudoku.json"
    assert data.with_suffix(".md").read_text() == sudoku_page.page(json.loads(data.read_text()))
