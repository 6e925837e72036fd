from __future__ import annotations

import copy
import json
import pickle

import pytest
from gymnasium import error
from gymnasium.utils.env_checker import check_env

import llm_envs
from llm_envs.tasks import Task
from llm_envs.wrappers.gym import SingleAgentView, play_oracle
from llm_envs.wrappers.memory import ConversationMemory
from llm_envs.wrappers.recorder import EpisodeRecorder

TASKS = [Task("t/0", "What is 2+2?", "4")]
RIGHT, WRONG = r"\boxed{4}", r"\boxed{5}"
APPROVE, REJECT = "<verify>approve</verify>", "<verify>reject</verify>"


def make(env_id="math-2agent", **kwargs):
    return llm_envs.make(env_id, tasks=TASKS, **kwargs)


def run(env, *texts):
    queue = list(texts)
    for _ in env.agent_iter():
        _, _, termination, truncation, _ = env.last()
        env.step(None if termination or truncation else queue.pop(0))


# ---- order enforcing ------------------------------------------------------------------------------------------------


def test_order_is_enforced_by_default():
    env = make()
    with pytest.raises(AttributeError, match="reset"):
        _ = env.agent_selection
    env.reset(seed=0)
    with pytest.raises(AssertionError, match="need to call step"):
        for _ in env.agent_iter():
            pass


def test_nothing_is_there_before_the_first_reset():
    env = make()
    for name in ("agents", "agent_selection", "rewards", "terminations", "truncations", "infos", "num_agents"):
        with pytest.raises(AttributeError, match="cannot be accessed before reset"):
            getattr(env, name)
    with pytest.raises(AttributeError, match="agent_selection cannot be accessed before reset"):
        env.last()
    calls = {"step": (RIGHT,), "observe": ("solver_0",), "agent_iter": (), "state": (), "render": ()}
    for name, arguments in calls.items():
        with pytest.raises(AssertionError, match="reset"):
            getattr(env, name)(*arguments)


def test_wrapper_shows_what_the_environment_shows():
    env = make()
    env.reset(seed=0)
    for _ in range(2):
        env.step(RIGHT if env.agent_selection == "solver_0" else APPROVE)
        bare = env.unwrapped
        assert env.last() == bare.last()
        assert env.last(observe=False)[0] is None
        for name in (
            "agents",
            "agent_selection",
            "rewards",
            "terminations",
            "truncations",
            "infos",
            "task",
            "metadata",
        ):
            assert getattr(env, name) is getattr(bare, name)
    assert list(env.agent_iter(1)) == ["solver_0"]


def test_a_step_after_the_end_warns_and_does_nothing(caplog):
    env = make()
    env.reset(seed=0)
    run(env, RIGHT, APPROVE)
    env.step(RIGHT)
    assert "step() called after all agents" in caplog.text
    with pytest.raises(error.ResetNeeded, match="after the last agent is done"):
        env.unwrapped.step(RIGHT)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_of_the_wrapper_are_independent(duplicate):
    env = make()
    env.reset(seed=0)
    other = duplicate(env)
    other.step(RIGHT)
    assert (env.agent_selection, other.agent_selection) == ("solver_0", "verifier_0")
    assert (len(env.transcript), len(other.transcript)) == (0, 1)
    other.reset(seed=1)
    assert env.unwrapped.transcript == []
    assert other.unwrapped is not env.unwrapped


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_memory_holds_the_agents_own_turns_word_for_word():
    env = ConversationMemory(make())
    env.reset(seed=0)
    first = env.observe("solver_0")
    env.step(WRONG)
    assert env.observe("verifier_0") == env.unwrapped.observe("verifier_0")
    env.step(REJECT)
    second = env.observe("solver_0")
    assert second == f"{first}\n\nYour answer:\n{WRONG}\n\n{env.unwrapped.observe('solver_0')}"
    assert env.last()[0] == second


