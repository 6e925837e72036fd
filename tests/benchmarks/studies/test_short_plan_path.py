"""Plan-path in few words: its rules are those of plan-path, its texts are short, and nothing pays twice."""

from __future__ import annotations

import random
from typing import Any

import pytest

import llm_envs
from benchmarks.studies.short_plan_path import PAIR, SOLO
from benchmarks.studies.walkers import WalkerPolicy, blind_walk, sighted_walk
from llm_envs.planning.grid import Grid
from llm_envs.tasks import Task
from llm_envs.testing import check_env
from trainers.env_texts import env_texts
from trainers.rollout.episodes import collect, make_jobs
from trainers.team import Team
from trainers.tokenizing import build_tokenizer, encode_known

MAP = Task("m/0", "way", "way", data={"map": ("A#.", "..#", "#.G"), "optimal_length": 4})
# r0c0 is the start, r2c2 the goal; the only way is r1c0 r1c1 r2c1 r2c2.
WAY = "[r1c0, r1c1, r2c1, r2c2]"


def make(env_id: str, **kwargs: Any) -> Any:
    env = llm_envs.make(env_id, tasks=[MAP], **kwargs)
    env.reset(seed=0)
    return env


def parts(env: Any, agent: str) -> dict[str, float]:
    return dict(env.unwrapped.infos[agent]["reward_parts"])


@pytest.mark.parametrize("env_id", [SOLO, PAIR])
def test_the_contract(env_id: str) -> None:
    check_env(lambda: llm_envs.make(env_id, task_options={"grid_size": 4}))


def test_a_prompt_is_the_map_in_words_and_what_happened_since() -> None:
    env = make(SOLO)
    assert env.observe("planner_0") == "walls r0c1 r1c2 r2c0\ngoal r2c2\nyou r0c0\n\nplanner_0 1"
    env.step("[r1c0, r2c0, r2c1]")  # runs into a wall after one step
    assert env.observe("planner_0") == (
        "walls r0c1 r1c2 r2c0\ngoal r2c2\nyou r0c0\nplanner_0 [r1c0, r2c0, r2c1]\nstop\nyou r1c0\n\nplanner_0 2"
    )
    assert parts(env, "planner_0") == {"progress": 0.5 * 1 / 4, "illegal": -0.1}
    env.step("nowhere")
    assert env.observe("planner_0").endswith(
        "\nplanner_0 nothing\n\nplanner_0 3\n\nYour last answer could not be used: no list of cells"
    )
    env.step("[r1c1, r2c1, r2c2]")
    assert parts(env, "planner_0") == {"team": 1.0, "optimal": 0.0, "progress": 0.5 * 3 / 4}
    assert env.unwrapped.success


@pytest.mark.parametrize("tool", [True, False])
def test_the_scout_moves_nothing_and_its_proposal_is_shown(tool: bool) -> None:
    env = make(PAIR, tool=tool)
    start = env.observe("scout_0")
    assert start.endswith("you r0c0\n\nscout_0 1")
    env.step("[r1c0, r1c1, r0c1]")
    said = "\nscout_0 [r1c0, r1c1, r0c1]" + ("\nsim stop at r1c1 free r2c1 r1c0" if tool else "")
    assert env.observe("planner_0") == start.replace("\n\nscout_0 1", f"{said}\n\nplanner_0 1")
    assert parts(env, "scout_0") == {"proposal": 0.5 * 2 / 4, "illegal": -0.1}
    env.step("[r1c0]")
    assert parts(env, "planner_0") == {"progress": 0.5 * 1 / 4}
    # A proposal that leads no farther than the best one before earns nothing, one that does the difference.
    env.step("[r1c1]")
    assert parts(env, "scout_0") == {"proposal": 0.0}
    env.step("[r1c1]")
    env.step("[r2c1, r2c2]")
    assert parts(env, "scout_0") == {"proposal": 0.5 * 2 / 4}
    assert env.unwrapped.proposal_solves
    assert not env.unwrapped.success
    assert ("sim goal" in env.observe("planner_0")) == tool
    env.step("[r2c1, r2c2]")
    assert env.unwrapped.success


def test_the_tokenizer_of_a_few_tasks_writes_all_of_them() -> None:
    kwargs = {"task_options": {"grid_size": 4}}
    tokenizer = build_tokenizer(text for env in (SOLO, PAIR) for text in env_texts(env, tasks=80, **kwargs))
    assert len(tokenizer) < 100
    for text in env_texts(PAIR, tasks=60, seed=9, split="test", **kwargs):
        encode_known(tokenizer, text)
    env = llm_envs.make(SOLO, **kwargs)
    env.reset(seed=0)
    assert len(tokenizer(env.observe("planner_0"))["input_ids"]) < 25


def test_a_blind_walk_goes_to_the_goal_through_walls() -> None:
    grid = Grid(("A#.", ".#.", "..G"))
    for seed in range(20):
        walk = blind_walk(grid, 0, random.Random(seed), 0.0)
        assert len(walk) == 4
        assert walk[-1] == "r2c2"
        assert len(blind_walk(grid, 0, random.Random(seed), 0.5)) <= 16
    assert blind_walk(grid, 0, random.Random(1), 0.5) == blind_walk(grid, 0, random.Random(1), 0.5)


def test_a_sighted_walk_is_a_shortest_way_and_slips_into_walls() -> None:
    grid = Grid(("A#.", ".#.", "..G"))
    assert sighted_walk(grid, 0, random.Random(0), 0.0) == ["r1c0", "r2c0", "r2c1", "r2c2"]
    ends = set()
    for seed in range(40):
        walk = sighted_walk(grid, 0, random.Random(seed), 0.5)
        assert len(walk) <= 12
        assert not {"r0c1", "r1c1"} & set(walk[:-1])  # a walk into a wall ends there
        ends.add(walk[-1])
    assert {"r2c2", "r0c1"} <= ends


async def test_the_walker_fails_and_succeeds_and_its_planner_repeats_what_was_seen_to_work() -> None:
    env: Any = llm_envs.make(PAIR, task_options={"grid_size": 5}, order_enforcing=False).unwrapped
    team = Team.single(WalkerPolicy(0.3, 0.1))
    episodes = await collect(env.fork, team, make_jobs(range(60), 1, 0), concurrency=8)
    first = sum(episode.success and len(episode.turns) == 2 for episode in episodes)
    assert 20 < first < 58
    for episode in episodes:
        for scout, planner in zip(episode.turns[::2], episode.turns[1::2], strict=True):
            if "sim goal" in planner.observation.rpartition("scout_0")[2]:
                assert planner.action == scout.action
