"""Every published format by a row made by hand, files of one's own, the release window, and what is refused."""

from __future__ import annotations

import base64
import json
import pickle
import zlib

import pytest

import llm_envs
from llm_envs.coding.mutants import mutants
from llm_envs.coding.tasks import load_coding_tasks
from llm_envs.tasks import TaskError

ADD = "def add(a, b):\n    return a + b\n"
PAIRS = {"input": ["1 2\n", "3 4\n"], "output": ["3\n", "7\n"]}
SUM = "print(sum(map(int, input().split())))"

MBPP = {
    "text": "Write a function to add.",
    "code": ADD.replace("\n", "\r\n"),
    "task_id": 7,
    "test_setup_code": "",
    "test_list": ["assert add(1, 2) == 3", "assert add(5, 6) == 11", "assert set(add([1], [2])) == {1, 2}"],
    "challenge_test_list": [],
}
APPS = {
    "question": "Add the numbers.",
    "solutions": json.dumps([SUM]),
    "input_output": json.dumps({"inputs": PAIRS["input"], "outputs": PAIRS["output"]}),
    "difficulty": "interview",
    "starter_code": "",
}
APPS_CALL = {
    **APPS,
    "question": "Add two numbers.",
    "solutions": json.dumps([ADD]),
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}),
    "starter_code": "def add(a, b):\n\t",
}
CONTESTS = {
    "description": "Add the numbers.",
    "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
    "private_tests": PAIRS,
    "generated_tests": {"input": ["9 9\n"], "output": ["18\n"]},
    "solutions": {"language": [2, 3], "solution": ["int main() {}", SUM]},
    "incorrect_solutions": {"language": [3, 1, 3], "solution": ["print(0)", "print 0", "print(input())"]},
}


def live(title, date, private, metadata="{}"):
    return {
        "question_content": title,
        "question_id": title,
        "contest_date": f"{date}T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps([{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]),
        "private_test_cases": private,
        "metadata": metadata,
    }


PRIVATE = json.dumps([{"input": "3 4\n", "output": "7\n", "testtype": "stdin"}])
PACKED = base64.b64encode(zlib.compress(pickle.dumps(PRIVATE))).decode()


def load(tmp_path, *rows, name="rows", **options):
    path = tmp_path / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_coding_tasks(str(path), **options)


def solve(tasks, index=0, program=None):
    env = llm_envs.make("code-1agent", tasks=tasks, order_enforcing=False)
    env.reset(seed=0, options={"task_index": index})
    env.step(f"```python\n{program}\n```" if program else env.oracle("coder_0"))
    return env


def test_mbpp_shows_one_assertion_and_hides_the_others(tmp_path):
    (task,) = load(tmp_path, MBPP)
    assert task.data["public"] == ({"input": "(1, 2)", "output": "3"},)
    assert "assert add(1, 2) == 3" in task.question
    assert "11" not in task.question
    assert solve([task]).success
    assert not solve([task], program="def add(a, b): return 3").success
    env = solve([task], program="def add(a, b): return 11 if a == 5 else 3 if a == 1 else 0")
    assert env.infos["coder_0"]["hidden_passed"] == 0.5


def test_apps_on_standard_input_and_with_a_function(tmp_path):
    plain, call = load(tmp_path, APPS, APPS_CALL)
    assert (plain.data["form"], call.data["form"]) == ("stdin", "call")
    assert plain.data["difficulty"] == "interview"
    assert call.data["hidden"] == ({"input": "(1, 2)", "output": "3"}, {"input": "(3, 4)", "output": "7"})
    assert solve([plain]).success
    env = solve([call])
    assert env.success
    env.reset(seed=0)
    assert "Start from this:\ndef add(a, b):" in env.observe("coder_0")


def test_code_contests_uses_python_3_and_its_wrong_submissions(tmp_path):
    (task,) = load(tmp_path, CONTESTS)
    assert task.answer == SUM
    assert task.data["variants"] == ("print(0)", "print(input())")
    hidden = [case["input"] for case in task.data["hidden"]]
    assert hidden == ["3 4\n", "9 9\n"]  # the public one is not hidden too
    assert solve([task]).success


def test_live_code_bench_in_both_packings(tmp_path):
    call = live("c", "2024-05-01", json.dumps([{"input": "[1]\n2", "output": "[1, 2]", "testtype": "functional"}]),
                '{"func_name": "push"}')  # fmt: skip
    call["public_test_cases"] = json.dumps([{"input": "[]\n1", "output": "[1]", "testtype": "functional"}])
    tasks = load(tmp_path, live("a", "2024-03-01", PRIVATE), live("b", "2024-04-01", PACKED), call)
    assert [task.data["released"] for task in tasks] == ["2024-03-01", "2024-04-01", "2024-05-01"]
    assert tasks[0].data["hidden"] == tasks[1].data["hidden"] == ({"input": "3 4\n", "output": "7\n"},)
    assert solve(tasks, 1, SUM).success
    assert solve(tasks, 2, "class Solution:\n    def push(self, xs, x):\n        return xs + [x]").success


def test_a_packed_text_is_read_but_never_executed(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("executed",))

    evil = base64.b64encode(zlib.compress(pickle.dumps(Evil()))).decode()
    with pytest.raises(TaskError, match="private_test_cases"):
        load(tmp_path, live("a", "2024-03-01", evil))
    with pytest.raises(TaskError, match="neither JSON nor its packed form"):
        load(tmp_path, live("a", "2024-03-01", "@@@"))


