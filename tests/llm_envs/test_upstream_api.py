"""PettingZoo's own tests, unmodified, on every registered environment, bare and wrapped."""

from __future__ import annotations

import warnings

import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, render_test, seed_test

import llm_envs
from llm_envs.wrappers.memory import ConversationMemory
from llm_envs.wrappers.recorder import EpisodeRecorder

IDS = sorted(llm_envs.registry)
PARALLEL_IDS = [env_id for env_id in IDS if llm_envs.registry[env_id].parallelizable]

# Text is neither an array nor a box nor discrete; upstream warns of exactly that.
ALLOWED = {
    "Observation is not a NumPy array",
    "Observation space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
    "Action space for each agent probably should be gymnasium.spaces.box or gymnasium.spaces.discrete",
}

WRAPPINGS = {
    "bare": lambda env, path: env.unwrapped,
    "order": lambda env, path: env,
    "memory": lambda env, path: ConversationMemory(env),
    "recorder": lambda env, path: EpisodeRecorder(env, path / "episodes.jsonl"),
    "all": lambda env, path: EpisodeRecorder(ConversationMemory(env, max_turns=2), path / "episodes.jsonl"),
}


def only_allowed(caught):
    return {str(w.message) for w in caught} <= ALLOWED, [str(w.message) for w in caught]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("env_id", IDS)
def test_api(env_id, wrapping, tmp_path):
    env = WRAPPINGS[wrapping](llm_envs.make(env_id), tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(env, num_cycles=60)
    ok, messages = only_allowed(caught)
    assert ok, messages


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("env_id", IDS)
def test_seed(env_id, wrapping, tmp_path):
    seed_test(lambda: WRAPPINGS[wrapping](llm_envs.make(env_id), tmp_path), num_cycles=50)
    assert True  # seed_test asserts


@pytest.mark.parametrize("env_id", IDS)
def test_render(env_id, capsys):
    render_test(lambda render_mode: llm_envs.make(env_id, render_mode=render_mode))
    tasks = llm_envs.make(env_id).unwrapped.tasks
    assert f"Task {tasks.name}/{tasks.split}/" in capsys.readouterr().out


@pytest.mark.parametrize("env_id", PARALLEL_IDS)
def test_parallel_api(env_id):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parallel_api_test(llm_envs.make_parallel(env_id), num_cycles=40)
        parallel_seed_test(lambda: llm_envs.make_parallel(env_id), num_cycles=20)
    ok, messages = only_allowed(caught)
    assert ok, messages


def test_there_are_parallel_environments():
    assert PARALLEL_IDS == ["code-2agent-v0", "math-debate-v0", "math-tool-2agent-v0"]
