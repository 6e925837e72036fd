"""Tournaments: who meets whom in which seat, what is counted, and that nothing depends on crashes or on order."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.live import LiveView
from benchmarks.ratings import elo_lead
from benchmarks.report import print_report, report_json
from benchmarks.results import ResultsFolder, read_config, read_lines
from benchmarks.runner import RunResult, RunSettings, SettingsError
from benchmarks.tournament import parse_entrants, run_tournament, schedule
from benchmarks.tournament_summary import Table, summarize_tournament
from trainers.policies.base import Completion, Policy, PolicyError, PolicySpecError, Request, make_policy
from trainers.rollout.records import Episode, Turn
from trainers.team import TeamError


class Watcher:
    """An observer that remembers who started and what was played."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.played_ids: list[str] = []

    def loading(self, specs: Sequence[str]) -> None:
        self.loaded = list(specs)

    def start(self, path: Path, label: str, planned: int) -> None:
        self.planned = planned

    def stored(self, task_index: int, success: bool) -> None:
        pass

    def began(self, task_index: int, sample: int) -> None: ...

    def played(self, episode: Episode) -> None:
        self.played_ids.append(episode.id)


def play(path: Path, policies: Sequence[str], make: Any = make_policy, **changes: Any) -> tuple[RunResult, Watcher]:
    settings = RunSettings(env="tictactoe", policies=policies, n=5, out=path)
    watcher = Watcher()
    return asyncio.run(run_tournament(replace(settings, **changes), watcher, make=make)), watcher


# ---- who meets whom ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 5])
def test_schedule(count: int) -> None:
    names = [f"p{index}" for index in range(count)]
    matches = schedule(names)
    assert Counter(matches) == Counter(permutations(names, 2))  # everyone against everyone, once in each seat
    assert schedule(names[::-1]) == matches
    assert [set(one) for one in matches[::2]] == [set(two) for two in matches[1::2]]


def test_every_pairing_plays_every_deal_in_both_seats(tmp_path: Path) -> None:
    result, watcher = play(tmp_path / "t", ["random", "oracle", "other=random"], env="kuhn-poker", n=7)
    assert result.complete
    assert watcher.planned == 7 * 6 == len(watcher.played_ids)
    seats: dict[int, list[tuple[str, str]]] = {}
    for record in read_lines(tmp_path / "t", "episodes.jsonl"):
        by_agent = {turn["agent"]: turn["policy"] for turn in record["turns"]}
        seats.setdefault(record["task_index"], []).append((by_agent["player_0"], by_agent["player_1"]))
        assert len({(record["seed"], record["task_hash"])}) == 1
    assert list(seats) == list(range(7))
    for met in seats.values():
        assert met == schedule(["random", "oracle", "other"])
    seeds = {(r["task_index"], r["seed"]) for r in read_lines(tmp_path / "t", "episodes.jsonl")}
    assert len(seeds) == 7  # all matches of a deal start alike


def test_one_policy_object_serves_all_matches(tmp_path: Path) -> None:
    made: list[tuple[str, dict[str, Any]]] = []
    closed: list[str] = []

    def make(spec: str, **options: Any) -> Policy:
        made.append((spec, options))
        policy = make_policy(spec, **options)
        close = policy.close

        async def count() -> None:
            closed.append(spec)
            await close()

        policy.close = count  # type: ignore[method-assign]
        return policy

    options = {"deep": {"sims": 8}}
    policies = ["a=mcts:sims=4", "b=mcts:sims=4", "deep=mcts", "random"]
    result, watcher = play(tmp_path / "t", policies, make, n=1, options=options)
    assert result.complete
    assert made == [("mcts:sims=4", {}), ("mcts", {"sims": 8}), ("random", {})]
    assert closed == ["mcts:sims=4", "mcts", "random"]
    assert watcher.loaded == ["mcts:sims=4", "mcts", "random"]
    players = read_config(tmp_path / "t")["identity"]["tournament"]["players"]
    assert list(players) == ["a", "b", "deep", "random"]
    assert players["deep"]["options"] == {"sims": 8}


def test_results_do_not_depend_on_order_or_concurrency(tmp_path: Path) -> None:
    policies = ["random", "mcts:sims=10", "oracle"]
    play(tmp_path / "one", policies)
    play(tmp_path / "two", policies[::-1], concurrency=3)
    one, two = ((tmp_path / name / "episodes.jsonl").read_bytes() for name in ("one", "two"))
    assert one == two
    summaries = [summarize_tournament(tmp_path / name) for name in ("one", "two")]
    assert {**summaries[0], "run": ""} == {**summaries[1], "run": ""}
    play(tmp_path / "three", policies, seed=1)
    assert (tmp_path / "three" / "episodes.jsonl").read_bytes() != one


