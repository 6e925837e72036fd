"""The study of AT-GRPO on plan-path, at a size of seconds: every arm, its budget, its evaluation, going on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.studies import at_grpo_plan_path as study
from benchmarks.studies import plan_path_page
from benchmarks.studies.arms import ARMS, StudySettings
from benchmarks.studies.held_out import pooled
from benchmarks.studies.short_plan_path import PAIR, SOLO
from benchmarks.studies.study_arms import train_config
from trainers.tracking import read_metrics

TINY = StudySettings(
    grid_size=3,
    tokens=600,
    turns=2,
    eval_tasks=12,
    hidden=32,
    layers=1,
    demo_tasks=30,
    slip_tasks=10,
    early_tokens=300,
    candidates=2,
    solo_tasks=2,
    refills=0,
    minibatches=2,
    warmup_updates=1,
)


@pytest.fixture
def small_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "TOKENIZER_TASKS", 30)


@pytest.mark.usefixtures("small_tokenizer")
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
        assert ("early" in arm) == (ARMS[name].preset is not None)
        (training,) = arm["training"]
        assert bool(training) == (ARMS[name].preset is not None)
        if training:
            rows = read_metrics(tmp_path / "seed0" / name / "train")
            totals = [row["train/total_tokens"] for row in rows]
            assert totals[-1] == training["tokens"] >= 600
            assert all(total < 600 for total in totals[:-1])
            rates = [row[key] for row in rows for key in row if key.startswith("policy/") and key.endswith("/lr")]
            assert rates[0] == pytest.approx(TINY.learning_rate / 2)  # of the warm-up, one update long
            assert rates[-1] == pytest.approx(
                TINY.learning_rate
                * (1 - (1 - TINY.final_learning_rate) * (totals[-2] if len(totals) > 1 else 0) / 600)
                / (1 + (len(rows) == 1))
            )
            # Of a tree no success is reported, neither in training nor in the evaluation.
            assert ("train/success" in rows[0]) == (ARMS[name].preset == "grpo")
    assert (tmp_path / "report.png").stat().st_size > 1000
    assert (tmp_path / "training.png").stat().st_size > 1000
    assert "two agents, AT-GRPO, one policy a role" in (tmp_path / "report.md").read_text()
    models = {path.name for path in (tmp_path / "seed0" / "at-grpo-roles" / "train" / "models").iterdir()}
    assert models == {"scout", "planner"}
    early = tmp_path / "seed0" / "at-grpo-roles" / "train" / "early"
    assert {path.name for path in early.iterdir()} == models

    rows = {(row["arm"], row["against"]): row["evaluation"] for row in found["differences"]}
    gap = rows["at-grpo-shared", "pair-grpo"]["sampled/2"]
    ours, theirs = (found["arms"][name]["evaluation"]["sampled/2"] for name in ("at-grpo-shared", "pair-grpo"))
    assert gap["difference"] == pytest.approx(ours["success"] - theirs["success"])
    folder, docs = str(tmp_path), str(tmp_path / "docs")
    assert plan_path_page.main([folder, folder, "--variants", folder, "--larger", folder, "--docs", docs]) == 0
    text = (tmp_path / "docs" / "at_grpo_plan_path.md").read_text()
    assert f"{theirs['success']:.3f} [" in text
    assert plan_path_page.main([folder, str(tmp_path / "none"), "--docs", docs]) == 2

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    lines.clear()
    study.run_study(TINY, tmp_path, [0], list(ARMS), lines.append)
    assert lines == [f"seed 0, {name}: done before" for name in ARMS]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")} == before

    with pytest.raises(ValueError, match=r"other settings \(tokens: 600 -> 800\)"):
        study.run_study(
            StudySettings(**{**json.loads((tmp_path / "study.json").read_text()), "tokens": 800}), tmp_path, [0], []
        )


def test_arms_differ_only_in_what_they_are_about(tmp_path: Path) -> None:
    settings = StudySettings()
    configs = {
        name: train_config(arm, settings, dict.fromkeys(("scout", "planner") if arm.per_role else ("*",), tmp_path), 3)
        for name, arm in ARMS.items()
        if arm.preset is not None
    }
    assert {config.token_budget for config in configs.values()} == {500_000}
    assert {config.samples_per_task for config in configs.values()} == {8}
    assert {name: config.tasks_per_update for name, config in configs.items()} == {
        "solo-grpo": 64, "pair-grpo": 32, "at-grpo-shared": 32, "at-grpo-roles": 32
    }  # fmt: skip
    assert {name: config.env.id for name, config in configs.items()} == {
        "solo-grpo": SOLO, "pair-grpo": PAIR, "at-grpo-shared": PAIR, "at-grpo-roles": PAIR
    }  # fmt: skip
    assert [config.algorithm.build().sampling for config in configs.values()] == ["episodes"] * 2 + ["tree"] * 2
    assert {config.algorithm.build().loss.entropy_coef for config in configs.values()} == {0.003}
    assert configs["at-grpo-roles"].role_map() == {"scout": "scout", "planner": "planner"}
    # No update can spend so little that the run would end by its number of updates.
    for config in configs.values():
        least = config.tasks_per_update * config.samples_per_task * 2
        assert config.updates * least > 500_000


def test_seeds_are_pooled_task_by_task() -> None:
    low, high = pooled([{"solved": [1, 0] * 50, "tokens": 4.0}, {"solved": [0, 1] * 50, "tokens": 6.0}])["interval"]
    assert 0.45 < low <= 0.5 <= high < 0.55  # one seed solved every task: 200 single games would leave 0.43 to 0.57


def test_the_command_names_a_study_of_other_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.json").write_text(json.dumps({"grid_size": 9}))
    assert study.main(["--out", str(tmp_path), "--arms", "solo"]) == 2
    assert "grid_size: 9 -> 5" in capsys.readouterr().err


def test_the_page_in_the_documentation_is_that_of_its_data() -> None:
    data = plan_path_page.DOCS / "at_grpo_plan_path.json"
    assert data.with_suffix(".md").read_text() == plan_path_page.page(json.loads(data.read_text()))
