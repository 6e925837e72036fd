"""What the viewer reads: rows of the index by hand, episodes by byte offset, files that change, searches."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.metrics import wilson_interval
from benchmarks.results import ResultsError, ResultsFolder
from benchmarks.summary import summarize
from benchmarks.viewer.index import ERROR, FAILURE, LEVELS, SUCCESS, Index
from benchmarks.viewer.source import Changed, Source
from tests.benchmarks.viewer.synthetic import (
    config,
    finish,
    math_episode,
    tree_episode,
    turn,
    write_math_run,
    write_run,
    write_training_run,
)
from trainers.rollout.records import Episode


def small_episode(number: int = 0, **fields: Any) -> Episode:
    """Two turns: the solver is refused and pays 0.1, then the verifier; both get 1 in the end."""
    key = f"t/{number}#0"
    turns = [
        turn(key, "solver_0", 0, "What?", "a" * 40, invalid="No box.", reward_parts={"invalid": -0.1, "team": 1.0}),
        turn(key, "verifier_0", 1, "What? And?", "b" * 8, reward_parts={"team": 1.0}, latency_s=0.5),
    ]
    return finish(number, key, turns, success=True, **fields)


def test_a_row_says_what_happened(tmp_path: Path) -> None:
    index = Source(write_run(tmp_path / "run", [small_episode()])).index()
    row = {name: values[0] for name, values in index["columns"].items()}
    assert row == {
        "id": "t/0#0", "task": "t/0", "hash": "hash-0", "sample": 0, "status": SUCCESS, "ended": "terminated",
        "turns": 2, "tokens_in": 1 + 2, "tokens_out": 10 + 2, "invalid": 1, "wall_s": 0.5, "tree": 0,
        "difficulty": None, "last": "b" * 8, "error": None, "update": None,
    }  # fmt: skip
    solver = index["agents"]["solver_0"]
    assert solver["columns"] == {"return": [0.9], "turns": [1], "invalid": [1], "tokens_out": [10]}
    assert solver["reward_parts"] == {"invalid": -0.1, "team": 1.0}
    assert index["agents"]["verifier_0"]["latency_s"] == {"median": 0.5, "p90": 0.5}
    assert index["reasons"] == [("solver_0", "No box.", 1)]


def test_success_is_what_the_report_says(tmp_path: Path) -> None:
    path = write_math_run(tmp_path / "run", 25, samples=3, seed=4)
    found, told = Source(path).index()["success"], summarize(path)["avg_at_k"]
    assert (found["value"], found["interval"]) == (told["value"], told["interval"])
    assert (found["tasks"], found["episodes"]) == (25, 75)


def test_success_by_difficulty_groups_neighbouring_levels() -> None:
    index = Index()
    for number in range(400):
        level = number % 20
        last = turn(f"t/{number}#0", "solver_0", 0, "?", "!", info={"optimal_length": level})
        index.add(finish(number, f"t/{number}#0", [last], agents=["solver_0"], success=level < 10).to_dict())
    levels = index.to_dict()["difficulty"]
    assert 2 < len(levels) <= LEVELS
    assert sum(level["episodes"] for level in levels) == 400
    assert (levels[0]["from"], levels[-1]["to"]) == (0, 19)
    assert (levels[0]["value"], levels[-1]["value"]) == (1.0, 0.0)
    assert tuple(levels[0]["interval"]) == wilson_interval(levels[0]["episodes"], levels[0]["episodes"])
    assert all(one["to"] < other["from"] for one, other in pairwise(levels))


def test_agents_that_come_late_have_empty_rows_before() -> None:
    index = Index()
    one = turn("t/0#0", "solver_0", 0, "?", "!")
    index.add(finish(0, "t/0#0", [one], agents=["solver_0"]).to_dict())
    other = turn("t/1#0", "critic_0", 0, "?", "!", invalid="no")
    index.add(finish(1, "t/1#0", [other], agents=["critic_0"]).to_dict())
    agents = index.to_dict()["agents"]
    assert agents["critic_0"]["columns"]["invalid"] == [None, 1]
    assert agents["solver_0"]["columns"]["invalid"] == [0, None]


def test_failed_episodes_are_listed_unless_they_were_played_again(tmp_path: Path) -> None:
    failed = [small_episode(n, error="PolicyError: gone") for n in (0, 1)]
    with ResultsFolder(tmp_path / "run", config(2)) as folder:
        for episode in [failed[0], failed[1], failed[1], small_episode(0)]:
            folder.add(episode)
    source = Source(tmp_path / "run")
    columns = source.index()["columns"]
    assert columns["id"] == ["t/0#0", "t/1#0"]
    assert columns["status"] == [SUCCESS, ERROR]
    assert columns["error"] == [None, "PolicyError: gone"]
    assert source.episode(1, source.generation)["error"] == "PolicyError: gone"
    assert source.index()["success"]["episodes"] == 1


def test_games_have_an_outcome_for_each_player(tmp_path: Path) -> None:
    key, lost = "game/0#0", {"outcome": "loss", "forfeit": "player_1"}
    turns = [
        turn(key, "player_0", 0, "?", "[0]", reward_parts={"team": 1.0}, info={"outcome": "win"}),
        turn(key, "player_1", 1, "?", "rubbish", reward_parts={"team": -1.0}, info=lost),
    ]
    game = finish(0, key, turns, agents=["player_0", "player_1"])
    agents = Source(write_run(tmp_path / "run", [game], zero_sum=True)).index()["agents"]
    assert {name: agent["columns"]["outcome"] for name, agent in agents.items()} == {
        "player_0": ["win"],
        "player_1": ["loss"],
    }
    assert agents["player_1"]["columns"]["forfeit"] == [1]


def test_a_file_of_trees_counts_the_chosen_path_and_no_success(tmp_path: Path) -> None:
    path = tmp_path / "trees.jsonl"
    path.write_text("".join(tree_episode(n).to_json() + "\n" for n in range(3)), encoding="utf-8")
    source = Source(path)
    index = source.index()
    assert index["kind"] == "episodes"
    assert index["columns"]["turns"] == [3, 3, 3]
    assert index["columns"]["last"][0] == "candidate 3 of turn 2"
    assert index["success"] is None
    assert len(source.episode(2, source.generation)["turns"]) == 12


def test_a_training_run_has_its_metrics(tmp_path: Path) -> None:
    index = Source(write_training_run(tmp_path / "train", updates=5)).index()
    assert index["kind"] == "training"
    assert [row["update"] for row in index["metrics"]] == [0, 1, 2, 3, 4]
    assert index["columns"]["id"] == []
    assert index["config"] == {"algorithm": {"preset": "dr_mas"}}


@pytest.mark.parametrize("make", ["missing", "empty", "other"])
def test_what_is_no_run_is_refused_by_name(tmp_path: Path, make: str) -> None:
    path = tmp_path / make
    if make != "missing":
        path.mkdir()
    if make == "other":
        (path / "notes.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ResultsError, match=make):
        Source(path)


@pytest.mark.parametrize("line", ['{"id": "x"}', "[1]", "not json"])
def test_a_line_that_is_no_episode_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "episodes.jsonl"
    path.write_text(small_episode().to_json() + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(ResultsError, match=r"episodes\.jsonl"):
        Source(path).index()


def test_episodes_are_read_back_without_tokens_and_with_latency(tmp_path: Path) -> None:
    made = [math_episode(n, random.Random(n)) for n in range(7)]
    source = Source(write_run(tmp_path / "run", made))
    source.index()
    for number in (6, 0, 3):
        record = source.episode(number, source.generation)
        assert record["id"] == made[number].id
        assert [one["action"] for one in record["turns"]] == [one.action for one in made[number].turns]
        assert record["turns"][1]["latency_s"] == pytest.approx(made[number].turns[1].latency_s, abs=1e-6)
        assert "prompt_ids" not in record["turns"][0]
    with pytest.raises(IndexError):
        source.episode(7, source.generation)


def test_a_torn_last_line_is_left_out_and_a_growing_file_read_again(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    whole = small_episode(0).to_json() + "\n"
    path.write_text(whole + whole[:50], encoding="utf-8")
    source = Source(path)
    assert source.index()["columns"]["id"] == ["t/0#0"]
    before = source.generation
    assert source.index()["generation"] == before
    path.write_text(whole + small_episode(1).to_json() + "\n", encoding="utf-8")
    assert source.episode(0, before)["id"] == "t/0#0"  # the old places still hold
    assert source.index()["columns"]["id"] == ["t/0#0", "t/1#0"]
    with pytest.raises(Changed):
        source.episode(0, before)


def test_lines_that_have_moved_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    lines = [small_episode(n).to_json() + "\n" for n in range(2)]
    path.write_text("".join(lines), encoding="utf-8")
    source = Source(path)
    source.index()
    path.write_text("".join(reversed(lines)), encoding="utf-8")
    with pytest.raises(Changed):
        source.episode(0, source.generation)


def searched(source: Source, query: str, seconds: float = 10.0) -> list[int]:
    found: list[int] = []
    start: int | None = 0
    while start is not None:
        part = source.search(query, start, source.generation, seconds)
        found += part["found"]
        start = part["next"]
    return found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("needle", [1]),
        ("NEEDLE", [1]),
        ('a "quoted"\nline', [2]),
        ("\x00", [3]),
        ("straße", [4]),
        ("ÉTÉ", [4]),
        ("no box", [0, 1, 2, 3, 4]),
        ("t/3", [3]),
        ("observation", []),
        ("reward_parts", []),
        ("absent", []),
    ],
)
@pytest.mark.parametrize("seconds", [10.0, 0.0])
def test_a_search_finds_texts_and_no_field_names(
    tmp_path: Path, query: str, expected: list[int], seconds: float
) -> None:
    texts = ["hay", "a Needle", 'a "quoted"\nline', "nul \x00 here", "Straße, été"]
    made = [small_episode(n) for n in range(len(texts))]
    for episode, text in zip(made, texts, strict=True):
        episode.turns[1].action = text
    source = Source(write_run(tmp_path / "run", made))
    source.index()
    assert searched(source, query, seconds) == expected


def test_statuses_are_distinct() -> None:
    assert len({FAILURE, SUCCESS, ERROR}) == 3


def test_summaries_are_of_results_folders_only(tmp_path: Path) -> None:
    run = write_math_run(tmp_path / "run", 3)
    assert Source(run).summary() == summarize(run)
    assert Source(run / "episodes.jsonl").summary() is None
