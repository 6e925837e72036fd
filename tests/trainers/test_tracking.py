"""The numbers of a run: what is written, what a resumed run keeps, what is drawn."""

from __future__ import annotations

import json
import math
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainers import run_versions
from trainers.tracking import Tracker, is_torn, plot, read_metrics


@pytest.fixture
def write(tmp_path):
    def run(updates, **options):
        tracker = Tracker(tmp_path, **options)
        for update in updates:
            tracker.log(update, {"train/success": update / 10, "agent/solver_0/return": 0.5})
        tracker.close()

    return run


def updates(run_dir):
    return [row["update"] for row in read_metrics(run_dir)]


def scalars(run_dir, name):
    events = EventAccumulator(str(run_dir / "tensorboard")).Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_a_line_an_update(tmp_path, write):
    write([0, 1])
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"update": 0, "agent/solver_0/return": 0.5, "train/success": 0.0},
        {"update": 1, "agent/solver_0/return": 0.5, "train/success": 0.1},
    ]
    assert scalars(tmp_path, "train/success") == [(0, 0.0), (1, pytest.approx(0.1))]


def test_a_line_is_there_as_soon_as_it_is_logged(tmp_path):
    tracker = Tracker(tmp_path)
    tracker.log(1, {"train/success": 1.0})
    assert updates(tmp_path) == [1]
    tracker.close()


def test_what_is_not_finite_is_null_and_is_not_drawn(tmp_path):
    tracker = Tracker(tmp_path)
    tracker.log(1, {"a/nan": math.nan, "a/inf": -math.inf, "a/fine": 1.0, "train/success": math.nan})
    tracker.close()
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert "NaN" not in line
    assert "Infinity" not in line
    assert json.loads(line) == {"update": 1, "a/nan": None, "a/inf": None, "a/fine": 1.0, "train/success": None}
    assert EventAccumulator(str(tmp_path / "tensorboard")).Reload().Tags()["scalars"] == ["a/fine"]
    assert plot(tmp_path).is_file()


def test_a_resumed_run_drops_what_came_after_its_checkpoint(tmp_path, write):
    write([0, 1, 2, 3])
    write([2, 3, 4], resume_after=1)
    assert updates(tmp_path) == [0, 1, 2, 3, 4]
    assert [step for step, _ in scalars(tmp_path, "train/success")] == [0, 1, 2, 3, 4]


def test_a_run_that_resumes_before_its_first_checkpoint_drops_all(tmp_path, write):
    write([0, 1])
    write([0, 1, 2], resume_after=-1)
    assert updates(tmp_path) == [0, 1, 2]
    assert [step for step, _ in scalars(tmp_path, "train/success")] == [0, 1, 2]


def test_a_torn_last_line_is_left_out_and_overwritten(tmp_path, write):
    write([0, 1])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 2, "train/succ')
    assert updates(tmp_path) == [0, 1]
    write([2], resume_after=1)
    assert updates(tmp_path) == [0, 1, 2]


def test_a_damaged_line_in_the_middle_is_named(tmp_path, write):
    write([0, 1])
    path = tmp_path / "metrics.jsonl"
    path.write_text("{broken\n" + path.read_text())
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 1: not JSON"):
        read_metrics(tmp_path)


def test_a_run_without_metrics_has_none(tmp_path):
    assert read_metrics(tmp_path) == []


def test_the_plot_shows_every_agent(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    drawn = {}
    real = Axes.plot

    def note(self, x, y, *args, label, **kwargs):
        drawn[label] = (list(x), list(y))
        return real(self, x, y, *args, label=label, **kwargs)

    monkeypatch.setattr(Axes, "plot", note)
    tracker = Tracker(tmp_path)
    tracker.log(0, {"eval/success": 0.25})
    tracker.log(1, {"train/success": 0.5, "agent/solver_0/return": 0.5, "agent/verifier_0/grad_norm": 2.0})
    tracker.log(2, {"train/success": 1.0, "agent/solver_0/return": 1.0, "agent/solver_0/inflation": math.nan})
    tracker.close()
    assert plot(tmp_path).read_bytes().startswith(b"\x89PNG")
    assert drawn == {
        "success": ([1, 2], [0.5, 1.0]),
        "held-out success": ([0], [0.25]),
        "solver_0 return": ([1, 2], [0.5, 1.0]),
        "verifier_0 grad norm": ([1], [2.0]),
    }


def test_wandb_that_is_not_installed_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ImportError, match=r"llm-envs\[viz\]"):
        Tracker(tmp_path, wandb="mine")


def test_why_a_run_stopped_is_written_down_and_forgotten_when_it_goes_on(tmp_path):
    tracker = Tracker(tmp_path)
    tracker.log(4, {"train/success": 1.0})
    tracker.stopped(ValueError("too much"))
    tracker.close()
    reason = json.loads((tmp_path / "stopped.json").read_text())
    assert reason == {"update": 5, "error": "ValueError", "message": "too much"}
    Tracker(tmp_path, resume_after=4).close()
    assert not (tmp_path / "stopped.json").exists()


def test_versions_are_noted_at_the_start_and_when_they_change(tmp_path, monkeypatch, write):
    def entries():
        return json.loads((tmp_path / "versions.json").read_text())

    write([0, 1, 2])
    (first,) = entries()
    assert first["after_update"] == 0
    assert {"llm-envs", "python", "torch", "transformers", "numpy"} <= set(first["versions"])
    write([2], resume_after=1)
    assert entries() == [first]
    monkeypatch.setattr(run_versions, "package_versions", lambda: {"torch": "99"})
    write([3], resume_after=2)
    assert entries() == [first, {"after_update": 2, "versions": {"torch": "99"}}]
    monkeypatch.undo()
    write([2, 3], resume_after=1)  # from an older checkpoint: what came later is gone
    assert entries() == [first]


@pytest.mark.parametrize(
    ("text", "torn"),
    [('{"update": 1}\n', False), ('{"update": 1}', False), ('{"update": 1}\n{"upd', True), ("", False)],
)
def test_a_torn_line_is_known(tmp_path, text, torn):
    (tmp_path / "metrics.jsonl").write_text(text)
    assert is_torn(tmp_path) is torn
    assert not is_torn(tmp_path / "elsewhere")
