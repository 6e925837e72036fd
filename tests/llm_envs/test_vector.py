from __future__ import annotations

import pytest
from gymnasium import error

import llm_envs
from llm_envs.vector import VectorTextEnv


def test_vector_equals_single_episodes():
    """Returns, parts and endings are those of the same episodes played one by one."""
    envs = VectorTextEnv("math-2agent", 6)
    envs.reset(seed=3)

    def text(env, agent):
        examples = env.action_space(agent).examples
        return env.oracle(agent) if env.task_index % 2 else examples[env.task_index % len(examples)]

    while waiting := envs.waiting():
        envs.step([text(envs.envs[w.episode], w.agent) for w in waiting])
    assert sorted(f.episode for f in envs.finished) == list(range(6))
    for episode in envs.finished:
        env = llm_envs.make("math-2agent", order_enforcing=False)
        env.reset(seed=3 + episode.episode)
        total = dict.fromkeys(env.possible_agents, 0.0)
        for agent in env.agent_iter():
            _, reward, termination, truncation, info = env.last()
            total[agent] += reward
            flags = (termination, truncation)
            env.step(None if termination or truncation else text(env, agent))
        assert dict(episode.returns) == pytest.approx(total)
        assert (episode.terminated, episode.truncated) == flags
        assert episode.success == info["success"]
        for agent in total:
            assert sum(episode.reward_parts[agent].values()) == pytest.approx(total[agent])


def test_episodes_are_ragged_and_rounds_are_asked_at_once():
    envs = VectorTextEnv("math-debate", 2, max_rounds=2)
    envs.reset(seed=0)
    assert [(w.episode, w.agent) for w in envs.waiting()] == [(i, f"debater_{k}") for i in (0, 1) for k in range(3)]
    first = envs.envs[0].oracle("debater_0")
    done = envs.step([first, first, first, "a", "b", "c"])
    assert [(f.episode, f.success, f.terminated) for f in done] == [(0, True, True)]
    assert {w.episode for w in envs.waiting()} == {1}


def test_wrong_numbers_are_named():
    with pytest.raises(error.Error, match="`num_envs` must be 1 or more, actual value: 0"):
        VectorTextEnv("math-1agent", 0)
    envs = VectorTextEnv("math-1agent", 2)
    with pytest.raises(error.Error, match="Expected 2 options, one an episode, got 1"):
        envs.reset(options=[{}])
    envs.reset(seed=0)
    with pytest.raises(error.Error, match="Expected 2 actions, one for each waiting agent, got 1"):
        envs.step(["x"])