# ---- going on after a crash ----------------------------------------------------------------------------------------

KILLED = """
import asyncio, sys
from pathlib import Path
from benchmarks.live import LiveView
from benchmarks.runner import RunSettings
from benchmarks.tournament import run_tournament
from rich.console import Console
from trainers.policies.base import make_policy
from trainers.policies.scripted import LatencyPolicy

settings = RunSettings(
    env="tictactoe", policies=["random", "oracle", "b=random"], n=15, seed=3, out=Path(sys.argv[1]), resume=True,
    concurrency=6,
)
make = lambda spec: LatencyPolicy(make_policy(spec), median_s=float(sys.argv[2]))
result = asyncio.run(run_tournament(settings, LiveView(Console(stderr=True), quiet=True), make=make))
sys.exit(0 if result.complete else 1)
"""


def test_killed_and_resumed_equals_uninterrupted(tmp_path: Path, repository: Path) -> None:
    def start(path: Path, median_s: float) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", KILLED, str(path), str(median_s)], cwd=repository)

    def lines() -> int:
        file = tmp_path / "run" / "episodes.jsonl"
        return file.read_bytes().count(b"\n") if file.exists() else 0

    assert start(tmp_path / "whole", 0.0).wait(timeout=120) == 0
    whole = (tmp_path / "whole" / "episodes.jsonl").read_bytes()
    assert whole.count(b"\n") == 90
    for wanted in (20, 55):
        process = start(tmp_path / "run", 0.01)
        deadline = time.monotonic() + 60
        while lines() < wanted:
            assert process.poll() is None, "the tournament ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.kill()
        process.wait()
        assert wanted <= lines() < 90
    half = summarize_tournament(tmp_path / "run")
    assert not half["complete"]
    assert sum(player["games"] for player in half["players"].values()) == 2 * half["episodes"]
    assert start(tmp_path / "run", 0.0).wait(timeout=120) == 0
    assert (tmp_path / "run" / "episodes.jsonl").read_bytes() == whole
    summaries = [summarize_tournament(tmp_path / name) for name in ("whole", "run")]
    assert {**summaries[0], "run": ""} == {**summaries[1], "run": ""}


def test_a_changed_player_is_not_resumed(tmp_path: Path) -> None:
    play(tmp_path / "t", ["random", "b=mcts:sims=3"], n=1)
    with pytest.raises(Exception, match=r"tournament\.players\.b\.spec"):
        play(tmp_path / "t", ["random", "b=mcts:sims=4"], n=1, resume=True)
    assert play(tmp_path / "t", ["b=mcts:sims=3", "random"], n=1, resume=True)[0].complete


# ---- what is counted -----------------------------------------------------------------------------------------------


def game(deal: int, sample: int, paid: float, forfeit: str | None = None, silent: bool = False) -> Episode:
    """A game in which the first seat is paid ``paid``; silent: the second seat never moved."""
    outcome = {1: ("win", "loss"), 0: ("draw", "draw"), -1: ("loss", "win")}[(paid > 0) - (paid < 0)]
    info = {} if forfeit is None else {"forfeit": forfeit}
    turns = [
        Turn(
            "e", "t", agent, "p", 0, 0, "o", "a", completion_tokens=3, invalid="no move" if agent == forfeit else None,
            finish_reason="length" if agent == forfeit else "stop", info={"outcome": outcome[seat], **info},
        )
        for seat, agent in enumerate(("player_0", "player_1"))
        if not (silent and seat == 1)
    ]  # fmt: skip
    parts = {"player_0": {"team": paid}, "player_1": {"team": -paid}}
    returns = {"player_0": paid, "player_1": -paid}
    return Episode(
        f"t{deal}#{sample}", "g-v0", f"t{deal}", deal, "h", sample, 0, turns, returns, parts, terminated=True
    )


@pytest.fixture
def by_hand(tmp_path: Path) -> Path:
    matches = schedule(["a", "b", "c"])  # 0 ab, 1 ba, 2 ac, 3 ca, 4 bc, 5 cb
    players = {name: {"spec": "random", "options": {}, "label": f"policy [{name}]"} for name in "abc"}
    identity = {
        "env": "g-v0", "tasks": {"name": "g", "split": "all", "size": 9, "fingerprint": "f"}, "n": 2, "samples": 6,
        "seed": 0, "tournament": {"players": players, "matches": [list(match) for match in matches]},
    }  # fmt: skip
    context = {"label": "a vs b vs c", "zero_sum": True, "arguments": {}}
    with ResultsFolder(tmp_path / "hand", {"identity": identity, "context": context}) as folder:
        folder.add(game(0, 0, 1.0))  # a beats b
        folder.add(game(0, 1, 0.0))  # b draws with a
        folder.add(game(0, 2, 1.0, forfeit="player_1"))  # a beats c, which forfeits
        folder.add(game(0, 3, -1.0, forfeit="player_0", silent=True))  # c forfeits at once: a never moved
        folder.add(game(0, 4, -0.5))  # b loses to c, for half the stake
        folder.add(game(0, 5, 1.0))  # c beats b
        folder.add(game(1, 0, -1.0))  # a loses to b
        folder.add(replace(game(1, 1, 0.0), error="PolicyError: no", turns=[]))
    return tmp_path / "hand"


