"""The five math environments by hand: who speaks, what they see, what it is worth, how it ends."""

from __future__ import annotations

import pytest

import llm_envs
from llm_envs.math.grading import Verdict
from llm_envs.tasks import Task

TASKS = [Task("t/0", "What is 2+2?", "4")]
RIGHT, WRONG = r"It is \boxed{4}.", r"It is \boxed{5}."
APPROVE, REJECT = "<verify>approve</verify>", "<verify>reject</verify>"


def play(env, *texts):
    """Play the texts in turn; returns what every agent got in total, and the environment."""
    env.reset(seed=0)
    queue = list(texts)
    total = dict.fromkeys(env.possible_agents, 0.0)
    order = []
    for agent in env.agent_iter():
        _, reward, termination, truncation, _ = env.last()
        total[agent] += reward
        if termination or truncation:
            env.step(None)
        else:
            order.append(agent.partition("_")[0])
            env.step(queue.pop(0))
    assert not queue, f"{len(queue)} texts were not asked for"
    return total, order


def make(env_id, **kwargs):
    return llm_envs.make(env_id, tasks=TASKS, order_enforcing=False, **kwargs)


# ---- math-1agent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "reward", "success"), [(RIGHT, 1.0, True), (WRONG, 0.0, False), ("4", -0.1, False)])
def test_one_answer(text, reward, success):
    env = make("math-1agent")
    total, order = play(env, text)
    assert (total, order) == ({"solver_0": reward}, ["solver"])
    assert env.success is success


def test_later_rounds_see_earlier_answers_and_the_last_counts():
    env = make("math-1agent", max_rounds=2)
    env.reset(seed=0)
    env.step(WRONG)
    assert WRONG in env.observe("solver_0")
    env.step(RIGHT)
    assert env.success
    assert env.terminations == {"solver_0": True}
    total, _ = play(env, RIGHT, "I withdraw")
    assert total == {"solver_0": -0.1}
    assert not env.success


# ---- math-2agent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "solver", "verifier", "order", "success", "truncated"),
    [
        ((RIGHT, APPROVE), 1.0, 1.0, "solver verifier", True, False),
        ((WRONG, APPROVE), 0.0, 0.0, "solver verifier", False, False),
        ((WRONG, REJECT, RIGHT), 1.0, 1.0, "solver verifier solver", True, True),
        ((RIGHT, REJECT, WRONG), 0.0, 0.0, "solver verifier solver", False, True),
        ((RIGHT, "fine", RIGHT), 1.0, 0.9, "solver verifier solver", True, True),  # no verdict is no approval
        (("four", APPROVE), -0.1, 0.0, "solver verifier", False, False),  # nothing to approve
        ((RIGHT, REJECT, "four"), -0.1, 0.0, "solver verifier solver", False, True),  # the answer is withdrawn
        ((RIGHT, APPROVE + REJECT, RIGHT), 1.0, 0.9, "solver verifier solver", True, True),
    ],
)
def test_solver_and_verifier(texts, solver, verifier, order, success, truncated):
    env = make("math-2agent")
    env.reset(seed=0)
    ends = []
    for text in texts:
        env.step(text)
        ends.append((env.terminations["solver_0"], env.truncations["solver_0"]))
    assert ends[-1] == (not truncated, truncated)
    assert set(ends[:-1]) <= {(False, False)}
    total, spoke = play(env, *texts)
    assert total == pytest.approx({"solver_0": solver, "verifier_0": verifier})
    assert spoke == order.split()
    assert env.success is success


def test_verifier_reward_is_its_own_part():
    env = make("math-2agent", verifier_reward=0.5)
    assert play(env, WRONG, REJECT, WRONG)[0] == {"solver_0": 0.0, "verifier_0": 0.5}
    assert play(env, WRONG, APPROVE)[0] == {"solver_0": 0.0, "verifier_0": 0.0}
    assert play(env, RIGHT, APPROVE)[0] == {"solver_0": 1.0, "verifier_0": 1.5}
    env.reset(seed=0)
    env.step(RIGHT)
    env.step(APPROVE)
    assert env.infos["verifier_0"]["reward_parts"] == {"verdict": 0.5, "team": 1.0}
    assert env.infos["solver_0"]["reward_parts"] == {"team": 1.0}
    assert env.infos["solver_0"]["verdict"] == "correct"


