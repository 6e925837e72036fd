"""The performance comparisons measure what they say. (What they measure on this machine is `make bench`'s to print.)"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import llm_envs
from benchmarks.performance.__main__ import main
from benchmarks.performance.measure import Measurement, rate
from benchmarks.performance.retrieval import measure_retrieval
from benchmarks.performance.schedule import LockStep, Recorded, ideal_seconds
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
def test_the_command_prints_and_writes_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "speed.json"
    assert main(["--out", str(out), "--seconds", "0.1"]) == 0
    shown = capsys.readouterr().out
    record = json.loads(out.read_text())
    names = [measurement["name"] for measurement in record["measurements"]]
    assert len(names) == len(set(names)) >= 10
    assert "math-2agent, oracle, no grading" in names
    assert "actions/s" in shown
    assert all(measurement["value"] > 0 for measurement in record["measurements"])
    by_name = {measurement["name"]: measurement["value"] for measurement in record["measurements"]}
    assert by_name["lock-step / ideal schedule, all at once"] > 1.2


def test_retrieval_is_measured() -> None:
    measurements = measure_retrieval(small=200, large=400, repeats=1)
    assert [measurement.unit for measurement in measurements] == ["ms", "ms", "ms", "x"]
    assert "200 passages" in measurements[0].name
    assert all(measurement.target for measurement in measurements)
    assert measurements[3].value > 0