def test_summary_by_hand(by_hand: Path) -> None:
    summary = summarize_tournament(by_hand)
    assert (summary["planned"], summary["episodes"], summary["failed"], summary["complete"]) == (12, 7, 1, False)
    a, b, c = (summary["players"][name] for name in "abc")
    counts = [tuple(p[key] for key in ("games", "wins", "draws", "losses", "forfeits")) for p in (a, b, c)]
    assert counts == [(5, 3, 1, 1, 0), (5, 1, 1, 3, 0), (4, 2, 0, 2, 2)]
    assert [p["score"]["value"] for p in (a, b, c)] == pytest.approx([3.5 / 5, 1.5 / 5, 0.5])
    assert [p["return"] for p in (a, b, c)] == pytest.approx([2 / 5, -1.5 / 5, -0.5 / 4])
    assert a["policy"] == "policy [a]"
    assert c["invalid_rate"] == c["cut_rate"] == pytest.approx(2 / 4)
    assert a["turns"] == pytest.approx(4 / 5)
    pairings = {tuple(pairing["players"]): pairing for pairing in summary["pairings"]}
    assert len(pairings) == 3
    (first,) = [pairing for players, pairing in pairings.items() if set(players) == {"a", "b"}]
    mine = first["players"][0]
    assert mine == "a"
    assert first["as_first"] == {"wins": 1, "draws": 0, "losses": 1}
    assert first["as_second"] == {"wins": 0, "draws": 1, "losses": 0}
    assert first["score"]["value"] == 0.5
    (gift,) = [pairing for players, pairing in pairings.items() if set(players) == {"a", "c"}]
    assert gift["forfeits"] == {"a": 0, "c": 2}
    assert gift["games"] == 2
    assert [summary["first_seat"][key] for key in ("wins", "draws", "losses")] == [3, 1, 3]
    assert summary["first_seat"]["score"]["value"] == 0.5
    # a took points from c, c from b, and b from a: a circle, so there is a finite maximum.
    assert summary["virtual_draws"] == 0
    elos = [p["elo"]["value"] for p in (a, b, c)]
    assert sum(elos) == pytest.approx(0, abs=1e-6)
    assert elos[0] > elos[2] > elos[1]
    for player in (a, b, c):
        low, high = player["elo"]["interval"]
        assert low < player["elo"]["value"] < high
    assert json.loads(report_json([by_hand])) == [json.loads(json.dumps(summary))]


def test_three_quarters_are_190_elo(tmp_path: Path) -> None:
    matches = schedule(["a", "b"])
    identity = {
        "env": "g-v0", "tasks": {"name": "g", "split": "all", "size": 9, "fingerprint": "f"}, "n": 8, "samples": 2,
        "seed": 0, "tournament": {
            "players": {name: {"spec": "random", "options": {}, "label": name} for name in "ab"},
            "matches": [list(match) for match in matches],
        },
    }  # fmt: skip
    with ResultsFolder(tmp_path / "t", {"identity": identity, "context": {"label": "a vs b"}}) as folder:
        for deal in range(8):
            folder.add(game(deal, 0, 1.0))
            folder.add(game(deal, 1, 0.0))
    players = summarize_tournament(tmp_path / "t")["players"]
    assert players["a"]["elo"]["value"] - players["b"]["elo"]["value"] == pytest.approx(190.85, abs=0.01)
    assert players["a"]["elo"]["value"] == pytest.approx(elo_lead(0.75) / 2)
    assert list(players) == ["a", "b"]


