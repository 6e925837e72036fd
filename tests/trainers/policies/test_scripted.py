"""Scripted policies on a real environment and on recorded runs."""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

import llm_envs
from trainers.policies import PolicyError, Request, Sampling, make_policy
from trainers.policies.scripted import LatencyPolicy, OraclePolicy, RandomPolicy, ReplayPolicy


@pytest.fixture
def env() -> Any:
    env = llm_envs.make("math-2agent").unwrapped
    env.reset(seed=3, options={"task_index": 2})
    return env


def ask(env: Any, seed: int = 0, n: int = 1, key: tuple[Any, ...] = ()) -> Request:
    agent = env.agent_selection
    return Request(str(env.observe(agent)), agent, Sampling(), seed=seed, n=n, key=key, env=env)


async def test_oracle_plays_the_environments_oracle(env: Any) -> None:
    completions = await OraclePolicy().generate(ask(env, n=3))
    assert [completion.text for completion in completions] == [env.oracle(env.agent_selection)] * 3
    assert completions[0].token_ids is completions[0].logprobs is completions[0].completion_tokens is None


async def test_oracle_solves_an_episode(env: Any) -> None:
    policy = make_policy("oracle")
    while env.agents:
        *_, terminated, truncated, _ = env.last()
        env.step(None if terminated or truncated else (await policy.generate(ask(env)))[0].text)
    assert env.success


async def test_scripted_policies_say_that_they_need_the_environment() -> None:
    request = Request("hi", "solver_0", Sampling(), seed=0)
    for policy in (OraclePolicy(), RandomPolicy()):
        with pytest.raises(PolicyError, match=r"Request\.env"):
            await policy.generate(request)


async def test_random_depends_on_the_seed_alone_and_uses_the_examples(env: Any) -> None:
    policy = make_policy("random")
    examples = env.action_space(env.agent_selection).examples
    assert len(set(examples)) > 1
    texts = [(await policy.generate(ask(env, seed=seed)))[0].text for seed in range(40)]
    assert set(texts) <= set(examples)
    assert len(set(texts)) > 1
    assert texts == [(await policy.generate(ask(env, seed=seed)))[0].text for seed in range(40)]
    first = (await policy.generate(ask(env, seed=5, n=8)))[:1]
    assert first == await policy.generate(ask(env, seed=5))


async def test_random_leaves_the_action_space_as_it_was(env: Any) -> None:
    space = env.action_space(env.agent_selection)
    space.seed(11)
    expected = [space.sample() for _ in range(5)]
    space.seed(11)
    policy = RandomPolicy()
    seen = []
    for seed in range(5):
        await policy.generate(ask(env, seed=seed))
        seen.append(space.sample())
    assert seen == expected


async def test_random_samples_a_space_without_examples(env: Any) -> None:
    from gymnasium.spaces import Text

    class Bare:
        space = Text(max_length=8, seed=1)

        def action_space(self, agent: str) -> Text:
            return self.space

    bare = Bare()
    before = bare.space.np_random.bit_generator.state
    request = Request("hi", "a_0", Sampling(), seed=4, env=bare)  # type: ignore[arg-type]
    text = (await RandomPolicy().generate(request))[0].text
    assert bare.space.contains(text)
    assert (await RandomPolicy().generate(request))[0].text == text
    assert bare.space.np_random.bit_generator.state == before


def write_run(folder: Path, episodes: list[dict[str, Any]], tail: str = "") -> Path:
    text = "".join(json.dumps(episode) + "\n" for episode in episodes) + tail
    (folder / "episodes.jsonl").write_text(text, encoding="utf-8")
    return folder


def turn(env: Any, index: int, action: str, **more: Any) -> dict[str, Any]:
    return {"agent": env.agent_selection, "index": index, "action": action, **more}


