"""What passes a test, what does not, and that nothing but the right output passes."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.coding.cases import Case, same_text, same_value
from llm_envs.coding.judge import judge
from llm_envs.coding.plain_data import NotPlainDataError, decode, encode
from llm_envs.tools.sandbox import Limits, RunResult, Sandbox, available_isolation, default_sandbox


def forged_programs():
    spec = importlib.util.spec_from_file_location("forged_programs", Path(__file__).with_name("forged_programs.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STDIN, FUNCTION = forged_programs().STDIN, forged_programs().FUNCTION
SUMS = [Case("1 2\n", "3\n"), Case("5 6\n", "11\n"), Case("0 0\n", "0\n"), Case("-4 9\n", "5\n")]
ADD = [Case("(1, 2)", "3"), Case("(5, 6)", "11"), Case("(0, 9)", "9"), Case("(-4, 9)", "5")]
RIGHT = "a, b = map(int, input().split())\nprint(a + b)"
QUICK = Limits(cpu_s=1.0, wall_s=3.0)


# ---- comparison ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("3\n", "3", True),
        ("3\n", "3  \n\n\n", True),
        ("1 2\n3\n", "1 2\t\n3 \n", True),
        ("3\n", "3\r\n", True),
        ("", "\n\n", True),
        ("3\n", " 3\n", False),
        ("3\n", "\n3\n", False),
        ("1 2\n", "1  2\n", False),
        ("3\n", "3.0\n", False),
        ("3\n", "03\n", False),
        ("yes\n", "Yes\n", False),
        ("1\n\n2\n", "1\n2\n", False),
        ("3\n", "", False),
        ("3\n", "3\n4\n", False),
        ("0.1\n", "0.10\n", False),
    ],
)
def test_text_is_compared_exactly_but_for_trailing_blanks(expected, got, same):
    assert same_text(expected, got) is same


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("0.5\n", "0.5000005\n", True),
        ("0.5\n", "0.50001\n", False),
        ("1000000.0\n", "1000000.5\n", True),  # relative to the expected number
        ("1000000.0\n", "1000002\n", False),
        ("3\n", "3.0\n", True),
        ("a 1.0\n", "a  1.0\n", True),
        ("a 1.0\n", "b 1.0\n", False),
        ("1.0\n", "nan\n", False),
        ("nan\n", "0\n", False),
        ("inf\n", "1e308\n", False),
        ("1.0\n2.0\n", "1.0 2.0\n", False),
    ],
)
def test_numbers_in_text_with_a_tolerance(expected, got, same):
    assert same_text(expected, got, 1e-6) is same


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, True, False),
        (False, 0, False),
        (True, True, True),
        (None, None, True),
        (None, False, False),
        ("1", 1, False),
        ([1, 2], [1, 2], True),
        ([1, 2], (1, 2), False),
        ([1, 2], [1, 2, 3], False),
        ([1, [True]], [1, [1]], False),
        ({1: "a"}, {1: "a"}, True),
        ({1: "a"}, {True: "a"}, False),
        ({1: "a"}, {1: "b"}, False),
        ({1, 2}, {2, 1}, True),
        ({1}, {True}, False),
        ({1}, frozenset({1}), False),
        (math.nan, math.nan, False),
        (0.1 + 0.2, 0.3, False),
        (10**400, 10**400, True),
        (10**400, 1.5, False),
        (b"a", "a", False),
    ],
)
def test_data_is_compared_exactly(expected, got, same):
    assert same_value(expected, got) is same
    assert same_value(got, expected) is same


def test_data_with_a_tolerance():
    assert same_value([0.5, {"a": 1.0}], [0.5 + 1e-9, {"a": 1.0 - 1e-9}], 1e-6)
    assert not same_value([0.5], [0.51], 1e-6)
    assert not same_value(0.5, math.nan, 1e-6)
    assert not same_value(10**400, 1.0, 1e-6)


DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4)
    | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner, max_size=4)
    | st.sets(st.integers() | st.text(), max_size=4)
    | st.frozensets(st.integers(), max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(DATA)
def test_plain_data_comes_back_as_it_was(value):
    again = decode(encode(value))
    assert again == value
    assert repr(again) == repr(value) or isinstance(value, set | frozenset | list | tuple | dict)
    assert same_value(value, again)


@pytest.mark.parametrize("value", [object(), int, len, iter([1]), range(3), bytearray(b"a"), {"a": object()}])
def test_what_is_not_plain_data_is_refused(value):
    with pytest.raises(NotPlainDataError):
        encode(value)


@pytest.mark.parametrize("value", [{}, {"list": []}, {"int": "x"}, {"dict": [1]}, {"tuple": 3}, {"a": 1, "b": 2}])
def test_what_encode_never_returns_is_refused(value):
    with pytest.raises(NotPlainDataError):
        decode(value)


# ---- running ---------------------------------------------------------------------------------------------------------


def test_programs_on_standard_input():
    report = judge(RIGHT, SUMS)
    assert report.passed
    assert report.fraction == 1.0
    assert report.isolation in ("bwrap", "userns")
    wrong = judge(RIGHT.replace("a + b", "abs(a + b) if a else 1"), SUMS)
    assert [v.passed for v in wrong.verdicts] == [True, True, False, True]
    assert wrong.fraction == 0.75
    assert wrong.ran
    assert wrong.verdicts[2].got == "1"


def test_functions():
    report = judge("def add(a, b):\n    print('noise')\n    return a + b", ADD, entry_point="add")
    assert report.passed
    method = "class Solution:\n    def add(self, a, b):\n        return a + b"
    assert judge(method, ADD, entry_point="add").passed
    guarded = "def add(a, b): return a + b\nif __name__ == '__main__': raise SystemExit(input())"
    assert judge(guarded, ADD, entry_point="add").passed


def test_results_keep_their_types():
    cases = [Case("()", "(1, [2.5, None], {'a': {1, 2}})")]
    assert judge("def f(): return (1, [2.5, None], {'a': {2, 1}})", cases, entry_point="f").passed
    assert not judge("def f(): return [1, [2.5, None], {'a': {2, 1}}]", cases, entry_point="f").passed


@pytest.mark.parametrize("name", STDIN)
def test_no_program_on_standard_input_forges_a_verdict(name):
    cases = [case for case in SUMS if case.output != "0\n"]  # some print 0
    report = judge(STDIN[name], cases, limits=QUICK)
    assert [v.passed for v in report.verdicts] == [False] * len(cases), report


@pytest.mark.parametrize("name", FUNCTION)
def test_no_function_forges_a_verdict(name):
    report = judge(FUNCTION[name], ADD, entry_point="add", limits=QUICK)
    assert [v.passed for v in report.verdicts] == [False] * len(ADD), report


def test_expected_outputs_never_enter_the_sandbox():
    seen = []

    def spy(code, stdin="", *, limits=None):
        seen.append(code + stdin)
        return default_sandbox().run(code, stdin, limits=limits)

    secret = [Case("1 2\n", "EXPECTED-OUTPUT-OF-A-TEST"), Case("(1, 2)", "'EXPECTED-OUTPUT-OF-A-TEST'")]
    judge(RIGHT, secret[:1], run=spy)
    judge("def add(a, b): return 1", secret[1:], entry_point="add", run=spy)
    assert len(seen) == 2
    assert not any("EXPECTED-OUTPUT" in text for text in seen)


def test_all_tests_are_one_run_and_each_has_a_process_of_its_own():
    runs = []

    def count(code, stdin="", *, limits=None):
        runs.append(1)
        return default_sandbox().run(code, stdin, limits=limits)

    leaky = """