@pytest.fixture
def live_set(tmp_path, monkeypatch):
    rows = [live(f"q{month}", f"2024-{month:02d}-15", PRIVATE) for month in range(1, 13)]
    (tmp_path / "livecodebench.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "mbpp_test.jsonl").write_text(json.dumps(MBPP) + "\n")
    monkeypatch.setenv("LLM_ENVS_DATA", str(tmp_path))


def test_a_release_window(live_set):
    assert len(load_coding_tasks("livecodebench")) == 12
    window = load_coding_tasks("livecodebench", released_from="2024-03-15", released_until="2024-05-14")
    assert [task.data["released"] for task in window] == ["2024-03-15", "2024-04-15"]
    env = llm_envs.make("code-1agent", tasks="livecodebench", task_options={"released_from": "2024-12-01"})
    assert len(env.unwrapped.tasks) == 1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("livecodebench", {"released_from": "2025-01-01"}, "there are tasks from 2024-01-15 until 2024-12-15"),
        ("livecodebench", {"released_from": "May"}, "written like 2024-09-01, got 'May'"),
        ("mbpp", {"released_from": "2024-01-01", "split": "test"}, "no option 'released_from'"),
        ("mbpp", {"split": "train"}, "add mbpp/train.jsonl"),
        ("livecodebench", {"split": "train"}, "has no split 'train'"),
        ("humanevil", {}, "Did you mean: 'humaneval'"),
        ("mbpp", {"split": "test", "size": 3}, "no option 'size'"),
    ],
)
def test_what_cannot_be_had_is_named(live_set, name, options, message):
    with pytest.raises(TaskError, match=message):
        load_coding_tasks(name, **options)


def test_a_published_set_from_a_folder(live_set):
    tasks = load_coding_tasks("mbpp", "test")
    assert (tasks.name, tasks.split, len(tasks)) == ("mbpp", "test", 1)


def test_a_file_of_ones_own(tmp_path):
    rows = [
        {
            "question": "Print half of n, to a millionth.",
            "hidden_tests": [{"input": "3\n", "output": "1.5\n"}, {"input": "1\n", "output": "0.5\n"}],
            "public_tests": [{"input": "4\n", "output": "2.0\n"}],
            "tolerance": 1e-6,
            "solution": "print(int(input()) / 2)",
            "wrong_solutions": ["print(0)"],
        },
        {
            "question": "Write twice(x).",
            "entry_point": "twice",
            "hidden_tests": [{"args": [2], "result": 4}, {"args": [[1]], "result": [1, 1]}],
        },
    ]
    tasks = load(tmp_path, *rows)
    assert solve(tasks).success
    assert solve(tasks, program="print(int(input()) / 2 + 1e-8)").success
    assert not solve(tasks, program="print(int(input()) / 2 + 1e-3)").success
    assert solve(tasks, 1, "def twice(x): return x * 2").success
    assert tasks[0].data["variants"] == ("print(0)",)


def test_other_columns_can_be_named(tmp_path):
    row = {"q": "Add.", "tests": [{"input": "1 2\n", "output": "3\n"}], "code": SUM}
    (task,) = load(tmp_path, row, columns={"question": "q", "hidden": "tests", "answer": "code"})
    assert (task.question, task.answer) == ("Add.", SUM)
    assert solve([task]).success


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "Add."}, "no tests in the column 'hidden_tests'"),
        ({"question": "Add.", "hidden_tests": "x"}, "tests must be a list of objects"),
        ({"question": "Add.", "hidden_tests": [{"input": "1"}]}, "exactly the keys 'input' and 'output'"),
        (
            {"question": "Add.", "entry_point": "f", "hidden_tests": [{"args": 1, "result": 1}]},
            "args of a test must be a list",
        ),
        ({"question": " ", "hidden_tests": [{"input": "1", "output": "1"}]}, "question is empty"),
        ({**MBPP, "test_list": MBPP["test_list"][:1]}, "two assertions"),
        ({**MBPP, "test_list": ["assert sub(1) == 2"] * 2}, "no function that the code defines"),
        ({**APPS, "input_output": "{"}, "input_output is not JSON"),
        ({**APPS, "input_output": '{"inputs": [], "outputs": []}'}, "no hidden test"),
        ({"nothing": 1}, "no question in any of the columns"),
    ],
)
def test_a_row_that_cannot_be_read_says_why(tmp_path, row, message):
    with pytest.raises(TaskError, match=message):
        load(tmp_path, row)


# ---- mutants ---------------------------------------------------------------------------------------------------------


def test_mutants_are_the_same_each_time_differ_and_compile():
    source = "def f(xs):\n    best = 0\n    for x in xs:\n        if x > best and x < 9:\n            best = x + 1\n"
    source += "    return best\n"
    found = mutants(source, 100)
    assert found == mutants(source, 100)
    assert len(set(found)) == len(found) >= 7
    assert "    if x >= best and x < 9:" in "\n".join(found)
    assert "    if x > best or x < 9:" in "\n".join(found)
    assert "best = x - 1" in "\n".join(found)
    assert "return None" in "\n".join(found)
    for text in found:
        compile(text, "mutant", "exec")
    assert len(mutants(source, 3)) == 3
    assert set(mutants(source, 3)) <= set(found)


def test_a_source_without_a_place_has_no_mutants():
    assert mutants("import os\n") == ()
