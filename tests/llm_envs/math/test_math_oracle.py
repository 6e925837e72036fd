"""The oracle solves every task of every set; evasive answers solve none."""

from __future__ import annotations

import pytest

import llm_envs
from llm_envs.math.procedural import PROCEDURAL
from llm_envs.math.tasks import load_math_tasks

IDS = sorted(env_id for env_id in llm_envs.registry if env_id.startswith("math-"))
FILES = {"math500.jsonl": 500, "gsm8k_test.jsonl": 1319, "aime24.jsonl": 30, "amc23.jsonl": 40}
TASKS_A_SET = 200


def play(env, index, text):
    env.reset(seed=0, options={"task_index": index})
    total = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        _, reward, termination, truncation, _ = env.last(observe=False)
        total[agent] += reward
        env.step(None if termination or truncation else text(env, agent))
    return env.success, total


def oracle(env, agent):
    return env.oracle(agent)


def best(env_id):
    return 2.0 if env_id.startswith("math-tool") else 1.0


@pytest.mark.parametrize("name", sorted(PROCEDURAL))
@pytest.mark.parametrize("split", ["train", "test"])
def test_oracle_on_procedural_sets(name, split):
    tasks = load_math_tasks(name, split)
    solved = 0
    for env_id in ("math-1agent", "math-2agent", "math-4agent", "math-debate"):
        env = llm_envs.make(env_id, tasks=tasks, order_enforcing=False)
        for index in range(min(TASKS_A_SET, len(tasks))):
            assert play(env, index, oracle) == (True, dict.fromkeys(env.possible_agents, 1.0)), tasks[index]
            solved += 1
    assert solved >= 4 * min(TASKS_A_SET, len(tasks))


@pytest.mark.parametrize("name", sorted(PROCEDURAL))
def test_oracle_with_a_program(name):
    tasks = load_math_tasks(name, "train")
    env = llm_envs.make("math-tool-2agent", tasks=tasks, order_enforcing=False)
    count = min(40, len(tasks))
    assert [play(env, i, oracle) for i in range(count)] == [(True, {"reasoner_0": 2.0, "coder_0": 2.0})] * count


@pytest.mark.parametrize("file", FILES)
def test_oracle_on_real_sets(file, shared_data):
    env = llm_envs.make("math-2agent", tasks=str(shared_data / "math" / file), order_enforcing=False)
    assert len(env.tasks) == FILES[file]
    failed = [env.tasks[i] for i in range(len(env.tasks)) if not play(env, i, oracle)[0]]
    assert failed == []


ADVERSARIAL = {
    "empty": lambda env, agent: "",
    "echoed prompt": lambda env, agent: str(env.observe(agent)),
    "ten boxes": lambda env, agent: " ".join(rf"\boxed{{{i}}}" for i in range(9)) + rf" \boxed{{{env.task.answer}}}",
    "prose only": lambda env, agent: f"The right answer is {env.task.answer}, I am sure.",
    "a boxed list": lambda env, agent: rf"\boxed{{{env.task.answer}, 1234567}}",
    "or": lambda env, agent: rf"\boxed{{{env.task.answer} or 1234567}}",
    "the question itself": lambda env, agent: rf"\boxed{{{env.task.question.removeprefix('What is ').rstrip('?')}}}",
    "truncated": lambda env, agent: env.oracle(agent)[:-3],
    "approval only": lambda env, agent: "<verify>approve</verify>",
    "gold in a comment": lambda env, agent: f"```python\n# {env.task.answer}\n```",
}


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize("env_id", IDS)
def test_evasive_answers_solve_nothing(env_id, name, shared_data):
    sets = ["arithmetic", str(shared_data / "math" / "gsm8k_test.jsonl"), str(shared_data / "math" / "math500.jsonl")]
    for tasks in sets:
        env = llm_envs.make(env_id, tasks=tasks, order_enforcing=False)
        for index in range(0, min(len(env.tasks), 400), 20):
            if name in ("a boxed list", "or") and "," in env.tasks[index].answer:
                continue  # a gold that is itself a list: one value more is tested elsewhere
            success, total = play(env, index, ADVERSARIAL[name])
            assert not success, env.tasks[index]
            # Local parts for well-formed text may be earned; the outcome may not.
            assert max(total.values()) <= 0.2, (env.tasks[index], total)
