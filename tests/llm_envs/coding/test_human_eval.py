"""HumanEval: every canonical solution passes, nothing empty does, and no program meets the assertions."""

from __future__ import annotations

import pytest

import llm_envs
from llm_envs.coding.checks import judge_check
from llm_envs.coding.tasks import load_coding_tasks
from llm_envs.tasks import Task, TaskError
from llm_envs.tools.sandbox import default_sandbox

EVASIVE = {
    "empty": lambda task: "\n",
    "pass": lambda task: "pass",
    "signature only": lambda task: task.question.partition("\n\n")[2] + "\n    ...",
    "sys.exit(0)": lambda task: "import sys\nsys.exit(0)",
}


@pytest.fixture(scope="module")
def path(shared_data):
    return str(shared_data / "code" / "HumanEval.jsonl.gz")


def play(env, index, program):
    env.reset(seed=0, options={"task_index": index})
    total = 0.0
    for _ in env.agent_iter():
        _, reward, termination, truncation, _ = env.last(observe=False)
        total += reward
        env.step(None if termination or truncation else program(env.task))
    return env.success, total


def test_all_canonical_solutions_pass(path):
    env = llm_envs.make("code-1agent", tasks=path, order_enforcing=False)
    assert len(env.tasks) == 164
    results = [play(env, i, lambda task: env.oracle("coder_0")) for i in range(164)]
    assert results == [(True, 1.0)] * 164


@pytest.mark.slow
@pytest.mark.parametrize("name", EVASIVE)
def test_nothing_empty_passes(path, name):
    env = llm_envs.make("code-1agent", tasks=path, order_enforcing=False, max_rounds=1)
    solved = [i for i in range(164) if play(env, i, lambda task: f"```python\n{EVASIVE[name](task)}\n```")[0]]
    assert solved == []


def test_a_few_empty_programs_fail(path):
    env = llm_envs.make("code-1agent", tasks=path, order_enforcing=False, max_rounds=1)
    for name in EVASIVE:
        for index in range(0, 164, 20):
            assert not play(env, index, lambda task, name=name: f"```python\n{EVASIVE[name](task)}\n```")[0]


def test_every_statement_has_the_signature_and_no_assertion(path):
    for task in load_coding_tasks(path):
        assert f"def {task.data['entry_point']}(" in task.question
        assert "candidate" not in task.question
        assert "METADATA" not in task.question


def test_helpers_of_the_prompt_are_there(path):
    """HumanEval/32 and /38 give a helper beside the function; a solution need not repeat it, nor the imports."""
    tasks = {task.data["entry_point"]: task for task in load_coding_tasks(path)}
    assert "def poly(" in tasks["find_zero"].data["prelude"]
    assert tasks["has_close_elements"].data["prelude"] == "from typing import List"
    body = tasks["decode_cyclic"].answer.partition("def decode_cyclic")[2]
    assert judge(tasks["decode_cyclic"], "def decode_cyclic" + body).passed


def test_two_agents_play_it_with_mutants_of_the_canonical_solution(path):
    env = llm_envs.make("code-2agent", tasks=path, order_enforcing=False)
    best = 0
    for index in range(0, 164, 12):
        env.reset(seed=0, options={"task_index": index})
        total = dict.fromkeys(env.possible_agents, 0.0)
        for agent in env.agent_iter():
            _, reward, termination, truncation, _ = env.last(observe=False)
            total[agent] += reward
            env.step(None if termination or truncation else env.oracle(agent))
        assert env.success
        assert total["coder_0"] == pytest.approx(2.0)
        best += total["tester_0"] == pytest.approx(2.0)
    assert best == 14


def judge(task, program, run=None):
    options = {} if run is None else {"run": run}
    return judge_check(
        program,
        check=task.data["check"],
        reference=task.answer,
        entry_point=task.data["entry_point"],
        prelude=task.data.get("prelude", ""),
        **options,
    )


TASK = Task(
    "t/0",
    "Write f(x), x squared.",
    "def f(x):\n    return x * x",
    {
        "form": "call",
        "entry_point": "f",
        "check": "assert candidate(3) == 9\nassert abs(f(0.5) - 0.25) < 1e-6\n"
        "for i in range(3):\n    assert f(i) == i * i",
    },
)


@pytest.mark.parametrize(
    ("program", "fraction"),
    [
        ("def f(x): return x ** 2", 1.0),
        ("def f(x): return x * x + 1e-9", 1 / 5),
        ("def f(x): return x + x", 2 / 5),
        ("def f(x): return 9", 1 / 5),
        ("def f(x): return [1] if x == 3 else x * x", 4 / 5),
        ("def f(x): return 1 / 0 if x == 3 else x * x", 4 / 5),
        ("import os\ndef f(x): os._exit(0)", 0.0),
        ("def f(x): return None", 0.0),
        ("class Liar(int):\n    __eq__ = lambda s, o: True\ndef f(x): return Liar(7)", 0.0),
        ("import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.range = lambda *a: ()\ndef f(x): return 7", 0.0),
        ("def f(x):\n    import sys\n    for m in list(sys.modules): sys.modules.pop(m)\n    return 7", 0.0),
    ],
)
def test_every_assertion_has_a_verdict(program, fraction):
    assert judge(TASK, program).fraction == pytest.approx(fraction)


def test_the_program_never_meets_the_assertions():
    met = []

    def spy(code, stdin="", *, limits=None):
        met.append(code + stdin)
        return default_sandbox().run(code, stdin, limits=limits)

    assert judge(TASK, "def f(x): return x * x  # the judged program", run=spy).passed
    with_program = [text for text in met if "# the judged program" in text]
    assert len(with_program) == 1
    assert "candidate(3)" not in with_program[0]
    assert "return x * x\\n" not in with_program[0]


def test_a_check_that_its_own_reference_fails_is_an_error():
    broken = Task("t/1", "q", "def f(x):\n    return x", TASK.data)
    with pytest.raises(
        TaskError, match=r"reference solution of 'f' does not pass its own check \(2 of 5 assertions hold"
    ):
        judge(broken, "def f(x): return x * x")
