"""The performance comparisons measure what they say. (What they measure on this machine is `make bench`'s to print.)"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import types
from pathlib import Path

import pytest

import llm_envs
from benchmarks.performance import games
from benchmarks.performance.__main__ import main
from benchmarks.performance.forks import LARGE, TARGETS_US, measure_forks, middle_of_an_episode
from benchmarks.performance.games import GAMES, measure_games, missing_peers, play_script
from benchmarks.performance.measure import Measurement, rate, rates
from benchmarks.performance.page import DOCS, page, write_page
from benchmarks.performance.retrieval import measure_retrieval
from benchmarks.performance.schedule import LockStep, Recorded, ideal_seconds, measure_schedule
from benchmarks.performance.sections import SECTIONS, Section
from trainers.policies.scripted import OraclePolicy, RandomPolicy
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team


def test_ideal_schedule_by_hand() -> None:
    assert ideal_seconds([3.0, 1.0, 2.0], slots=3) == 3.0
    assert ideal_seconds([3.0, 1.0, 2.0], slots=2) == 3.0  # 3 | 1 + 2
    assert ideal_seconds([1.0, 1.0, 3.0], slots=2) == 4.0  # in order, not sorted: 1 + 3 | 1
    assert ideal_seconds([3.0, 1.0, 2.0], slots=1) == 6.0


def test_targets() -> None:
    assert Measurement("a", 2.0, "x", 1.0).met is True
    assert Measurement("a", 0.5, "x", 1.0).met is False
    assert Measurement("a", 1.05, "x", 1.1, at_most=True).met is True
    assert Measurement("a", 1.2, "x", 1.1, at_most=True).met is False
    assert Measurement("a", 1.0, "x").met is None


def test_rate_counts_work() -> None:
    calls = []

    def work() -> int:
        calls.append(1)
        return 10

    assert rate(work, seconds=0.01, repeats=2) > 0
    assert len(calls) >= 3


def test_rates_take_turns() -> None:
    calls = []

    def work(name: str, units: int) -> int:
        calls.append(name)
        return units

    found = rates({"a": lambda: work("a", 1), "b": lambda: work("b", 1000)}, seconds=0.02, repeats=2)
    assert found["b"] > found["a"] > 0
    changes = [name for number, name in enumerate(calls) if calls[number - 1 : number] != [name]]
    assert changes == ["a", "b"] * 3  # once unmeasured, then the two tries


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.env_id)
def test_scripts_are_whole_games_of_legal_moves(game: games.Game) -> None:
    env = llm_envs.make(game.env_id, **dict(game.options))
    endings = set()
    for script in game.scripts(60):
        played = play_script(env, script)
        assert [text for _, text in env.unwrapped.transcript] == list(script[:played])
        endings.add(env.unwrapped.succeeded)
    assert {frozenset({"player_0"}), frozenset({"player_1"})} <= endings
    assert game.scripts(5) == game.scripts(5)


def test_no_script_is_lost_to_bad_text() -> None:
    for game in GAMES:
        env = llm_envs.make(game.env_id, **dict(game.options))
        for script in game.scripts(60):
            moves = iter(script)
            env.reset(seed=0)
            while env.unwrapped.round_agents:
                agent = env.agent_selection
                env.step(next(moves))
                assert "invalid_action" not in env.infos[agent]


def test_games_are_measured_alone_where_no_other_library_is(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in games.PEERS else find(name))
    assert [line.partition(" is not installed")[0] for line in missing_peers()] == list(games.PEERS.values())
    assert all("pip install 'llm-envs[bench]'" in line for line in missing_peers())
    measurements = measure_games(seconds=0.01)
    assert [m.name for m in measurements] == [
        "tictactoe, random moves",
        "connect-four, random moves",
        "kuhn-poker, 3 hands an episode, random moves",
    ]
    assert all(m.value > 0 and m.target is None for m in measurements)


class OtherGame:
    """What the measurement asks of TextArena: a game that is over after its second move."""

    def reset(self, num_players: int, seed: int) -> None:
        assert (num_players, seed >= 0) == (2, True)
        self.left = 2

    def get_observation(self) -> tuple[int, str]:
        return 0, "Your move."

    def step(self, action: str) -> tuple[bool, dict[str, str]]:
        self.left -= 1
        return self.left == 0, {}

    def close(self) -> None:
        pass


def test_games_are_measured_beside_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def make(env_id: str, **options: int) -> OtherGame:
        asked.append((env_id, options))
        return OtherGame()

    monkeypatch.setitem(sys.modules, "textarena", types.SimpleNamespace(make=make))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: True if name == "textarena" else None)
    measurements = measure_games(0.01, [game for game in GAMES if game.env_id == "kuhn-poker"])
    assert asked[0] == ("KuhnPoker-v0", {"max_rounds": 3})
    assert len(asked) > games.EPISODES_A_CALL  # a fresh environment for every episode
    assert [(m.unit, m.target) for m in measurements] == [("actions/s", None), ("x", 3.0), ("x", 20.0)]
    assert all(m.value > 0 for m in measurements)


@pytest.mark.parametrize("env_id", ["math-2agent-v0", "tictactoe-v0", "plan-path-1agent-v0"])
def test_forks_are_measured_in_the_middle_of_an_episode(env_id: str) -> None:
    env = middle_of_an_episode(env_id)
    assert env.transcript
    assert env.round_agents
    (measurement,) = measure_forks([env_id], forks=5, repeats=1)
    assert measurement.name == f"fork of {env_id}, median"
    assert (measurement.unit, measurement.target, measurement.at_most) == ("µs", 50.0, True)
    assert 0 < measurement.value < 5_000


def test_an_episode_of_poker_is_as_long_on_both_sides() -> None:
    (game,) = [game for game in GAMES if game.env_id == "kuhn-poker"]
    assert dict(game.options) == {"hands": games.HANDS}
    assert dict(game.peer_options) == {"max_rounds": games.HANDS}
    assert game.variant == f"{games.HANDS} hands an episode"
    env = llm_envs.make(game.env_id, **dict(game.options))
    assert all(play_script(env, script) == len(script) for script in game.scripts(60))


@pytest.mark.parametrize("game", GAMES, ids=lambda game: game.env_id)
def test_the_other_library_plays_the_scripts_to_the_same_end(game: games.Game) -> None:
    textarena = pytest.importorskip("textarena")
    env = llm_envs.make(game.env_id, **dict(game.options))
    for script in game.scripts(30):
        played = play_script(env, script)
        peer = textarena.make(game.peer_id, **dict(game.peer_options))
        peer.reset(num_players=2, seed=0)
        done = []
        for move in script[:played]:
            peer.get_observation()
            done.append(peer.step(move)[0])
        assert done == [False] * (played - 1) + [True]


def test_forks_of_large_sokoban_rooms_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {env_id for env_id, _ in LARGE.values()} == set(TARGETS_US)
    for env_id, arguments in LARGE.values():
        env = middle_of_an_episode(env_id, **arguments)
        rows = env.task.question.splitlines()
        assert [len(row) for row in rows] == [10] * 10
        assert env.task.question.count("$") + env.task.question.count("*") == 4
        assert env.transcript
        assert env.round_agents
    monkeypatch.setattr(llm_envs, "registry", {})
    measurements = measure_forks(forks=5, repeats=1)
    assert [m.name for m in measurements] == [f"fork of {name}, median" for name in LARGE]
    assert {m.target for m in measurements} == {100.0}


def test_lock_step_answers_all_live_episodes_at_once() -> None:
    env = llm_envs.make("math-2agent", max_rounds=3)
    episodes = {}
    for name, wrap in (("free", lambda policy: policy), ("locked", LockStep)):
        policy = Recorded(RandomPolicy(), median_s=0.001)
        team = Team.single(wrap(policy))
        episodes[name] = asyncio.run(collect(env.unwrapped.fork, team, make_jobs(range(12), 1, 0), concurrency=5))
        assert len(policy.waits) == 12
    assert [e.to_json(timings=False) for e in episodes["free"]] == [
        e.to_json(timings=False) for e in episodes["locked"]
    ]


def test_lock_step_waits_for_the_slowest() -> None:
    async def run() -> list[str]:
        order: list[str] = []
        policy = LockStep(OraclePolicy())
        env = llm_envs.make("math-2agent").unwrapped
        env.reset(seed=0)
        from trainers.policies.base import Request, Sampling

        async def ask(name: str) -> None:
            await policy.generate(Request("o", "solver_0", Sampling(), 0, env=env))
            order.append(name)

        policy.join()
        policy.join()
        first = asyncio.create_task(ask("first"))
        await asyncio.sleep(0.01)
        order.append("second asks")
        await asyncio.gather(first, ask("second"))
        return order

    assert asyncio.run(run())[0] == "second asks"


@pytest.mark.slow
def test_the_quick_sections_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "speed.json"
    assert main(["--out", str(out), "--seconds", "0.1", "--only", "environments"]) == 0
    shown = capsys.readouterr().out
    (section,) = json.loads(out.read_text())["sections"].values()
    names = [measurement["name"] for measurement in section["measurements"]]
    assert len(names) == len(set(names)) >= 10
    assert "math-2agent, oracle, no grading" in names
    assert "actions/s" in shown
    assert all(measurement["value"] > 0 for measurement in section["measurements"])
    by_name = {measurement.name: measurement.value for measurement in measure_schedule(repeats=1)}
    assert by_name["lock-step / ideal schedule, all at once"] > 1.2


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Sections of one measurement each, without measuring; their values may be changed."""
    values = dict.fromkeys(SECTIONS, 2.0)

    def section(name: str) -> Section:
        return Section(name.title(), "About.", lambda _: [Measurement(f"{name} / peer", values[name], "x", 1.5)])

    made = {name: section(name) for name in SECTIONS}
    monkeypatch.setattr("benchmarks.performance.__main__.SECTIONS", made)
    monkeypatch.setattr("benchmarks.performance.page.SECTIONS", made)
    return values


