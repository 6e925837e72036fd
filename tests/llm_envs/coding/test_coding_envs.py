"""The coding environments by hand: who speaks, what they see, what it is worth, how it ends, what is never shown."""

from __future__ import annotations

import pytest
from gymnasium import error

import llm_envs
from llm_envs.coding.judge import cases_of, judge
from llm_envs.coding.tasks import load_coding_tasks
from llm_envs.tasks import Task
from llm_envs.tools.sandbox import default_sandbox

IDS = ("code-1agent", "code-2agent", "code-3agent")


def fenced(source):
    return f"Here it is.\n```python\n{source}\n```"


ADD_ALL = "print(sum(map(int, input().split())))"
SUM_TASK = Task(
    "t/0",
    "Print the sum of the integers on the line.",
    ADD_ALL,
    {
        "form": "stdin",
        "public": [{"input": "1 2\n", "output": "3\n"}],
        "hidden": [{"input": f"{i} 7001 -1\n", "output": f"{i + 7000}\n"} for i in range(4)],
        "variants": ["print(max(map(int, input().split())))", "print(0)"],
    },
)
ADD = "def add(a, b):\n    return a + b"
ADD_TASK = Task(
    "t/1",
    "Write add(a, b), the sum.",
    ADD,
    {
        "form": "call",
        "entry_point": "add",
        "public": [{"input": "(1, 2)", "output": "3"}],
        "hidden": [{"input": "(0, 7003)", "output": "7003"}, {"input": "(7005, 2)", "output": "7007"}],
    },
)
WRONG = fenced("print(3)")  # passes the public test
WORSE = fenced("print(4)")
RIGHT = fenced(ADD_ALL)
HALF = fenced("n = [int(w) for w in input().split()]\nprint(sum(n) if n[0] < 2 else 0)")
GOOD_TEST = "<input>\n2 3\n</input>\n<output>\n5\n</output>"
WRONG_TEST = "<input>2 3</input><output>6</output>"
WEAK_TEST = "<input>0</input><output>0</output>"
APPROVE, REJECT = "<verify>approve</verify>", "<verify>reject</verify>"


def play(env, *texts):
    """Play the texts in turn; returns what every agent got in total, who spoke, and whether the limit ended it."""
    env.reset(seed=0)
    queue, order = list(texts), []
    total = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        _, reward, termination, truncation, _ = env.last()
        total[agent] += reward
        if termination or truncation:
            limit = truncation
            env.step(None)
        else:
            order.append(agent.partition("_")[0])
            env.step(queue.pop(0))
    assert not queue, f"{len(queue)} texts were not asked for"
    return {agent: pytest.approx(value) for agent, value in total.items()}, " ".join(order), limit


def make(env_id, task=SUM_TASK, **kwargs):
    return llm_envs.make(env_id, tasks=[task], order_enforcing=False, **kwargs)


# ---- code-1agent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "reward", "success", "truncated"),
    [
        ((RIGHT,), 1.0, True, False),
        ((WRONG,), 0.0, False, False),  # the public test passes, so the episode ends
        ((WORSE, RIGHT), 1.0, True, False),
        ((HALF,), 0.5, False, False),
        ((WORSE,) * 3, 0.0, False, True),
        ((WORSE, WORSE, "I give up"), -0.1, False, True),
        (("no code", RIGHT), 0.9, True, False),
        ((fenced("1/0"), fenced("while True: pass"), fenced("x = ")), 0.0, False, True),
        ((WRONG + "\n" + RIGHT,), 1.0, True, False),  # the last block counts
    ],
)
def test_a_coder_alone(texts, reward, success, truncated):
    env = make("code-1agent", max_rounds=3, time_limit=1.0)
    total, _, limit = play(env, *texts)
    assert total == {"coder_0": reward}
    assert (env.success, limit) == (success, truncated)


