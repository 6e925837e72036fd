"""Search in few words: who is called when, what is paid, and that costs say nothing on what to do."""

from __future__ import annotations

import random
from typing import Any

import pytest
from gymnasium import error

import llm_envs
from benchmarks.studies.dr_mas_search import SEARCH, CrewPolicy, draw_links
from llm_envs.tasks import Task
from llm_envs.testing import check_env
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team

WORLD = Task("l/0", "2 links: w0 w1 w2", "w2", data={"circle": ("w0", "w1", "w2", "w3"), "links": 2})


def make(**kwargs: Any) -> Any:
    env = llm_envs.make(SEARCH, tasks=[WORLD], order_enforcing=False, **kwargs)
    env.reset(seed=0)
    return env


def play(env: Any, *actions: str) -> None:
    for action in actions:
        env.step(action)


def parts(env: Any, agent: str) -> dict[str, float]:
    return dict(env.infos[agent]["reward_parts"])


def test_the_contract() -> None:
    check_env(lambda **kwargs: llm_envs.make(SEARCH, **kwargs))


def test_prompts_grow_by_what_was_found() -> None:
    env = make()
    assert env.observe("verifier_0") == "2 w0\n\nverifier_0"
    play(env, "no")
    assert env.agent_selection == "searcher_0"
    play(env, "w0", "no", "w1", "yes")
    assert env.observe("answerer_0") == "2 w0\nw0 w1\nw1 w2\n\nanswerer_0"
    play(env, "w2")
    assert env.success


def test_what_is_paid() -> None:
    env = make(search_cost=0.5, answer_cost=2.0, wrong_cost=4.0)
    play(env, "no", "w0")
    assert parts(env, "searcher_0") == {"cost": -0.5}
    play(env, "no", "nonsense")  # a call is paid for whatever is said, or nonsense would be a bargain
    assert parts(env, "searcher_0") == {"cost": -0.5, "invalid": -0.1}
    play(env, "yes", "w3")
    assert parts(env, "answerer_0") == {"team": 0.0, "cost": -2.0, "wrong": -4.0}
    assert parts(env, "verifier_0") == {"team": 0.0}
    env = make(answer_cost=2.0, wrong_cost=4.0)
    play(env, "yes", "nonsense")
    assert parts(env, "answerer_0") == {"team": 0.0, "cost": -2.0, "wrong": -4.0, "invalid": -0.1}
    env = make(answer_cost=2.0, wrong_cost=4.0)
    play(env, "yes", "w2")
    assert parts(env, "answerer_0") == {"team": 1.0, "cost": -2.0, "wrong": 0.0}


def test_the_last_round_is_the_answerers() -> None:
    env = make(max_rounds=3)
    play(env, "no", "w0", "silence", "w1")
    assert env.agent_selection == "answerer_0"
    play(env, "w2")
    assert env.success


def test_no_way_is_in_both_splits() -> None:
    ways = [
        {llm_envs.make(SEARCH, split=split).unwrapped.tasks[i].question for i in range(300)}
        for split in ("train", "test")
    ]
    assert not ways[0] & ways[1]
    with pytest.raises(error.Error, match=r"`max_links` 16 and `words` 16"):
        draw_links(random.Random(0), max_links=16)


async def test_every_episode_has_one_answer_and_costs_change_no_action() -> None:
    actions = []
    for cost in (0.0, 8.0):
        env: Any = llm_envs.make(SEARCH, order_enforcing=False, answer_cost=cost).unwrapped
        episodes = await collect(env.fork, Team.single(CrewPolicy(0.75)), make_jobs(range(60), 1, 0), concurrency=8)
        assert [episode.turns[-1].agent for episode in episodes] == ["answerer_0"] * 60
        assert all(sum(turn.agent == "answerer_0" for turn in episode.turns) == 1 for episode in episodes)
        actions.append([turn.action for episode in episodes for turn in episode.turns])
    assert actions[0] == actions[1]
    assert 0.15 < sum(episode.success for episode in episodes) / 60 < 0.6
