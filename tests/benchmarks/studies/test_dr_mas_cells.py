"""The study of Dr. MAS, at a size of seconds: every kind of run, the lemma, going on, and the page from its report."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from benchmarks.studies import dr_mas_arms, dr_mas_lemma
from benchmarks.studies import dr_mas_cells as study
from benchmarks.studies.dr_mas_arms import ARMS, REGIMES, Regime, StudySettings, train_config
from benchmarks.studies.dr_mas_page import page
from benchmarks.studies.dr_mas_report import collapsed, seed_interval, spike_ratio
from trainers.algorithms.presets import presets
from trainers.learner import NonFiniteGradient

PUBLISHED = Path(__file__).parents[3] / "docs" / "studies" / "dr_mas_cells.json"
TINY = StudySettings(
    tasks=2, samples=3, eval_tasks=8, hidden=32, layers=1, demo_tasks=60, sft_epochs=1, lemma_tasks=3, lemma_samples=64
)
SMALL = {
    "shift_shared": Regime("small, shared", answer_cost=2.0, shared=True, updates=2),
    "steps_8": Regime("small, two steps", answer_cost=2.0, minibatches=2, updates=2),
}
PAIR = ("step_grpo", "dr_mas")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "TOKENIZER_TASKS", 30)
    monkeypatch.setattr(study, "measure_lemma", functools.partial(dr_mas_lemma.measure_lemma, shifts=(0.0, 2.0)))
    monkeypatch.setattr(dr_mas_lemma, "DEALS", 1)
    monkeypatch.setattr(dr_mas_arms, "SWEEP_ARMS", PAIR)
    for name in list(REGIMES):
        monkeypatch.delitem(REGIMES, name)  # type: ignore[arg-type]
    for name, regime in SMALL.items():
        monkeypatch.setitem(REGIMES, name, regime)  # type: ignore[arg-type]


@pytest.mark.usefixtures("small")
def test_runs_are_reported_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    report = study.run_study(TINY, tmp_path, [0], list(SMALL), machine="A machine.", log=lines.append)
    found = json.loads(report.read_text())
    assert list(found["regimes"]) == list(SMALL)
    assert all(list(regime["arms"]) == list(PAIR) for regime in found["regimes"].values())
    for regime in found["regimes"].values():
        # The first batch of an arm is that of all arms: the same warm start, tasks and draws.
        assert len({arm["curve"][0] for arm in regime["arms"].values()}) == 1
        for arm in regime["arms"].values():
            assert arm["seeds"] == [0]
            assert 0 <= arm["success"]["mean"] <= 1
            assert arm["spike"]["mean"] >= 1
            assert len(arm["curve"]) == 2
            assert 0 < arm["rare_share"] < 0.5
    text = report.with_suffix(".md").read_text()
    assert text == page(found, "report.png")
    assert "A machine." in text
    assert report.with_suffix(".png").stat().st_size > 1000
    assert not list(tmp_path.rglob("train"))

    # Only what is missing is run again, and a gradient that is not finite is a collapse without success.
    class Breaking(study.Trainer):
        async def run(self) -> Any:
            await super().run()
            raise NonFiniteGradient("answerer_0", 1, math.nan, math.nan)

    monkeypatch.setattr(study, "Trainer", Breaking)
    (tmp_path / "runs" / "steps_8" / "dr_mas" / "seed0" / "result.json").unlink()
    lines.clear()
    found = json.loads(study.run_study(TINY, tmp_path, [0], list(SMALL), log=lines.append).read_text())
    assert [line.split(":")[0] for line in lines] == ["steps_8, dr_mas, seed 0"]
    arm = found["regimes"]["steps_8"]["arms"]["dr_mas"]
    assert (arm["stopped"], arm["collapse"]["runs"], arm["success"]["mean"]) == (1, 1, 0.0)
    with pytest.raises(ValueError, match=r"other settings \(samples: 3 -> 4\)"):
        study.run_study(dataclasses.replace(TINY, samples=4), tmp_path, [0], [])


def test_arms_differ_only_in_what_is_compared(tmp_path: Path) -> None:
    for regime in (REGIMES["shift"], REGIMES["shift_shared"], REGIMES["sparse"]):
        configs = [train_config(ARMS[arm], regime, StudySettings(), tmp_path, 1) for arm in regime.arms()]
        bare = {
            config.model_copy(update={"algorithm": None}).model_dump_json(exclude={"algorithm"}) for config in configs
        }
        assert len(bare) == 1
        losses = {dataclasses.replace(config.algorithm.build().loss, balance_agents=False) for config in configs}
        assert len(losses) == 1
        assert all(regime.shared or not config.algorithm.build().loss.balance_agents for config in configs)


def test_the_control_is_the_cell_of_everybodys_statistics() -> None:
    cell = presets["dr_mas_task_mean_task_std"]
    assert dataclasses.replace(presets["step_grpo"], name=cell.name, paper=cell.paper) == cell


def test_statistics_of_runs() -> None:
    assert spike_ratio([0.0, 0.0]) == 1.0
    good = {"stopped": None, "success": [0.1] * 5 + [0.5] * 5, "held_out": {"success": 0.26}}
    assert not collapsed(good)
    assert collapsed(good | {"held_out": {"success": 0.24}})
    assert collapsed(good | {"stopped": "NaN"})
    values = [0.3, 0.5, 0.7]
    expected = stats.t.interval(0.95, 2, loc=0.5, scale=stats.sem(values))
    assert seed_interval(values) == pytest.approx(list(expected))
    assert seed_interval([1.0]) is None


def test_the_published_page_is_that_of_its_report() -> None:
    found = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert PUBLISHED.with_suffix(".md").read_text(encoding="utf-8") == page(found, "dr_mas_cells.png")
    assert found["settings"] == json.loads(json.dumps(dataclasses.asdict(StudySettings())))
    for name, published in found["regimes"].items():
        regime = json.loads(json.dumps(dataclasses.asdict(REGIMES[name])))
        assert {key: published[key] for key in regime} == regime
        assert list(published["arms"]) == REGIMES[name].arms()
        assert all(arm["seeds"] == [0, 1, 2] for arm in published["arms"].values())


def test_the_published_lemma_is_within_its_bounds() -> None:
    dealt = json.loads(PUBLISHED.read_text(encoding="utf-8"))["lemma"]["dealt"]
    assert dealt["fit"]["all"]["slope"] == pytest.approx(1, abs=0.1)
    assert dealt["fit"]["all"]["r2"] >= 0.95
    for ends in dealt["agent_wise"].values():
        assert ends == pytest.approx([1, 1], abs=0.1)