def test_a_coder_sees_the_public_tests_it_failed():
    env = make("code-1agent")
    env.reset(seed=0)
    first = env.observe("coder_0")
    assert "Example 1\ninput:\n1 2\noutput:\n3" in first
    env.step(WORSE)
    after = env.observe("coder_0")
    assert after.startswith(first.partition("\n\nYou are coder_0")[0])
    assert "[public tests] 0 of 1 passed.\n\ninput:\n1 2\nexpected output:\n3\ngot:\n4" in after
    env.step(fenced("int('x')"))
    assert "(error) ValueError: invalid literal for int() with base 10: 'x' (line 1)" in env.observe("coder_0")
    assert "7001" not in env.observe("coder_0")


def test_calls_are_shown_as_calls():
    env = make("code-1agent", ADD_TASK)
    env.reset(seed=0)
    assert "Examples:\nadd(1, 2) == 3" in env.observe("coder_0")
    env.step(fenced("def add(a, b): return a - b"))
    assert "add(1, 2)\nexpected: 3\ngot: -1" in env.observe("coder_0")
    env.step(fenced(ADD))
    assert env.success
    assert env.infos["coder_0"]["hidden_passed"] == 1.0
    assert env.infos["coder_0"]["isolation"] in ("bwrap", "userns")


def test_a_task_without_public_tests_ends_with_the_first_program():
    task = Task("t/2", "Add.", ADD, {**ADD_TASK.data, "public": []})
    total, order, limit = play(make("code-1agent", task), fenced("def add(a, b): return 7003"))
    assert (total, order, limit) == ({"coder_0": 0.5}, "coder", False)