def test_history_is_shared_and_instructions_come_last():
    env = make("math-2agent")
    env.reset(seed=0)
    first = env.observe("solver_0")
    env.step(WRONG)
    verifier = env.observe("verifier_0")
    env.step("No. " + REJECT)
    second = env.observe("solver_0")
    assert first.startswith("Problem:\nWhat is 2+2?\n\nYou are solver_0.")
    assert verifier.startswith(f"Problem:\nWhat is 2+2?\n\n[solver_0]\n{WRONG}\n\nYou are verifier_0.")
    assert second.startswith(f"Problem:\nWhat is 2+2?\n\n[solver_0]\n{WRONG}\n\n[verifier_0]\nNo. {REJECT}\n\nYou are")
    assert "find the mistake" in second
    assert "4" not in first.replace("solver_0", "")  # the gold answer is nowhere in the prompt


def test_retries_are_an_option():
    env = make("math-2agent", max_retries=1)
    assert play(env, "four", RIGHT, APPROVE)[0] == pytest.approx({"solver_0": 0.9, "verifier_0": 1.0})
    assert play(env, "four", "4", REJECT, RIGHT)[0] == pytest.approx({"solver_0": 0.8, "verifier_0": 1.0})


def test_undecided_is_shown_and_not_a_success():
    env = make("math-2agent", grader=lambda *, gold, answer: Verdict.UNDECIDED)
    env.reset(seed=0)
    env.step(RIGHT)
    env.step(APPROVE)
    assert env.infos["solver_0"]["verdict"] == "undecided"
    assert env.infos["solver_0"]["success"] is False


# ---- math-4agent -------------------------------------------------------------------------------------------------


def test_four_roles_in_order_and_no_verifier_in_the_last_round():
    env = make("math-4agent")
    total, order = play(env, WRONG, "Recheck.", RIGHT, REJECT, RIGHT, "Good.", RIGHT)
    assert order == "solver critic refiner verifier solver critic refiner".split()
    assert total == dict.fromkeys(env.possible_agents, 1.0)
    total, order = play(env, WRONG, "Recheck.", RIGHT, APPROVE)
    assert order == "solver critic refiner verifier".split()
    assert env.success


def test_the_refiner_decides_and_empty_criticism_is_unusable():
    env = make("math-4agent")
    total, _ = play(env, RIGHT, "", WRONG, APPROVE)
    assert total == pytest.approx({"solver_0": 0.0, "critic_0": -0.1, "refiner_0": 0.0, "verifier_0": 0.0})


# ---- math-tool-2agent --------------------------------------------------------------------------------------------

CODE_RIGHT = "```python\nprint(2 + 2)\n```"


