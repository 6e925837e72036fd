"""The study of a language model that learns as a team: its tasks, its demonstrations, its run, its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import llm_envs
from benchmarks.studies.llm_learns import LearnsSettings, run_study
from benchmarks.studies.llm_learns_page import DOCS, page, write_page
from benchmarks.studies.llm_learns_tasks import demonstrate, one_digit_tasks
from trainers.env_texts import env_texts
from trainers.models import build_tiny_model
from trainers.rollout.records import Episode


def test_no_pair_of_digits_is_on_both_sides() -> None:
    rows = one_digit_tasks(22, 0)
    sides = {
        split: {
            (q.split()[3], *sorted((q.split()[2], q.split()[4].rstrip("?")))) for q in (r["question"] for r in found)
        }
        for split, found in rows.items()
    }
    assert not sides["train"] & sides["test"]
    assert (len(sides["train"]), len(sides["test"])) == (66, 44)
    for row in rows["train"] + rows["test"]:
        a, operator, b = row["question"].removeprefix("What is ").removesuffix("?").split()
        assert int(row["answer"]) == (int(a) + int(b) if operator == "+" else int(a) - int(b))
    assert rows != one_digit_tasks(22, 1)


def test_only_right_answers_and_all_verdicts_are_demonstrated(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    rows = one_digit_tasks(22, 0)["train"][:40]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    demonstrate(file, tmp_path / "demonstrations.jsonl", wrong=0.5, seed=0)
    lines = (tmp_path / "demonstrations.jsonl").read_text(encoding="utf-8").splitlines()
    episodes = [Episode.from_json(line) for line in lines]
    env = llm_envs.make("math-2agent", tasks=str(file)).unwrapped
    verdicts = set()
    for episode in episodes:
        gold = rf"\boxed{{{env.tasks[episode.task_index].answer}}}"
        assert {turn.action for turn in episode.turns if turn.agent == "solver_0"} <= {gold}
        (verdict,) = [turn for turn in episode.turns if turn.agent == "verifier_0"]
        assert ("approve" in verdict.action) == (gold in verdict.observation)
        verdicts.add(verdict.action)
    assert len(episodes) == len(rows)
    assert len(verdicts) == 2


def test_the_study_runs_and_is_not_repeated(tmp_path: Path) -> None:
    words = [str(number) for number in range(19)] + [
        r"\boxed{",
        "}",
        "<verify>approve</verify>",
        "<verify>reject</verify>",
    ]
    texts = [*env_texts("math-2agent", tasks=8), "What is 0 + 1 - 2?", "Answer at once."]
    model = build_tiny_model(tmp_path / "tiny", texts=[*texts, *words], hidden_size=32, layers=1, max_length=256)
    settings = LearnsSettings(
        test_pairs=2, updates=2, tasks=2, samples=2, rank=2, curve_every=1, curve_samples=1, eval_samples=2,
        sft_learning_rate=1e-2, max_tokens=6, model=str(model), backend="hf",
    )  # fmt: skip
    lines: list[str] = []
    result = run_study(settings, tmp_path / "study", lines.append)
    assert lines[0] == "warm_start"
    report = json.loads(result.read_text(encoding="utf-8"))
    assert [row["update"] for row in report["training"]["curve"]] == [0, 1, 2]
    assert all("eval/team_return" in row for row in report["training"]["curve"])
    for stage in ("before", "after"):
        found = report[stage]["sampled"]
        assert found["episodes"] == 2 * report["tasks"]
        assert found["interval"][0] <= found["team_reward"] <= found["interval"][1]
    before, after = (report[stage]["sampled"]["team_reward"] for stage in ("before", "after"))
    assert report["difference"]["sampled"]["difference"] == pytest.approx(after - before)
    lines.clear()
    assert (
        run_study(settings, tmp_path / "study", lines.append).read_text(encoding="utf-8")
        == json.dumps(report, indent=1) + "\n"
    )
    assert lines == []
    docs = tmp_path / "docs"
    docs.mkdir()
    assert "no GPU" in write_page(result, docs).read_text(encoding="utf-8")
    assert (docs / "llm_learns.png").is_file()
    with pytest.raises(ValueError, match="other settings"):
        run_study(LearnsSettings(), tmp_path / "study")


def test_the_page_is_that_of_its_data() -> None:
    report = json.loads((DOCS / "llm_learns.json").read_text(encoding="utf-8"))
    assert (DOCS / "llm_learns.md").read_text(encoding="utf-8") == page(report)
    assert report["difference"]["sampled"]["interval"][0] > 0
