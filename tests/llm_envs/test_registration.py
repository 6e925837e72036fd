from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pettingzoo
import pytest
from gymnasium import error

import llm_envs
from llm_envs.registration import ADAPTERS, NotParallelizable, UnknownArgument, register

IDS = sorted(llm_envs.registry)


@pytest.mark.parametrize("game", ["tictactoe", "connect-four", "kuhn-poker", "negotiation"])
def test_a_game_is_also_known_by_its_number_of_agents(game):
    for env_id in (f"{game}-2agent", f"{game}-2agent-v0", f"llm_envs/{game}-2agent"):
        assert llm_envs.spec(env_id) is llm_envs.registry[f"{game}-v0"]
    with pytest.raises(error.VersionNotFound):
        llm_envs.spec(f"{game}-2agent-v7")


def test_an_alias_may_not_hide_an_environment():
    with pytest.raises(error.RegistrationError, match="already exists"):
        register("other-game-v0", "module:Class", alias="math-2agent")
    assert "other-game-v0" not in llm_envs.registry


@pytest.mark.parametrize("env_id", IDS)
def test_every_way_of_making(env_id):
    name = env_id.rpartition("-v")[0]
    for env in (
        llm_envs.make(env_id),
        llm_envs.make(name),
        llm_envs.make(f"llm_envs/{env_id}"),
        pettingzoo.make("aec", f"llm_envs/{env_id}"),
    ):
        assert env.metadata["name"] == env_id.replace("-", "_")
        assert env.unwrapped.spec.id == env_id


def test_parallel_form_through_both_registries():
    for env in (llm_envs.make_parallel("math-debate"), pettingzoo.make("parallel", "llm_envs/math-debate-v0")):
        observations, infos = env.reset(seed=1)
        assert set(observations) == set(infos) == {"debater_0", "debater_1", "debater_2"}


def test_module_form():
    from llm_envs.math import math_2agent_v0, math_debate_v0

    env = math_2agent_v0.env(max_rounds=3)
    assert env.unwrapped.max_rounds == 3
    assert math_2agent_v0.raw_env() is not None
    assert not hasattr(math_2agent_v0, "parallel_env")
    assert math_debate_v0.parallel_env().possible_agents[0] == "debater_0"
    with pytest.raises(error.NameNotFound, match="math-3agent"):
        from llm_envs.math import math_3agent_v0  # noqa: F401


def test_unknown_name_suggests_the_closest():
    with pytest.raises(
        error.NameNotFound, match=r"Environment `math-2agnet` doesn't exist. Did you mean: `math-2agent`\?"
    ):
        llm_envs.make("math-2agnet")


def test_future_version_names_the_versions_there_are():
    with pytest.raises(
        error.VersionNotFound, match=r"version `v7` for environment `math-2agent` doesn't exist.*\[ `v0` \]"
    ):
        llm_envs.make("math-2agent-v7")


@pytest.mark.parametrize("bad", ["", "math 2agent", "math-2agent-v", "a/b/c", None])
def test_malformed_id(bad):
    with pytest.raises(error.Error):
        llm_envs.make(bad)


def test_unknown_namespace():
    with pytest.raises(error.NamespaceNotFound, match=r"Namespace other not found. Did you mean: `llm_envs`"):
        llm_envs.make("other/math-2agent")


@pytest.mark.parametrize("namespace", ADAPTERS)
def test_the_namespaces_of_adapters(namespace):
    module = importlib.import_module(ADAPTERS[namespace])
    name = module.names()[0]
    assert llm_envs.spec(f"{namespace}/{name}").id.startswith(f"{namespace}/{name}")
    with pytest.raises(error.NamespaceNotFound, match=f"Did you mean: `{namespace}`"):
        llm_envs.make(f"{namespace[:-1]}/{name}")
    with pytest.raises(error.RegistrationError, match="belongs to the games of another library"):
        register(f"{namespace}/mine-v0", "nowhere:Mine")


def test_unknown_argument_names_id_and_argument():
    with pytest.raises(
        UnknownArgument,
        match=r"`math-2agent-v0` got an unexpected keyword argument `max_round`. Did you mean: `max_rounds`",
    ):
        llm_envs.make("math-2agent", max_round=3)
    assert issubclass(UnknownArgument, error.Error)


def test_turn_based_has_no_parallel_form():
    with pytest.raises(NotParallelizable, match=r"`math-2agent-v0` is turn-based.*`math-debate-v0`"):
        llm_envs.make_parallel("math-2agent")


def test_registration_errors():
    with pytest.raises(error.RegistrationError, match="Did you mean: `mine-v0`"):
        register("mine", "nowhere:Mine")
    with pytest.raises(error.RegistrationError, match="already exists"):
        register("math-2agent-v0", "nowhere:Mine")


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_rounds": 0}, r"`max_rounds` must be an integer of 1 or more, actual value: 0"),
        ({"max_retries": -1}, r"`max_retries` must be 0 or more, actual value: -1"),
        ({"invalid_penalty": 0.5}, r"`invalid_penalty` must be 0 or negative, actual value: 0.5"),
        ({"render_mode": "rgb_array"}, r"`render_mode` must be None or one of.*'rgb_array'"),
        ({"tasks": "arithmetik"}, "arithmetic"),
        ({"split": "validation"}, "validation"),
    ],
)
def test_bad_values_are_named(kwargs, message):
    with pytest.raises(error.Error, match=message):
        llm_envs.make("math-2agent", **kwargs)


@pytest.mark.parametrize("seed", [-1, "0", 1.5, True])
def test_bad_seed(seed):
    env = llm_envs.make("math-1agent")
    with pytest.raises(error.Error, match="`seed` must be a non-negative integer"):
        env.reset(seed=seed)


def test_calls_out_of_order():
    env = llm_envs.make("math-1agent")
    with pytest.raises(error.ResetNeeded):
        env.unwrapped.observe("solver_0")
    with pytest.raises(error.ResetNeeded):
        env.unwrapped.step("x")
    env.reset(seed=0)
    with pytest.raises(error.InvalidAction, match="solver_0 expects a str action, actual type: int"):
        env.step(4)
    with pytest.raises(error.Error, match=r"Unknown agent 'solver_1'. The agents are solver_0"):
        env.observe("solver_1")


_EPISODES = """
import json, llm_envs
out = []
for env_id in sorted(llm_envs.registry):
    env = llm_envs.make(env_id)
    for seed in (0, 7):
        env.reset(seed=seed)
        for i, agent in enumerate(env.agent_iter()):
            observation, reward, termination, truncation, info = env.last()
            out.append([env_id, agent, observation, reward, termination, truncation, str(sorted(info.items()))])
            env.step(None if termination or truncation else env.unwrapped.oracle(agent) if i % 2 else "no")
print(json.dumps(out))
"""


def test_same_seed_same_episode_in_every_process():
    runs = [
        subprocess.run(
            [sys.executable, "-c", _EPISODES],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(json.loads(runs[0])) > 40


def test_unseeded_resets_differ_and_seeded_streams_repeat():
    env = llm_envs.make("math-1agent")
    seen = set()
    for _ in range(5):
        env.reset()
        seen.add(env.unwrapped.task.id)
    assert len(seen) > 1
    streams = []
    for _ in range(2):
        env.reset(seed=3)
        stream = [env.unwrapped.task.id]
        for _ in range(4):
            env.reset()
            stream.append(env.unwrapped.task.id)
        streams.append(stream)
    assert streams[0] == streams[1]
    assert len(set(streams[0])) == 5
