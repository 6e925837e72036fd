"""KEY=VALUE on the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.options import parse_env_arguments, parse_options, read_value
from benchmarks.runner import SettingsError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024", 1024),
        ("1e-4", 1e-4),
        ("true", True),
        ("False", False),
        ("None", None),
        ("null", None),
        ("async", "async"),
        ("", ""),
        ('"12"', "12"),
        ("yes", "yes"),
        ("Answer: in one line.", "Answer: in one line."),
        ('{"enable_thinking": false}', {"enable_thinking": False}),
    ],
)
def test_read_value(text: str, value: Any) -> None:
    read = read_value(text)
    assert read == value
    assert type(read) is type(value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
def test_json_is_read_as_what_it_is(value: Any) -> None:
    assert read_value(json.dumps(value)) == value
    assert parse_options([f"solver_0.k={json.dumps(value)}"]) == {"solver_0": {"k": value}}


def test_parse_options() -> None:
    pairs = ["engine=async", "solver.system_prompt=a=b.c", "verifier_1.max_model_len=9", "solver.x=", "x=2"]
    assert parse_options(pairs) == {
        "*": {"engine": "async", "x": 2},
        "solver": {"system_prompt": "a=b.c", "x": ""},
        "verifier_1": {"max_model_len": 9},
    }


@pytest.mark.parametrize("pair", ["engine", "=1", "solver.=1", ".x=1", "a.b.c=1", "Solver.x=1", "x y=1", "solver-x=1"])
def test_malformed_options(pair: str) -> None:
    with pytest.raises(SettingsError, match=r"takes key=value or role\.key=value, got"):
        parse_options([pair])


def test_given_twice() -> None:
    with pytest.raises(SettingsError, match=r"solver\.x was given twice"):
        parse_options(["x=1", "solver.x=1", "solver.x=2"])
    with pytest.raises(SettingsError, match="a was given twice"):
        parse_env_arguments(["a=1", "a=2"])