import builtins, os
state = getattr(builtins, "left", 0)
builtins.left = state + 1
open("left", "a").write("x")
a, b = map(int, input().split())
print(a + b + state + len(open("left").read()) - 1)
"""
    assert judge(leaky, SUMS, run=count).passed
    stateful = "def add(a, b, seen=[]):\n    seen.append(1)\n    return a + b + len(seen) - 1"
    assert judge(stateful, ADD, entry_point="add", run=count).passed
    changing = "def f(x):\n    x.append(1)\n    return x"
    assert judge(changing, [Case("([],)", "[1]"), Case("([2],)", "[2, 1]")], entry_point="f", run=count).passed
    assert len(runs) == 3


def test_a_test_that_ends_the_run_fails_alone():
    program = """
import os, signal
a, b = map(int, input().split())
if a == 5: os.kill(os.getppid(), signal.SIGKILL)
print(a + b)
"""
    report = judge(program, SUMS)
    assert [v.passed for v in report.verdicts] == [True, False, True, True]
    assert report.verdicts[1].status == "killed"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("1/0", "error"),
        ("x = bytearray(10**10)", "memory"),
        ("while True: print('x' * 1000)", "output"),
        ("import os; os.kill(os.getpid(), 9)", "killed"),
        ("raise SystemExit(3)", "error"),
    ],
)
def test_a_failed_test_says_how_and_does_not_touch_the_others(body, status):
    program = f"a, b = map(int, input().split())\nif a == 5:\n    {body}\nprint(a + b)"
    report = judge(program, SUMS, limits=QUICK)
    assert [v.passed for v in report.verdicts] == [True, False, True, True]
    assert report.verdicts[1].status == status


@pytest.mark.parametrize("body", ["while True: pass", "import time; time.sleep(60)"])
def test_after_a_timeout_the_rest_is_not_run(body):
    program = f"a, b = map(int, input().split())\nif a == 5:\n    {body}\nprint(a + b)"
    report = judge(program, SUMS, limits=QUICK)
    assert [v.status for v in report.verdicts] == ["ok", "timeout", "not run", "not run"]
    assert [v.passed for v in report.verdicts] == [True, False, False, False]


def test_error_messages_say_the_line_and_nothing_that_differs_between_runs():
    program = "def add(a, b):\n    x = object()\n    raise ValueError(f'no {x}')"
    first, again = (judge(program, ADD[:1], entry_point="add").verdicts[0].got for _ in range(2))
    assert first == again
    assert first == "(error) ValueError: no <object object at 0x…> (line 3)"


def test_large_input_and_output():
    numbers = " ".join(map(str, range(100_000)))
    report = judge("print(*sorted(map(int, input().split()), reverse=True))", [
        Case(numbers + "\n", " ".join(map(str, reversed(range(100_000)))) + "\n")
    ])  # fmt: skip
    assert report.passed
    assert judge("pass", [Case(numbers, "")]).passed  # its input is left unread


@pytest.mark.parametrize(
    "stdout",
    ["what?\n", "{}\n", "[1]\n", '{"out": 3, "err": "", "result": ""}\n', "what?\n" * 9, "[" * 100_000 + "\n", "torn"],
)
def test_a_report_that_no_driver_writes_is_a_failed_test(stdout):
    def run(code, stdin="", *, limits=None):
        return RunResult("ok", stdout, "", 0.0, 0, "none")

    report = judge(RIGHT, SUMS, run=run)
    assert [v.passed for v in report.verdicts] == [False] * len(SUMS)


@pytest.mark.parametrize("isolation", ["userns", "none"])
def test_every_isolation_gives_the_same_verdicts(isolation):
    if isolation != "none" and isolation not in available_isolation():
        pytest.skip(f"{isolation} does not work on this machine")
    with Sandbox(isolation, workers=1) as sandbox:
        assert judge(RIGHT, SUMS, run=sandbox.run).passed
        report = judge("def add(a, b): return a - b", ADD, entry_point="add", run=sandbox.run)
    assert (report.fraction, report.isolation) == (0.0, isolation)


def test_no_tests_are_passed_by_any_program():
    assert judge("1/0", []).passed
    assert judge("1/0", []).fraction == 1.0