# ---- code-2agent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "coder", "tester", "success", "truncated"),
    [
        ((RIGHT, GOOD_TEST), 2.0, 2.0, True, False),
        ((RIGHT, WRONG_TEST) * 2, 2.0, 1.0, True, True),  # right, but the tests are not
        ((RIGHT, WEAK_TEST) * 2, 2.0, 1.0, True, True),  # no variant fails it: not valid
        ((RIGHT, GOOD_TEST + WEAK_TEST), 2.0, 1.0 + 0.2 + 0.4, True, False),
        ((RIGHT, GOOD_TEST + WRONG_TEST) * 2, 2.0, 1.0 - 0.2, True, True),  # contradiction: unusable, twice
        ((RIGHT, GOOD_TEST + "<input>2 4</input><output>7</output>") * 2, 2.0, 1.0 + 0.4, True, True),
        ((WORSE, GOOD_TEST, RIGHT, GOOD_TEST), 2.0, 2.0, True, False),
        ((RIGHT, WRONG_TEST, RIGHT, GOOD_TEST), 2.0, 2.0, True, False),  # a longer way earns the same
        ((RIGHT, WRONG_TEST, WORSE, WRONG_TEST), 0.2, 0.0, False, True),  # what was paid is taken back
        ((HALF, GOOD_TEST) * 2, 0.2 + 0.4, 1.0, False, True),
        ((fenced("x = "), GOOD_TEST) * 2, 0.0, 1.0, False, True),
        ((fenced("1/0"), GOOD_TEST) * 2, 0.1, 1.0, False, True),
        (("no code", GOOD_TEST) * 2, -0.2, 1.0, False, True),
        ((RIGHT, "they pass") * 2, 2.0, 1.0 - 0.2, True, True),
        (("", "") * 2, -0.2, -0.2, False, True),
    ],
)
def test_coder_and_tester(texts, coder, tester, success, truncated):
    env = make("code-2agent", max_rounds=2)
    total, order, limit = play(env, *texts)
    assert total == {"coder_0": coder, "tester_0": tester}
    assert order == " ".join(["coder tester"] * (len(texts) // 2))
    assert (env.success, limit) == (success, truncated)


def test_the_shared_outcome_can_be_weighted():
    total, _, _ = play(make("code-2agent", team_weight=3.0), RIGHT, GOOD_TEST)
    assert total == {"coder_0": 4.0, "tester_0": 4.0}


def test_both_see_where_code_and_tests_differ_but_not_within_the_round():
    env = make("code-2agent")
    env.reset(seed=0)
    before = env.observe("tester_0")
    env.step(WORSE)
    assert env.observe("tester_0") == before
    env.step(GOOD_TEST)
    for agent in env.possible_agents:
        seen = env.observe(agent)
        assert WORSE in seen
        assert GOOD_TEST in seen
        assert "[tests of tester_0] 0 of 1 passed.\n\ninput:\n2 3\nexpected output:\n5\ngot:\n4" in seen
        assert "7001" not in seen


def test_tests_of_a_function_are_assertions():
    env = make("code-2agent", ADD_TASK, max_rounds=1)
    suite = "```python\nassert add(2, 3) == 5\nassert add([1], [2]) == [1, 2]\n```"
    total, _, _ = play(env, fenced(ADD), suite)  # the mutant a - b fails both
    assert total == {"coder_0": 2.0, "tester_0": 2.0}


@pytest.mark.parametrize(
    ("suite", "reason"),
    [
        ("```python\nassert add(2, 3)\n```", "no assertion of an equality"),
        ("```python\nassert sub(2, 3) == 5\n```", "does not call add"),
        ("```python\nassert add(2, x) == 5\n```", "not a Python literal"),
        ("```python\nassert add(2, 3) == add(3, 2)\n```", "not a Python literal"),
        ("```python\nassert add(2, b=3) == 5\n```", "names an argument"),
        ("```python\nassert add(2, 3) == 5 == 5\n```", "no assertion of an equality"),
        ("```python\nimport os\nassert add(2, 3) == 5\n```", "no assertion of an equality"),
        ("```python\nassert add(2, 3) ==\n```", "not Python"),
        ("```python\n# nothing\n```", "No test was found"),
        ("```python\nassert add(2, 3) == 5\nassert add(2, 3) == 6\n```", "different results of the same input"),
        ("```python\n" + "\n".join(f"assert add({i}, 3) == {i + 3}" for i in range(11)) + "\n```", "at most 10"),
        ("assert add(2, 3) == 5", "No python code block"),
    ],
)
def test_other_tests_are_unusable_and_say_why(suite, reason):
    env = make("code-2agent", ADD_TASK)
    env.reset(seed=0)
    env.step(fenced(ADD))
    env.step(suite)
    assert reason in env.infos["tester_0"]["invalid_action"]
    assert reason in env.observe("tester_0")
    assert env.infos["tester_0"]["reward_parts"]["invalid"] == -0.1


@pytest.mark.parametrize("text", ["<input>1</input>", "<output>1</output><input>1</input>", GOOD_TEST + "<input>"])
def test_half_tests_are_unusable(text):
    env = make("code-2agent")
    env.reset(seed=0)
    env.step(RIGHT)
    env.step(text)
    assert "<input>…</input><output>…</output>" in env.infos["tester_0"]["invalid_action"]


def test_a_task_without_a_reference_is_refused():
    task = Task("t/3", SUM_TASK.question, "", SUM_TASK.data)
    with pytest.raises(error.Error, match=r"t/3 has no reference solution"):
        make("code-2agent", task).reset(seed=0)
    env = make("code-1agent", task)
    assert play(env, RIGHT) == ({"coder_0": 1.0}, "coder", False)
    with pytest.raises(error.Error, match=r"t/3 has no reference solution"):
        env.oracle("coder_0")


# ---- code-3agent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "team", "penalties", "order", "truncated"),
    [
        (("Add them.", RIGHT, APPROVE), 1.0, {}, "planner coder reviewer", False),
        (("Add them.", WRONG, APPROVE), 0.0, {}, "planner coder reviewer", False),
        (("Add them.", HALF, REJECT, "Again.", RIGHT), 1.0, {}, "planner coder reviewer planner coder", True),
        (("Add.", RIGHT, "fine", "x", RIGHT), 1.0, {"reviewer_0": -0.1}, "planner coder reviewer planner coder", True),
        (("Add.", RIGHT, REJECT, "Again.", "no"), 0.0, {"coder_0": -0.1}, "planner coder reviewer planner coder", True),
        ((" ", RIGHT, APPROVE), 1.0, {"planner_0": -0.1}, "planner coder reviewer", False),
        (("Add.", "none", APPROVE), 0.0, {"coder_0": -0.1}, "planner coder reviewer", False),
        (("x", RIGHT, APPROVE * 2, "x", RIGHT), 1, {"reviewer_0": -0.1}, "planner coder reviewer planner coder", True),
    ],
)  # fmt: skip
def test_planner_coder_reviewer(texts, team, penalties, order, truncated):
    env = make("code-3agent")
    total, spoke, limit = play(env, *texts)
    assert (spoke, limit) == (order, truncated)
    assert total == {agent: team + penalties.get(agent, 0.0) for agent in env.possible_agents}
    assert env.success is (team == 1.0)


def test_the_reviewer_sees_plan_program_and_public_results():
    env = make("code-3agent")
    env.reset(seed=0)
    env.step("Add them all up.")
    env.step(WORSE)
    seen = env.observe("reviewer_0")
    assert seen.index("Add them all up.") < seen.index("print(4)") < seen.index("[public tests] 0 of 1 passed.")
    assert env.oracle("reviewer_0") == REJECT


# ---- all of them -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_the_oracle_solves_generated_tasks(env_id):
    oracle_solves(env_id, range(0, 40))


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_the_oracle_solves_200_generated_tasks(env_id):
    oracle_solves(env_id, range(40, 240))


def oracle_solves(env_id, indices):
    best = {"code-1agent": 1.0, "code-2agent": 2.0, "code-3agent": 1.0}[env_id]
    for split in ("train", "test"):
        env = llm_envs.make(env_id, split=split, order_enforcing=False)
        for index in list(indices)[:: 1 if split == "train" else 4]:
            env.reset(seed=0, options={"task_index": index})
            total = dict.fromkeys(env.possible_agents, 0.0)
            for agent in env.agent_iter():
                _, reward, termination, truncation, _ = env.last(observe=False)
                total[agent] += reward
                env.step(None if termination or truncation else env.oracle(agent))
            assert env.success, env.task
            assert total == {agent: pytest.approx(best) for agent in total}, env.task


@pytest.mark.parametrize("env_id", IDS)
def test_hidden_tests_never_reach_a_prompt(env_id):
    """Search every observation of every agent for hidden inputs and outputs, in episodes that end in every way."""
    searched = 0
    for index in range(0, 60, 3):
        env = llm_envs.make(env_id, order_enforcing=False)
        for strategy in ("wrong", "nothing", "prints its input", "oracle at last"):
            env.reset(seed=0, options={"task_index": index})
            public = str(env.observe(env.possible_agents[0]))
            rows = [text.strip() for case in env.task.data["hidden"] for text in case.values()]
            # Short texts occur by chance, and what the public tests hold is known.
            secrets = [text for text in rows if len(text) > 15 and text not in public]
            spoken = ""
            while env.round_agents:
                for agent in env.possible_agents:
                    seen = str(env.observe(agent))
                    assert not [text for text in secrets if text in seen and text not in spoken], (env.task.id, agent)
                    searched += len(secrets)
                agent = env.agent_selection
                action = text_of(strategy, agent, env)
                spoken += action
                env.step(action)
    assert searched > 2000


def text_of(strategy, agent, env):
    if agent == "planner_0":
        return "Do it."
    if agent == "reviewer_0":
        return REJECT
    if agent == "tester_0":
        return "none"
    if strategy == "wrong":
        return fenced(env.task.data["variants"][0])
    if strategy == "prints its input":
        return fenced("import sys\nprint(sys.stdin.read())\ndef f(*a): return a")
    if strategy == "oracle at last" and len(env.transcript) > 2:
        return env.oracle(agent)
    return "no idea"


ADVERSARIAL = {
    "empty": lambda env, agent: "",
    "echoed prompt": lambda env, agent: str(env.observe(agent)),
    "an empty program": lambda env, agent: fenced("pass"),
    "sys.exit(0)": lambda env, agent: fenced("import sys\nsys.exit(0)"),
    "os._exit(0)": lambda env, agent: fenced("import os\nos._exit(0)"),
    "truncated": lambda env, agent: env.oracle(agent)[: len(env.oracle(agent)) // 2],
    "unfenced": lambda env, agent: env.oracle(agent).replace("```", "''"),
    "reversed": lambda env, agent: env.oracle(agent)[::-1],
    "approval only": lambda env, agent: APPROVE,
    "the examples": lambda env, agent: fenced(
        "import sys\nknown = " + repr({c["input"]: c["output"] for c in env.task.data["public"]})
        + "\nprint(known.get(sys.stdin.read(), ''), end='')"
    ),
    "several answers": lambda env, agent: env.oracle(agent) + "\n" + fenced("pass"),
}  # fmt: skip


@pytest.mark.parametrize("name", ADVERSARIAL)
@pytest.mark.parametrize("env_id", IDS)
def test_evasive_texts_solve_nothing(env_id, name):
    env = llm_envs.make(env_id, order_enforcing=False, max_rounds=2)
    for index in range(0, 60, 10):
        env.reset(seed=0, options={"task_index": index})
        team = dict.fromkeys(env.possible_agents, 0.0)
        for agent in env.agent_iter():
            _, _, termination, truncation, info = env.last(observe=False)
            team[agent] += info["reward_parts"].get("team", 0.0)
            env.step(None if termination or truncation else ADVERSARIAL[name](env, agent))
        assert not env.success, env.task
        assert max(team.values()) <= 0.75, (env.task, team)  # a constant can pass some yes-or-no tests


def test_an_own_sandbox_is_used():
    runs = []

    def run(code, stdin="", *, limits=None):
        runs.append(limits)
        return default_sandbox().run(code, stdin, limits=limits)

    play(make("code-1agent", run=run, time_limit=2.0), RIGHT)
    assert len(runs) == 2  # public, hidden
    assert {limits.memory_bytes for limits in runs} == {512 << 20}


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan")])
def test_a_bad_time_limit_is_named(value):
    with pytest.raises(error.Error, match="`time_limit` must be a number of seconds above 0"):
        make("code-1agent", time_limit=value)


def test_module_form():
    from llm_envs.coding import code_1agent_v0, code_2agent_v0

    assert code_1agent_v0.env(max_rounds=2).unwrapped.max_rounds == 2
    assert set(code_2agent_v0.parallel_env().possible_agents) == {"coder_0", "tester_0"}
    with pytest.raises(error.NameNotFound, match="code-9agent"):
        from llm_envs.coding import code_9agent_v0  # noqa: F401


def test_public_tests_alone_do_not_make_a_solution():
    """A table of the public tests passes these and nothing else, on every template task."""
    tasks = load_coding_tasks("templates", size=20)
    for task in tasks:
        public = {c["input"]: c["output"] for c in task.data["public"]}
        name = task.data.get("entry_point")
        if name is None:
            program = f"import sys\nprint({public!r}.get(sys.stdin.read(), 'none'))"
        else:
            program = f"def {name}(*a): return eval({public!r}.get(repr(a), 'object'))"
        assert judge(program, cases_of(task.data["public"]), entry_point=name).passed
        assert judge(program, cases_of(task.data["hidden"]), entry_point=name).fraction == 0.0
