"""How an update grows: the environment has the size it is asked for, and growth is counted as it says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pettingzoo.test import api_test

from benchmarks.performance import growth
from benchmarks.performance.relay import RELAY, Relay
from llm_envs.registration import registry


@pytest.mark.parametrize(("agents", "rounds"), [(1, 1), (2, 2), (3, 4)])
def test_everybody_speaks_as_often_as_asked(agents: int, rounds: int) -> None:
    env = Relay(agents=agents, rounds=rounds)
    env.reset(seed=0)
    spoke: list[str] = []
    for agent in env.agent_iter():
        observation, _, termination, truncation, _ = env.last()
        if termination or truncation:
            env.step(None)
            continue
        assert str(observation).count(": ") == len(spoke)
        spoke.append(agent)
        env.step("a")
    assert spoke == env.possible_agents * rounds


@pytest.mark.filterwarnings("ignore")
def test_it_is_an_environment() -> None:
    api_test(Relay(), num_cycles=20)  # check_env would refuse what pays for any text


def test_growth_is_counted_a_token_from_the_second_size_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def run(size: Mapping[str, int]) -> dict[str, float]:
        asked.append(dict(size))
        tokens = 10.0 * size["episodes"]
        return {"seconds": 5 + tokens * (2 if size["episodes"] == 64 else 1), "tokens": tokens, "mib": 1.0}

    monkeypatch.setattr(growth, "_run", run)
    *_, row = growth.measure_growth({"episodes": (8, 32, 64)})
    assert [size["episodes"] for size in asked] == [8, 32, 64]
    assert row.name == "seconds a token, episodes 64 / 32"
    assert row.value == pytest.approx((1285 / 640) / (325 / 320))
    assert row.met is False


def test_a_size_is_run(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: registry.pop(RELAY))  # other tests go through the whole registry
    assert growth.main(["2", "1", "8"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["seconds"] > 0
    assert found["tokens"] >= 8 * 2 * 4


def test_growth_is_drawn_from_the_rows_of_its_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "_run", lambda size: {"seconds": 1.0, "tokens": 1000.0 * size["agents"], "mib": 2.0})
    rows = [vars(row) for row in growth.measure_growth({"agents": (1, 2, 4)})]
    assert sum(growth._ROW.fullmatch(row["name"]) is not None for row in rows) == 6  # and not the ratio
    growth.plot_growth(rows, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 5000
    growth.plot_growth([], tmp_path / "nothing.png")  # a page of measurements that were left out
    assert (tmp_path / "nothing.png").is_file()