async def test_replay_finds_the_turn_by_task_sample_index_and_agent(env: Any, tmp_path: Path) -> None:
    episodes = [
        {"id": f"{env.task.id}#0", "turns": [turn(env, 0, "first"), turn(env, 1, "second")]},
        {
            "id": f"{env.task.id}#1",
            "turns": [
                turn(
                    env, 0, "other", prompt_ids=[1, 2], completion_ids=[3, 4, 5], logprobs=[-0.5, -1.0, 0.0],
                    finish_reason="length", weight_version=7, prompt_tokens=2, completion_tokens=3,
                )
            ],
        },
    ]  # fmt: skip
    policy = make_policy(f"replay:{write_run(tmp_path, episodes)}")
    assert (await policy.generate(ask(env, key=(2, 0, 0, "x"))))[0].text == "first"
    assert (await policy.generate(ask(env, key=(2, 0, 1, "x"))))[0].text == "second"
    (full,) = await policy.generate(ask(env, key=(2, 1, 0, "x")))
    assert (full.text, full.finish_reason, full.weight_version) == ("other", "length", 7)
    assert (full.prompt_ids, full.token_ids, full.logprobs) == ((1, 2), (3, 4, 5), (-0.5, -1.0, 0.0))
    with pytest.raises(PolicyError, match=f"turn 2 of {env.agent_selection} in episode {env.task.id}#0"):
        await policy.generate(ask(env, key=(2, 0, 2, "x")))
    with pytest.raises(PolicyError, match="one action a turn"):
        await policy.generate(ask(env, n=2, key=(2, 0, 0, "x")))
    with pytest.raises(PolicyError, match=r"Request\.key"):
        await policy.generate(ask(env))


async def test_replay_leaves_out_a_torn_last_line_only(env: Any, tmp_path: Path) -> None:
    episode = {"id": f"{env.task.id}#0", "turns": [turn(env, 0, "kept")]}
    policy = ReplayPolicy(write_run(tmp_path, [episode], tail='{"id": "cut'))
    assert (await policy.generate(ask(env, key=(2, 0, 0, "x"))))[0].text == "kept"
    write_run(tmp_path, [episode], tail='{"id": "cut\n')
    with pytest.raises(PolicyError, match="line 2: not JSON"):
        ReplayPolicy(tmp_path)


@pytest.mark.parametrize(
    "episode", [{"id": "no mark", "turns": []}, {"id": "a#0"}, {"id": "a#0", "turns": [{"index": 0}]}]
)
def test_replay_names_a_line_that_is_no_episode(episode: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="line 1: not a recorded episode"):
        ReplayPolicy(write_run(tmp_path, [episode]))


def test_replay_names_a_missing_run(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"nowhere"):
        make_policy(f"replay:{tmp_path / 'nowhere'}")


async def test_latency_waits_as_long_as_it_says(env: Any) -> None:
    policy = LatencyPolicy(OraclePolicy(), median_s=0.05, sigma=0.5)
    requests = [ask(env, seed=seed) for seed in range(20)]
    longest = max(policy.latency_s(request) for request in requests)
    start = time.perf_counter()
    answers = await asyncio.gather(*map(policy.generate, requests))
    elapsed = time.perf_counter() - start
    assert longest <= elapsed < longest + 0.2
    assert answers[0][0].text == env.oracle(env.agent_selection)
    with pytest.raises(ValueError, match="sigma"):
        LatencyPolicy(OraclePolicy(), median_s=0.05, sigma=-1.0)


def test_latency_is_log_normal(env: Any) -> None:
    policy = LatencyPolicy(OraclePolicy(), median_s=0.2, sigma=0.7)
    logs = [math.log(policy.latency_s(ask(env, seed=seed))) for seed in range(4000)]
    # Standard errors: 0.7 / sqrt(4000) = 0.011 of the mean, 0.7 / sqrt(8000) = 0.008 of the deviation.
    assert statistics.fmean(logs) == pytest.approx(math.log(0.2), abs=0.05)
    assert statistics.stdev(logs) == pytest.approx(0.7, abs=0.04)
