"""Tests that an agent wrote: how its text is read. Nothing of it is run here.

A task on standard input takes ``<input>…</input><output>…</output>`` pairs. A task with a function takes assertions of
one form, ``assert f(arguments) == result``, whose arguments and result are literals; anything else in them would be a
program of the tester.
"""

from __future__ import annotations

import ast
import re

from llm_envs.coding.cases import Case, literal, same_value
from llm_envs.parsing import InvalidAction, code_block

__all__ = ["MAX_TESTS", "read_assert", "read_suite"]

MAX_TESTS = 10
"""More tests than this in one answer are refused: each of them is run on every wrong variant."""

_TAGS = ("<input>", "</input>", "<output>", "</output>")
_TAG = re.compile(r"</?(?:input|output)>")
_BETWEEN = re.compile(r"</input>\s*<output>")


def read_suite(text: str, entry_point: str | None) -> tuple[Case, ...]:
    """The tests in an agent's text, a repeated input once.

    Args:
        text: The action.
        entry_point: The function under test, or None for tests on standard input.

    Raises:
        InvalidAction: There is no test, there are too many, one is malformed, or two say different things of one input.
    """
    cases = _pairs(text) if entry_point is None else _assertions(text, entry_point)
    found: dict[str, Case] = {}
    for case in cases:
        known = found.setdefault(case.input, case)
        if known != case:
            raise InvalidAction(f"Two tests expect different results of the same input: {case.input.strip():.80}")
    if len(found) > MAX_TESTS:
        raise InvalidAction(f"{len(found)} tests were given. Give at most {MAX_TESTS}.")
    return tuple(found.values())


def _pairs(text: str) -> list[Case]:
    # Tag by tag: a pattern for a whole pair takes time quadratic in the number of tags that nothing closes.
    tags = list(_TAG.finditer(text))
    if not tags or not _BETWEEN.search(text):
        raise InvalidAction("No test was found. Write each as <input>…</input><output>…</output>.")
    cases = []
    for start in range(0, len(tags), len(_TAGS)):
        group = tags[start : start + len(_TAGS)]
        if tuple(tag[0] for tag in group) != _TAGS or text[group[1].end() : group[2].start()].strip():
            raise InvalidAction("The tags do not pair up. Write each test as <input>…</input><output>…</output>.")
        given, wanted = text[group[0].end() : group[1].start()], text[group[2].end() : group[3].start()]
        cases.append(Case(given.strip("\n") + "\n", wanted.strip("\n") + "\n"))
    return cases


def _assertions(text: str, entry_point: str) -> list[Case]:
    source = code_block(text)
    form = f"Write only lines of the form: assert {entry_point}(arguments) == result"
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidAction(f"The tests are not Python ({type(error).__name__}). {form}") from error
    if not body:
        raise InvalidAction(f"No test was found. {form}")
    cases = []
    for node in body:
        try:
            case = _read_node(node, entry_point)
        except ValueError as error:
            line = getattr(node, "lineno", "?")
            raise InvalidAction(f"Line {line} of the tests cannot be used: {error}. {form}") from error
        cases.append(Case(**case))
    return cases


def read_assert(text: str, entry_point: str) -> dict[str, str]:
    """The input and output of one ``assert f(arguments) == result``.

    Raises:
        ValueError: ``text`` has another form.
    """
    try:
        body = ast.parse(text.strip()).body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError("it is not Python") from error
    if len(body) != 1:
        raise ValueError("it is not one statement")
    return _read_node(body[0], entry_point)


def _read_node(node: ast.stmt, entry_point: str) -> dict[str, str]:
    if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare):
        raise ValueError("it is no assertion of an equality")
    test = node.test
    if len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq | ast.Is):
        raise ValueError("it is no assertion of an equality")
    call, wanted = test.left, test.comparators[0]
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == entry_point):
        raise ValueError(f"its left side does not call {entry_point}")
    if call.keywords:
        raise ValueError("it names an argument; give arguments by position")
    try:
        given, result = ast.unparse(ast.Tuple(call.args, ast.Load())), ast.unparse(wanted)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    values = literal(given), literal(result)
    if not same_value(values[1], values[1]):
        raise ValueError("its result is a NaN, which equals nothing")
    return {"input": repr(values[0]), "output": repr(values[1])}