def test_memory_is_bounded_and_forgets_at_reset():
    env = ConversationMemory(make(max_rounds=3), max_turns=1)
    env.reset(seed=0)
    for text in (r"\boxed{1}", REJECT, r"\boxed{2}", REJECT):
        env.step(text)
    assert env.observe("solver_0").count("Your answer:") == 1
    assert "Your answer:\n\\boxed{2}" in env.observe("solver_0")
    env.reset(seed=0)
    assert "Your answer:" not in env.observe("solver_0")
    with pytest.raises(ValueError, match="actual value: -1"):
        ConversationMemory(make(), max_turns=-1)


# ---- recorder -------------------------------------------------------------------------------------------------------


def test_recorded_episodes_have_every_turn_and_the_last_reward(tmp_path):
    path = tmp_path / "new folder" / "episodes.jsonl"
    env = EpisodeRecorder(make(), path)
    for texts in ((WRONG, REJECT, RIGHT), (RIGHT, "fine", WRONG)):
        env.reset(seed=0)
        run(env, *texts)
    env.reset(seed=0)
    env.step(RIGHT)
    env.reset(seed=0)  # an unfinished episode is dropped
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["id"], second["id"]) == ("t/0#0", "t/0#1")
    assert (first["success"], first["terminated"], first["truncated"]) == (True, False, True)
    assert [(t["agent"], t["index"], t["action"], t["reward"]) for t in first["turns"]] == [
        ("solver_0", 0, WRONG, 0.0),
        ("verifier_0", 1, REJECT, 1.0),
        ("solver_0", 2, RIGHT, 1.0),
    ]
    assert [t["reward"] for t in second["turns"]] == pytest.approx([0.0, -0.1, 0.0])
    assert "No <verify> tag" in second["turns"][1]["invalid"]
    assert second["turns"][0]["invalid"] is None


def test_recorder_takes_text_environments_only():
    from pettingzoo.test.example_envs import generated_agents_env_v0

    with pytest.raises(TypeError, match="records text environments"):
        EpisodeRecorder(generated_agents_env_v0.env(), "x.jsonl")


# ---- one seat as a gymnasium environment ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "seat"), [("math-1agent", None), ("math-2agent", "verifier_0"), ("math-debate", "debater_1")]
)
def test_gymnasium_checker_passes(env_id, seat):
    view = SingleAgentView(env_id, agent=seat, others=None if seat is None else play_oracle)
    check_env(view, skip_render_check=True)
    assert view.observation_space.contains(view.reset(seed=0)[0])


def test_a_seat_gets_what_the_agent_gets():
    view = SingleAgentView(make(), agent="solver_0", others=lambda env, agent: REJECT)
    observation, info = view.reset(seed=0)
    assert "You are solver_0" in observation
    observation, reward, terminated, truncated, info = view.step(WRONG)
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, False, False)
    assert REJECT in observation
    _, reward, terminated, truncated, info = view.step(RIGHT)
    assert (reward, terminated, truncated, info["success"]) == (1.0, False, True, True)
    with pytest.raises(error.ResetNeeded):
        view.step(RIGHT)


def test_seats_are_named():
    with pytest.raises(error.MissingArgument, match="solver_0, verifier_0"):
        SingleAgentView("math-2agent")
    with pytest.raises(error.MissingArgument, match="others=play_oracle"):
        SingleAgentView("math-2agent", agent="solver_0")
    with pytest.raises(error.Error, match="Unknown agent 'solver_1'"):
        SingleAgentView("math-2agent", agent="solver_1", others=play_oracle)


def test_memory_keeps_nothing_of_a_refused_step():
    env = ConversationMemory(llm_envs.make("math-1agent", max_rounds=2))
    env.reset(seed=0)
    before = env.observe("solver_0")
    with pytest.raises(error.InvalidAction, match="expects a str action, actual type: int"):
        env.step(5)
    assert env.observe("solver_0") == before
