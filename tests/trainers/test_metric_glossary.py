"""The glossary of metrics holds every name that a run logs, and every name that the report draws."""

from __future__ import annotations

import json
import re

import pytest

from trainers.api import train
from trainers.models import build_tiny_model
from trainers.run_report_panels import SECTIONS
from trainers.tracking import read_metrics


@pytest.fixture(scope="module")
def defined(repository):
    """The patterns of the first columns of docs/metrics.md."""
    rows = [line for line in (repository / "docs" / "metrics.md").read_text().splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    assert len(names) == len(set(names)), "a name is defined twice"
    assert len(names) > 60
    return [re.compile(re.sub(r"<\w+>", r"[^/]+", name)) for name in names]


def missing(defined, names):
    return sorted(name for name in names if not any(pattern.fullmatch(name) for pattern in defined))


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glossary")
    words = [rf"\boxed{{{n}}}" for n in range(4)] + ["<verify>approve</verify>", "<verify>reject</verify>", "[bet]"]
    model = build_tiny_model(folder / "m", vocab=words, hidden_size=16, layers=1, head_dim=8, init_std=0.1)
    rows = [{"question": f"Two ({i})?", "answer": "2"} for i in range(30)]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "env": {"id": "math-2agent", "tasks": str(folder / "t.jsonl"), "split": "train"},
        "policies": {"all": {"model": str(model), "backend": "hf", "sampling": {"max_tokens": 2}}},
        "updates": 1,
        "tasks_per_update": 3,
        "samples_per_task": 4,
        "evaluation": {"every": 1, "tasks": 2},
    }


GAME = {"env": {"id": "kuhn-poker", "split": None}, "evaluation": {"every": 1, "tasks": 2, "opponent": "random"}}


@pytest.mark.parametrize(
    ("preset", "loss", "changes"),
    [
        ("dr_mas", {"kl_coef": 0.01, "dual_clip": 3.0}, {"dynamic_sampling": 1}),
        ("dr_mas", {}, {"max_staleness": 1}),
        ("at_grpo", {}, {}),
        ("gae", {}, {}),
        ("rae", {}, GAME),
    ],
)
def test_every_metric_of_a_run_is_defined(settings, tmp_path, defined, preset, loss, changes):
    train({**settings, "algorithm": {"preset": preset, "loss": loss}, **changes}, out=tmp_path / "run")
    names = {name for row in read_metrics(tmp_path / "run") for name in row} - {"update"}
    assert len(names) > 30
    assert missing(defined, names) == []


def test_every_metric_of_the_report_is_defined(defined):
    patterns = {pattern for _, panels in SECTIONS for panel in panels for pattern in panel.metrics}
    assert missing(defined, {pattern.replace("*", "some") for pattern in patterns}) == []


def test_a_name_that_nobody_defined_is_found(defined):
    assert missing(defined, ["agent/a_0/length", "agent/a_0/novelty", "train"]) == ["agent/a_0/novelty", "train"]
