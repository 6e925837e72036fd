"""Runs and tournaments of games on the command line: outcomes instead of one success, resumption, mistakes."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.cli import main
from benchmarks.metrics import bootstrap_interval, wilson_interval
from benchmarks.outcomes import Tally, forfeiters, outcomes
from benchmarks.report import print_report
from benchmarks.results import ResultsFolder
from benchmarks.summary import summarize
from trainers.rollout.records import Episode, Turn


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def turn(agent: str, **info: Any) -> dict[str, Any]:
    return {"agent": agent, "info": info}


def test_outcomes_are_those_of_the_last_turn_or_of_the_reward() -> None:
    parts = {"player_0": {"team": 1.0}, "player_1": {"team": -1.0}}
    record = {"turns": [turn("player_0"), turn("player_1", outcome="loss"), turn("player_0", outcome="win")]}
    assert outcomes({**record, "reward_parts": parts}) == {"player_0": "win", "player_1": "loss"}
    # player_0 forfeited before player_1 ever moved: there is no turn of player_1 to say so.
    record = {"turns": [turn("player_0", outcome="loss", forfeit="player_0")]}
    parts = {"player_0": {"team": -1.0}, "player_1": {"team": 1.0}}
    assert outcomes({**record, "reward_parts": parts}) == {"player_0": "loss", "player_1": "win"}
    assert forfeiters({**record, "reward_parts": parts}) == {"player_0"}
    assert outcomes({"turns": [], "reward_parts": {"player_0": {}}}) == {"player_0": "draw"}
    assert forfeiters({"turns": [turn("player_0", forfeit="player_0, player_1")]}) == {"player_0", "player_1"}
    tally = Tally()
    for outcome in ("win", "draw", "loss", "loss"):
        tally.add(outcome, forfeited=outcome == "loss")
    assert (tally.games, tally.points, tally.forfeit) == (4, 1.5, 2)


def game(task: int, sample: int, outcome: str, forfeit: str | None = None) -> Episode:
    other = {"win": "loss", "loss": "win", "draw": "draw"}[outcome]
    paid = {"win": 1.0, "draw": 0.0, "loss": -1.0}[outcome]
    more = {} if forfeit is None else {"forfeit": forfeit}
    turns = [
        Turn("e", "t", agent, "p", 0, 0, "o", "a", info={"outcome": got, **more})
        for agent, got in (("player_0", outcome), ("player_1", other))
    ]
    parts = {"player_0": {"team": paid}, "player_1": {"team": -paid}}
    returns = {"player_0": paid, "player_1": -paid}
    success = outcome != "draw" and forfeit is None
    return Episode(f"t{task}#{sample}", "g-v0", f"t{task}", task, "h", sample, 0, turns, returns, parts, success)


def write(path: Path, games: list[Episode], samples: int) -> Path:
    tasks = {"name": "g", "split": "all", "size": 9, "fingerprint": "f"}
    identity = {"env": "g-v0", "tasks": tasks, "n": 2, "samples": samples, "seed": 0}
    with ResultsFolder(path, {"identity": identity, "context": {"label": "p", "zero_sum": True}}) as folder:
        for episode in games:
            folder.add(episode)
    return path


def test_outcomes_by_hand() -> None:
    path = write(Path("run"), [game(0, 0, "win"), game(0, 1, "draw"), game(1, 0, "loss", "player_0")], 2)
    summary = summarize(path)
    assert (summary["solved"], summary["avg_at_k"], summary["pass_at_k"]) == (None, None, {})
    first, second = summary["outcomes"]["player_0"], summary["outcomes"]["player_1"]
    assert {name: value["count"] for name, value in first.items()} == {
        "wins": 1, "draws": 1, "losses": 1, "forfeits": 1,
    }  # fmt: skip
    assert first["wins"]["value"] == 0.25  # tasks weigh equally: (1/2 + 0/1) / 2
    assert first["wins"]["interval"] == bootstrap_interval([0.5, 0.0])
    assert first["losses"]["value"] == second["wins"]["value"] == 0.5
    assert second["forfeits"]["count"] == 0
    once = summarize(write(Path("once"), [game(0, 0, "win"), game(1, 0, "draw")], 1))
    assert once["outcomes"]["player_1"]["draws"]["interval"] == wilson_interval(1, 2)


def test_report_shows_outcomes_instead_of_success() -> None:
    console = Console(file=io.StringIO(), width=80)
    print_report([write(Path("run"), [game(0, 0, "win"), game(1, 0, "loss", "player_0")], 1)], console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "success" not in text
    assert "avg@" not in text
    for row in ("wins", "draws", "losses", "forfeits"):
        assert re.search(rf"^  {row} +\d: \d+\.\d % \[", text, re.MULTILINE)


def test_games_and_other_runs_in_one_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "math-1agent", "--policy", "oracle", "-n", "2", "--out", "math", "--quiet"]) == 0
    players = ["--policy", "player_0=random", "--policy", "player_1=oracle"]
    assert main(["run", "tictactoe", *players, "-n", "20", "--out", "game"]) == 0
    shown = capsys.readouterr()
    assert re.search(r"20/20 episodes, player_0 \d/\d+/\d+, player_1 \d+/\d+/0 won/drawn/lost, ", shown.err)
    tournament = ["tournament", "tictactoe", "--policy", "random", "--policy", "oracle", "-n", "1", "--quiet"]
    assert main([*tournament, "--out", "t"]) == 0
    capsys.readouterr()
    assert main(["report", "math", "game", "t", "--json"]) == 0
    math, games, rated = json.loads(capsys.readouterr().out)
    assert math["outcomes"] is None
    assert math["avg_at_k"]["value"] == 1.0
    assert games["outcomes"]["player_1"]["losses"]["count"] == 0
    assert "elo" in rated["players"]["oracle"]
    assert main(["report", "math", "game", "t"]) == 0
    text = capsys.readouterr().out
    line = next(line for line in text.splitlines() if line.startswith("  success"))
    assert line.split()[1:] == ["2", "of", "2", "–"]
    assert "Games of game" in text
    assert "Ratings (" in text


def test_a_tournament_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["tournament", "kuhn-poker", "--policy", "random", "--policy", "good=oracle", "-n", "6", "--out", "t"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "good vs random: 12 episodes -> t" in shown.err
    assert "Ratings (the mean of all ratings is 0" in shown.out
    assert "First seat: " in shown.out
    assert shown.out.rstrip().endswith("results: t")
    whole = Path("t/episodes.jsonl").read_bytes()
    Path("t/episodes.jsonl").write_bytes(whole.partition(b"\n")[2])
    assert main(["tournament", "--resume", "--out", "t", "--quiet"]) == 0
    assert Path("t/episodes.jsonl").read_bytes() == whole
    capsys.readouterr()
    for arguments, message in (
        (["tournament", "--resume", "--out", "t", "--seed", "4"], "leave out: --seed"),
        (["run", "--resume", "--out", "t"], "t holds a tournament. Go on with: llm-bench tournament --resume --out t"),
        (command, "Add --resume"),
        (["tournament", "--resume"], "Name a game, or go on with a tournament"),
        (["tournament", "math-2agent", "--policy", "random", "--policy", "oracle"], "is no game for a tournament"),
        (["tournament", "tictactoe"], "at least two players"),
        (["tournament", "tictactoe", "--policy", "random", "--policy", "mcts:x=1"], "no option 'x'"),
        (["run", "math-2agent", "--policy", "minimax", "-n", "1"], "They know: tictactoe"),
    ):
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_default_folder_of_an_openspiel_tournament(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyspiel")
    players = ["--policy", "random", "--policy", "mcts:sims=4"]
    assert main(["tournament", "openspiel/tic_tac_toe", *players, "-n", "1", "--quiet"]) == 0
    (run,) = Path("runs").iterdir()
    assert re.fullmatch(r"openspiel-tic_tac_toe-tournament-random-mcts_sims_4-\d{8}-\d{6}", run.name)


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tournament", "--help"])
    text = capsys.readouterr().out
    assert "llm-bench tournament tictactoe --policy minimax" in text
    assert "Bradley–Terry" in text
    assert "mcts:sims=500" in text
