"""Summaries by hand, and tables that show them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.live import LiveView
from benchmarks.metrics import bootstrap_interval, wilson_interval
from benchmarks.report import print_report, report_json
from benchmarks.results import ResultsFolder
from benchmarks.summary import Counts, summarize
from trainers.rollout.records import Episode, Turn

IDENTITY: dict[str, Any] = {
    "env": "math-2agent-v0",
    "tasks": {"name": "tiny", "split": "test", "size": 9, "fingerprint": "f"},
    "n": 2,
    "samples": 2,
    "seed": 0,
}
CONFIG = {"identity": IDENTITY, "context": {"label": "vllm:[bold]x\x1b[31m"}}


def turn(agent: str, **changes: Any) -> Turn:
    return Turn("e", "t", agent, "p", 0, 0, "o", "a", **changes)


def episode(index: int, sample: int, turns: list[Turn], success: bool, **changes: Any) -> Episode:
    parts: dict[str, dict[str, float]] = {
        "solver_0": {"team": float(success), "invalid": -0.1},
        "verifier_0": {"team": float(success)},
    }
    returns = {agent: sum(values.values()) for agent, values in parts.items()}
    return Episode(
        f"t{index}#{sample}",
        "math-2agent-v0",
        f"t{index}",
        index,
        "h",
        sample,
        0,
        turns,
        returns,
        parts,
        success,
        **changes,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    solver = turn("solver_0", prompt_tokens=10, completion_tokens=20, finish_reason="length", latency_s=2.0)
    verifier = turn("verifier_0", prompt_tokens=30, completion_tokens=5, invalid="no tag", latency_s=1.0)
    undecided = turn("solver_0", prompt_tokens=10, completion_tokens=20, info={"verdict": "undecided"}, latency_s=4.0)
    with ResultsFolder(tmp_path / "run", CONFIG) as results:
        results.add(episode(0, 0, [solver, verifier], True, terminated=True))
        results.add(episode(0, 1, [undecided], False, truncated=True))
        results.add(episode(1, 0, [solver, verifier, solver], False, truncated=True))
        results.add(episode(1, 1, [], False, error="PolicyError: no"))
        results.add(episode(1, 1, [], False, error="PolicyError: no, again"))
    return tmp_path / "run"


def test_summary_by_hand(folder: Path) -> None:
    summary = summarize(folder)
    assert (summary["planned"], summary["episodes"], summary["failed"], summary["complete"]) == (4, 3, 1, False)
    assert summary["solved"] == 1
    assert summary["avg_at_k"] == {"value": 0.25, "interval": bootstrap_interval([0.5, 0.0])}  # (1/2 + 0/1) / 2
    assert summary["pass_at_k"]["1"]["value"] == 0.25
    # Only task 0 has two episodes so far.
    assert summary["pass_at_k"]["2"] == {"value": 1.0, "interval": wilson_interval(1, 1), "tasks": 1}
    assert summary["turns"] == 2.0
    assert summary["tokens_in"] == pytest.approx((10 + 30 + 10 + 10 + 30 + 10) / 3)
    assert summary["tokens_out"] == pytest.approx((20 + 5 + 20 + 20 + 5 + 20) / 3)
    assert summary["invalid_rate"] == pytest.approx(2 / 6)
    assert summary["undecided"] == 1
    assert (summary["terminated"], summary["truncated"]) == pytest.approx((1 / 3, 2 / 3))
    solver, verifier = summary["agents"]["solver_0"], summary["agents"]["verifier_0"]
    assert solver["turns"] == pytest.approx(4 / 3)
    assert solver["cut_rate"] == 0.75
    assert solver["invalid_rate"] == 0.0
    assert solver["latency_s"] == 2.0  # of 2, 4, 2, 2
    assert solver["return"] == pytest.approx((0.9 - 0.1 - 0.1) / 3)
    assert solver["reward_parts"] == pytest.approx({"team": 1 / 3, "invalid": -0.1})
    assert verifier["tokens_in"] == 20.0
    assert verifier["invalid_rate"] == 1.0
    assert json.loads(json.dumps(summary)) == json.loads(report_json([folder]))[0]


def test_one_sample_a_task_has_a_wilson_interval(tmp_path: Path) -> None:
    config = {"identity": {**IDENTITY, "samples": 1}, "context": {"label": "p"}}
    with ResultsFolder(tmp_path / "run", config) as results:
        results.add(episode(0, 0, [turn("solver_0")], True))
        results.add(episode(1, 0, [turn("solver_0")], False))
    summary = summarize(tmp_path / "run")
    assert summary["avg_at_k"]["interval"] == wilson_interval(1, 2)
    assert list(summary["pass_at_k"]) == ["1"]
    assert summary["tokens_in"] is None  # no policy counted any


def test_an_empty_run_has_no_rates(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "run", CONFIG):
        pass
    summary = summarize(tmp_path / "run")
    assert summary["avg_at_k"] is None
    assert summary["turns"] is None
    assert "–" in show([tmp_path / "run"])


def test_a_torn_line_is_left_out(folder: Path) -> None:
    with (folder / "episodes.jsonl").open("ab") as file:
        file.write(b'{"id": "t1#1", "task')
    assert summarize(folder)["episodes"] == 3


def show(paths: list[Path], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_report(paths, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_report_shows_the_figures(folder: Path) -> None:
    text = show([folder])
    table = {line.split("  ")[1]: line for line in text.splitlines() if line.startswith("  ") and line.strip()}
    assert "3 of 4" in table["episodes"]
    assert "1 of 3" in table["success"]
    assert "25.0 % [" in table["avg@2"]
    assert "100.0 % [20.7, 100.0]" in table["pass@2"]
    assert "33.3 %" in text
    assert "1 of 4 episodes are missing, 1 of them failed" in text
    assert "no verdict in time" in text


def test_several_runs_are_told_apart(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").symlink_to(folder)
    line = next(line for line in show([Path("run"), Path("other")]).splitlines() if line.startswith("  run "))
    assert line.split() == ["run", "run", "other"]
    assert "  run " not in show([Path("other")])


@pytest.mark.parametrize("width", [60, 80, 200])
def test_report_fits_and_shows_labels_harmlessly(folder: Path, width: int) -> None:
    text = show([folder, folder, folder, folder], width)
    tables = [line for line in text.splitlines() if line.startswith("  ")]
    assert max(map(len, tables)) <= width
    assert text.count("vllm:[bold]x") == 4
    assert "\x1b" not in text


def test_counts() -> None:
    counts = Counts()
    assert counts.success() == "–"
    counts.add(0, True, 10)
    counts.add(1, False, 5)
    assert counts.success() == "50.0 % [9.5, 90.5]"
    counts.add(1, True)
    assert counts.success().startswith("75.0 %")
    assert (counts.episodes, counts.tokens) == (3, 15)


def test_live_view_writes_plain_lines_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), width=80)
    with LiveView(console) as view:
        view.loading(["oracle", "replay:runs/y"])  # nothing to wait for
        view.loading(["oracle", "hf:m"])
        view.start(Path("runs/x"), "label", 3)
        view.stored(0, True)
        view.played(episode(1, 0, [turn("solver_0", completion_tokens=7)], False))
        view.played(episode(1, 1, [], False, error="PolicyError: no"))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[:2] == ["loading oracle, hf:m", "label: 3 episodes -> runs/x"]
    assert len(lines) == 3
    assert lines[2].startswith("3/3 episodes, success 50.0 % [9.5, 90.5], ")
    assert "tokens/s" in lines[2]
    assert lines[2].endswith("1 errors")


def test_live_view_draws_a_bar_in_a_terminal_and_nothing_when_quiet() -> None:
    for quiet in (False, True):
        console = Console(file=io.StringIO(), width=120, force_terminal=True)
        with LiveView(console, quiet=quiet) as view:
            view.start(Path("runs/x"), "label", 2)
            view.played(episode(0, 0, [turn("solver_0")], True))
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("1/2" in text) is not quiet
        assert ("success 100.0 %" in text) is not quiet