@pytest.mark.parametrize(
    ("texts", "reasoner", "coder", "success"),
    [
        ((RIGHT, CODE_RIGHT), 2.0, 2.0, True),
        ((WRONG, "```python\nprint(5)\n```"), 0.2, 0.2, False),  # they agree on a wrong answer
        ((r"\boxed{2+2}", CODE_RIGHT, RIGHT, CODE_RIGHT), 2.0, 2.0, True),  # the question does not agree with 4
        ((WRONG, "```python\n1/0\n```", RIGHT, CODE_RIGHT), 2.0, 2.0, True),
        ((RIGHT, "```python\n1/0\n```", RIGHT, "```python\nx = (\n```"), 2.0, 1.0, True),
        ((RIGHT, "```python\n1/0\n```", WRONG, "```python\nx = (\n```"), 0.2, 0.0, False),
        ((RIGHT, "print(4)", RIGHT, CODE_RIGHT), 2.0, 1.9, True),
        (("four", CODE_RIGHT, RIGHT, CODE_RIGHT), 1.9, 2.0, True),
    ],
)
def test_reasoner_and_coder(texts, reasoner, coder, success):
    env = make("math-tool-2agent", max_rounds=2)
    total, order = play(env, *texts)
    assert order == ["reasoner", "coder"] * (len(texts) // 2)
    assert total == pytest.approx({"reasoner_0": reasoner, "coder_0": coder})
    assert env.success is success


def test_staying_apart_earns_no_more_than_agreeing():
    long = play(make("math-tool-2agent", max_rounds=4), *[RIGHT, "```python\nprint(5)\n```"] * 4)[0]
    short = play(make("math-tool-2agent", max_rounds=4), RIGHT, CODE_RIGHT)[0]
    assert long == pytest.approx({"reasoner_0": 2.0, "coder_0": 1.2})
    assert all(long[agent] <= short[agent] for agent in short)


def test_the_round_is_closed_and_the_next_one_sees_everything():
    env = make("math-tool-2agent", max_rounds=2)
    env.reset(seed=0)
    assert env.round_agents == ("reasoner_0", "coder_0")
    before = env.observe("coder_0")
    env.step(RIGHT)
    assert env.observe("coder_0") == before
    assert env.rewards == {"reasoner_0": 0.0, "coder_0": 0.0}
    env.step("```python\nprint('five')\n```")
    for agent in env.possible_agents:
        assert RIGHT in env.observe(agent)
        assert "[output of the program]\nfive" in env.observe(agent)
    assert env.infos["coder_0"]["run_status"] == "ok"
    assert env.infos["coder_0"]["isolation"] in ("bwrap", "userns")


def test_failed_programs_show_their_error():
    env = make("math-tool-2agent", max_rounds=2)
    env.reset(seed=0)
    env.step(RIGHT)
    env.step("```python\n1/0\n```")
    assert "(failed: error) ZeroDivisionError: division by zero" in env.observe("reasoner_0")


# ---- math-debate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "reward", "success"),
    [
        ((RIGHT, RIGHT, RIGHT), 1.0, True),
        ((RIGHT, RIGHT, WRONG), 1.0, True),
        ((RIGHT, WRONG, WRONG), 0.0, False),
        ((RIGHT, WRONG, r"\boxed{6}"), 0.0, False),  # a tie fails
        ((RIGHT, r"\boxed{x = 4.0}", WRONG), 1.0, True),  # equal answers vote together
        ((r"\boxed{x = 4.0}", RIGHT, WRONG), 1.0, True),
        ((RIGHT, r"\boxed{2+2}", WRONG), 0.0, False),  # the question is no vote for its answer, in either order
        ((r"\boxed{2+2}", RIGHT, WRONG), 0.0, False),
        ((RIGHT, r"\boxed{2+2}", r"\boxed{2 + 2}"), 0.0, False),
    ],
)
def test_vote(texts, reward, success):
    env = make("math-debate", max_rounds=1)
    assert play(env, *texts)[0] == dict.fromkeys(env.possible_agents, reward)
    assert env.success is success


def test_unusable_text_casts_no_vote():
    env = make("math-debate", max_rounds=1)
    total, _ = play(env, RIGHT, "four", "4")
    assert total == pytest.approx({"debater_0": 1.0, "debater_1": 0.9, "debater_2": 0.9})


def test_agreement_ends_early_and_disagreement_goes_on():
    env = make("math-debate", max_rounds=3)
    assert play(env, RIGHT, RIGHT, RIGHT)[1] == ["debater"] * 3
    assert play(env, RIGHT, RIGHT, WRONG, RIGHT, RIGHT, RIGHT)[1] == ["debater"] * 6
    assert env.success


def test_own_reward_and_number_of_debaters():
    env = make("math-debate", n_agents=2, max_rounds=1, own_reward=0.3)
    assert play(env, RIGHT, WRONG)[0] == pytest.approx({"debater_0": 0.3, "debater_1": 0.0})
    with pytest.raises(
        llm_envs.registration.error.Error, match="`n_agents` must be an integer of 2 or more, actual value: 1"
    ):
        make("math-debate", n_agents=1)
