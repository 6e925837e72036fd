from __future__ import annotations

import dataclasses
import json

import pytest
import simpy

from benchmarks.results import ResultsFolder
from benchmarks.scale.__main__ import main
from benchmarks.scale.costs import EngineCosts
from benchmarks.scale.designs import Setting, knee, run_design
from benchmarks.scale.engine import Engine
from benchmarks.scale.lengths import DEFAULT, Recorded, SimulatedTurn, load, record
from benchmarks.scale.simulate import Flow, simulate
from benchmarks.scale.validate import validate
from trainers.recipe_files import ConfigError
from trainers.rollout.records import Episode, Turn

FLAT = EngineCosts(1.0, 0, 0, 0, 0, False, 0, 0, 0)
TWO = Recorded("a test", ("a", "b"), ((SimulatedTurn(0, 10, 5, 2.0), SimulatedTurn(1, 20, 3, 1.0)),))


def flow(**changes):
    given = {
        "lengths": TWO, "episodes": 6, "concurrency": 6, "runner_cores": 6, "sync_s": 1.0,
        "make_engines": lambda env: [[Engine(env, FLAT, 8)]], "update_s": lambda tokens, completions: 10.0,
    }  # fmt: skip
    return Flow(**{**given, **changes})


def test_a_synchronous_step_by_hand():
    report = simulate(flow(steps=3))
    # Every episode: 4 steps, 2 s of its environment, 2 steps, 1 s; the update and the sync follow.
    assert report.rollout_s == pytest.approx(9)
    assert report.seconds == pytest.approx(9 + 10 + 1)
    assert report.engine_busy == pytest.approx(6 / 9)
    assert report.runner_busy == pytest.approx(3 / 9)
    assert report.engine_rows == pytest.approx(6)
    assert report.tokens_per_s == pytest.approx(6 * 8 / 20)
    assert report.turns == 12
    assert report.bottleneck == "learners"


def test_an_overlapped_step_takes_the_longer_of_both():
    assert simulate(flow(order="overlapped", steps=4)).seconds == pytest.approx(10 + 1)
    assert simulate(flow(order="overlapped", steps=4, update_s=lambda *_: 2.0)).seconds == pytest.approx(9 + 1)


def test_one_core_serves_one_environment_at_a_time():
    report = simulate(flow(runner_cores=1, update_s=lambda *_: 0.0, sync_s=0.0))
    assert report.rollout_s == pytest.approx(4 + 6 * 3)  # never idle once the first answers are there
    assert report.runner_busy == pytest.approx(18 / 22)
    assert report.bottleneck == "runners"


def test_the_update_is_told_what_was_collected():
    seen = []
    simulate(flow(update_s=lambda *tokens: seen.append(tokens) or 1.0))
    assert seen == [(6 * (15 + 23), 6 * 8)]


def test_fewer_in_flight_never_finish_sooner():
    times = [simulate(flow(concurrency=c, update_s=lambda *_: 0.0)).rollout_s for c in (1, 2, 3, 6)]
    assert times == sorted(times, reverse=True)
    assert times[0] == pytest.approx(6 * 9)


def test_policies_have_engines_of_their_own():
    apart = simulate(flow(make_engines=lambda env: [[Engine(env, FLAT, 8)], [Engine(env, FLAT, 8)]]))
    assert apart.rollout_s == pytest.approx(9)
    assert apart.engine_busy == pytest.approx(6 / 9 / 2)


def test_the_same_flow_gives_the_same_report():
    lengths = load()
    one = flow(lengths=lengths, episodes=30, make_engines=lambda env: [[Engine(env, FLAT, 8)]])
    assert simulate(one) == simulate(one)
    assert simulate(one) != simulate(dataclasses.replace(one, seed=1))


@pytest.mark.parametrize("change", [{"episodes": 0}, {"runner_cores": 0}, {"replay": True}])
def test_flows_that_make_no_sense_are_refused(change):
    with pytest.raises(ValueError, match=next(iter(change)) if "replay" not in change else "replayed"):
        flow(**change)


def test_what_ships_was_recorded_and_stretches():
    lengths = load(DEFAULT)
    assert "llm-bench run" in lengths.source
    turns = [turn for episode in lengths.stretched(1000, 500).episodes for turn in episode]
    assert sum(t.completion for t in turns) / len(turns) == pytest.approx(1000, rel=0.01)
    assert sum(t.prompt for t in turns) / len(turns) == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize("design", ["colocated", "split", "overlapped"])
def test_more_devices_never_take_longer(design):
    lengths = load().stretched(600, 400)
    times = [run_design(design, n, 200, lengths, Setting()).rollout_s for n in (8, 32)]
    assert times[1] <= times[0]


def test_designs_that_cannot_be_are_refused():
    lengths = load().stretched(600, 400)
    with pytest.raises(ConfigError, match="2 or more"):
        run_design("split", 1, 8, lengths, Setting())
    with pytest.raises(ConfigError, match="larger one"):
        run_design("colocated", 2, 8, lengths, Setting(model="Qwen/Qwen3-8B", device="RTX4090"))
    with pytest.raises(ConfigError, match="models are"):
        Setting(model="none")


def test_a_knee_is_where_half_is_left():
    assert knee({1: 10, 2: 20, 4: 30, 8: 32}) == 4
    assert knee({1: 10, 2: 20, 4: 40}) is None


def test_lengths_are_read_from_a_results_folder(tmp_path):
    episode = Episode("t#0", "math-2agent-v0", "t", 0, "h", 0, 0, wall_s=3.0)
    episode.turns = [
        Turn("t#0", "t", agent, "p", i, 0, "", "", prompt_tokens=10 + i, completion_tokens=4, latency_s=1.0)
        for i, agent in enumerate(("solver_0", "verifier_0"))
    ]
    with ResultsFolder(tmp_path / "run", {"identity": {}, "context": {}}) as folder:
        folder.add(episode)
    found = record(tmp_path / "run", "a test")
    assert found.agents == ("solver_0", "verifier_0")
    assert found.episodes == ((SimulatedTurn(0, 10, 4, 0.5), SimulatedTurn(1, 11, 4, 0.5)),)


def test_the_command_writes_page_plot_and_numbers(tmp_path):
    arguments = ["--devices", "8", "16", "--batch", "64", "--each", "4", "--no-validation"]
    assert main([*arguments, "--out", str(tmp_path / "scale.json")]) == 0
    report = json.loads((tmp_path / "scale.json").read_text())
    assert [row["episodes"] for row in report["growing"]] == [32] * 3
    assert [row["devices"] for row in report["tails"]] == [8, 16] * 3
    page = (tmp_path / "scale.md").read_text()
    assert "Nothing here was measured on GPUs" in page
    assert f"{report['fixed'][0]['tokens_per_s']:,.0f}" in page
    assert (tmp_path / "scale.png").stat().st_size > 1000
    assert main(["--device", "none"]) == 2


@pytest.mark.slow
def test_a_real_rollout_and_update_take_what_is_simulated():
    """That both are played through; how far they agree depends on the machine and is on the page."""
    found = validate(8, 16, hidden_size=64, layers=2)
    assert found["turns"] >= 8
    for name in ("rollout_s", "update_s"):
        assert found[name]["simulated"] > 0
        assert found[name]["measured"] > 0


def test_an_engine_needs_a_place():
    with pytest.raises(ValueError, match="max_sequences"):
        Engine(simpy.Environment(), FLAT, 0)