def test_sections_that_are_not_named_stay_in_the_file(tmp_path: Path, made_up: dict[str, float]) -> None:
    out = tmp_path / "speed.json"
    assert main(["--out", str(out), "--check"]) == 0
    assert list(json.loads(out.read_text())["sections"]) == list(SECTIONS)
    made_up["learner"] = made_up["team"] = 1.0
    assert main(["--out", str(out), "--check", "--only", "learner"]) == 1
    found = json.loads(out.read_text())["sections"]
    assert {name: one["measurements"][0]["met"] for name, one in found.items()} == {
        name: name != "learner" for name in SECTIONS
    }


def test_the_page_tells_met_from_missed(
    tmp_path: Path, made_up: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up["team"] = 1.0
    monkeypatch.setattr("benchmarks.performance.__main__.write_page", lambda record: write_page(record, tmp_path))
    assert main(["--out", str(tmp_path / "speed.json"), "--page"]) == 0
    text = (tmp_path / "performance.md").read_text(encoding="utf-8")
    assert text == page(json.loads((tmp_path / "performance.json").read_text(encoding="utf-8")))
    assert "| learner / peer | 2 x | ≥ 1.5 | met |" in text
    assert "| team / peer | 1 x | ≥ 1.5 | **missed** |" in text
    assert (tmp_path / "performance.png").stat().st_size > 1000


def test_the_page_in_the_documentation_is_that_of_its_data() -> None:
    record = json.loads((DOCS / "performance.json").read_text(encoding="utf-8"))
    assert (DOCS / "performance.md").read_text(encoding="utf-8") == page(record)


def test_retrieval_is_measured() -> None:
    measurements = measure_retrieval(small=200, large=400, repeats=1)
    assert [measurement.unit for measurement in measurements] == ["ms", "ms", "ms", "x"]
    assert "200 passages" in measurements[0].name
    assert all(measurement.target for measurement in measurements)
    assert measurements[3].value > 0