def test_forfeits_of_a_real_game_are_counted(tmp_path: Path) -> None:
    class Mute(Policy):
        async def generate(self, request: Request) -> list[Completion]:
            return [Completion("I had rather not say.", "stop")] * request.n

    def make(spec: str, **options: Any) -> Policy:
        return Mute("mute") if spec == "hf:mute" else make_policy(spec, **options)

    play(tmp_path / "t", ["mute=hf:mute", "random", "shy=hf:mute"], make, n=3)
    summary = summarize_tournament(tmp_path / "t")
    random, mute = summary["players"]["random"], summary["players"]["mute"]
    assert (random["wins"], random["losses"], random["forfeits"]) == (12, 0, 0)
    assert (mute["losses"], mute["wins"], mute["invalid_rate"]) == (9, 3, 1.0)
    # Of two who both say nothing the first one forfeits.
    assert mute["forfeits"] == 9
    (pairing,) = [p for p in summary["pairings"] if set(p["players"]) == {"mute", "shy"}]
    assert pairing["as_first"] == {"wins": 0, "draws": 0, "losses": 3}
    assert pairing["forfeits"] == {"mute": 3, "shy": 3}
    assert summary["virtual_draws"] == 0.5


def test_minimax_is_rated_above_random(tmp_path: Path) -> None:
    pytest.importorskip("pyspiel")
    play(tmp_path / "t", ["random", "minimax"], n=10)
    players = summarize_tournament(tmp_path / "t")["players"]
    assert list(players) == ["minimax", "random"]
    assert players["minimax"]["losses"] == 0
    assert players["minimax"]["elo"]["interval"][0] > players["random"]["elo"]["interval"][1]


# ---- what is shown -------------------------------------------------------------------------------------------------


def show(paths: Sequence[Path], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_report(paths, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_report(by_hand: Path) -> None:
    text = show([by_hand])
    assert "g-v0, 7 of 12 games, 2 deals of g" in text
    ratings = text[: text.index("Pairings")]
    row = {line.split()[0]: line.split() for line in ratings.splitlines() if line.startswith("  ") and line.strip()}
    assert row["a"][-5:] == ["0.400", "3/1/1", "0", "0.0", "%"]
    assert row["c"][-5:] == ["-0.125", "2/0/2", "2", "50.0", "%"]
    assert "a – c" in text
    assert "First seat: 50.0 % [" in text
    assert "5 of 12 games are missing, 1 of them failed" in text
    assert "virtual draws" not in text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_report_fits(by_hand: Path, width: int) -> None:
    tables = [line for line in show([by_hand], width).splitlines() if line.startswith("  ")]
    assert max(map(len, tables)) <= width


def test_nothing_was_played_yet(tmp_path: Path, by_hand: Path) -> None:
    (by_hand / "episodes.jsonl").write_bytes(b"")
    summary = summarize_tournament(by_hand)
    assert summary["players"]["a"]["elo"] is None
    assert summary["first_seat"]["score"] is None
    assert "–" in show([by_hand])


def test_live_line_shows_the_standings_also_of_earlier_sessions(by_hand: Path) -> None:
    console = Console(file=io.StringIO(), width=120)
    with LiveView(console) as view:
        view.start(by_hand, "a vs b vs c", 8)
        for _ in range(7):
            view.stored(0, True)
        view.played(game(1, 1, 0.0))
    assert "8/8 episodes, a 67 %, c 50 %, b 33 %," in console.file.getvalue()  # type: ignore[attr-defined]
    assert Table([("a", "b")]).headline() == "–"


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"policies": ["random"]}, TeamError, "at least two players"),
        ({"policies": ["random", "random"]}, TeamError, "Name them: --policy one=random --policy two=random"),
        ({"policies": ["random", "orcale"]}, PolicySpecError, "The forms are"),
        ({"policies": ["random", "mcts:simz=1"]}, PolicySpecError, "Did you mean 'sims'"),
        ({"options": {"x": {"sims": 1}}}, TeamError, "no player has that name"),
        ({"options": {"random": {"sims": 1}}}, TeamError, "has no effect"),
        ({"options": {"*": {"sims": 1}}}, TeamError, "has no effect"),
        ({"env": "math-2agent"}, SettingsError, "its agents are solver_0, verifier_0 and it is not zero-sum"),
        ({"n": 1001}, SettingsError, "the set has 1000"),
        ({"n": 0}, SettingsError, "n must be at least 1"),
        ({"policies": ["random", "minimax"], "env": "kuhn-poker"}, PolicyError, "hides information"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, changes: dict[str, Any], kind: type[Exception], message: str) -> None:
    policies = changes.pop("policies", ["random", "oracle"])
    with pytest.raises(kind) as caught:
        play(tmp_path / "t", policies, **changes)
    assert message in str(caught.value)
    assert not (tmp_path / "t").exists()


def test_entrants() -> None:
    entrants = parse_entrants(["small=hf:m", "hf:m", "deep=mcts"], {"*": {"dtype": "x"}, "small": {"dtype": "y"}})
    assert [entrant.options for entrant in entrants] == [{"dtype": "y"}, {"dtype": "x"}, {}]
