"""How the coding family reads a row: the formats of the published sets, and a plain one for files of one's own.

Which format a row has is told by its columns. All become a statement (``question``), a reference solution (``answer``,
empty where a set has none) and in ``Task.data``:

* ``form``: ``"stdin"`` (a program reads standard input and prints) or ``"call"`` (``entry_point`` is called);
* ``public`` and ``hidden``: lists of ``{"input": …, "output": …}``; of a call both are Python literals;
* or ``check`` in place of ``hidden``: assertions as code (see :mod:`llm_envs.coding.checks`);
* where there are any: ``prelude``, ``starter``, ``variants`` (wrong programs), ``tolerance``, ``released`` (a date).
"""

from __future__ import annotations

import ast
import base64
import binascii
import doctest
import json
import pickletools
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from llm_envs.coding.cases import is_literal
from llm_envs.task_rows import Columns, Row, RowError, column, extra_data, pick, question_text
from llm_envs.tasks import Draft

__all__ = ["read_code_row"]

PYTHON3 = 3
"""The number of Python 3 in the ``language`` columns of CodeContests."""

MOST_TESTS = 100
"""More hidden tests than this of one task are left out, evenly."""


def read_code_row(row: Row, columns: Columns) -> Draft:
    """Reads a row of any known format.

    Args:
        row: One row.
        columns: The user's column map, for the plain format.

    Raises:
        RowError: The row has no known format, or lacks something that its format needs.
    """
    if columns:
        return _plain(row, columns)
    for keys, reader in _FORMATS:
        if all(row.get(key) is not None for key in keys):
            return reader(row)
    return _plain(row, columns)


def _human_eval(row: Row) -> Draft:
    """HumanEval (Chen et al. 2021, arXiv 2107.03374)."""
    prompt, name = row["prompt"], row["entry_point"]
    reference = prompt + row["canonical_solution"]
    statement = f"Write the function `{name}`, whose first lines are given:\n\n{prompt.strip()}"
    data = {
        "form": "call",
        "entry_point": name,
        "prelude": _before(prompt, name),
        "public": _examples(prompt, name),
        "check": f"{row['test']}\n\ncheck(candidate)\n",
    }
    return Draft(statement, reference, data)


def _before(prompt: str, name: str) -> str:
    """What the prompt defines beside the function itself: imports and helpers that a solution may use."""
    try:
        tree = ast.parse(f"{prompt}\n    pass\n")
    except SyntaxError as error:
        raise RowError(f"the prompt is not Python: {error}") from error
    kept = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == name)]
    return ast.unparse(ast.Module(kept, []))


def _examples(prompt: str, name: str) -> list[dict[str, str]]:
    """The ``>>>`` examples that call the function with literals."""
    cases = []
    try:
        found = doctest.DocTestParser().get_examples(prompt)
    except ValueError:  # Not written as doctest wants them: then they are prose.
        return []
    for example in found:
        call = _literal_call(example.source.strip(), name)
        if call is not None and is_literal(example.want.strip()):
            cases.append({"input": call, "output": example.want.strip()})
    return cases


def _literal_call(source: str, name: str) -> str | None:
    """The arguments of ``name(…)`` as a literal tuple, or None if ``source`` is anything else."""
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name) or node.keywords:
        return None
    text = ast.unparse(ast.Tuple(node.args, ast.Load()))
    return text if is_literal(text) else None


def _mbpp(row: Row) -> Draft:
    """MBPP (Austin et al. 2021, arXiv 2108.07732). Its three assertions are hidden but for the first, as is usual."""
    statement = question_text(row["text"] if row.get("text") is not None else row["prompt"])
    code = row["code"].replace("\r\n", "\n").replace("\t", "    ")
    asserts = [str(line) for line in row["test_list"]]
    name = _tested(asserts, code)
    first = _case_of_assert(asserts[0], name)
    setup = row.get("test_setup_code") or "\n".join(row.get("test_imports") or ())
    hidden = asserts[1:] + [str(line) for line in row.get("challenge_test_list") or ()]
    if not hidden:
        raise RowError("it needs two assertions: one to show and one to hide")
    data: dict[str, Any] = {
        "form": "call",
        "entry_point": name,
        "public": [first] if first else [],
        "check": f"{setup}\n" + "\n".join(hidden) + "\n",
    }
    return Draft(f"{statement}\n\nThe function is called `{name}`. For example:\n\n{asserts[0]}", code, data)


def _tested(asserts: Sequence[str], code: str) -> str:
    """The function that the assertions call and ``code`` defines."""
    try:
        defined = {node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)}
        called = [node.func.id for text in asserts for node in ast.walk(ast.parse(text)) if _calls_name(node)]  # type: ignore[attr-defined]
    except SyntaxError as error:
        raise RowError(f"code or assertions are not Python: {error}") from error
    for name in called:
        if name in defined:
            return name
    raise RowError("the assertions call no function that the code defines")


def _calls_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def _case_of_assert(text: str, name: str) -> dict[str, str] | None:
    """``assert f(1) == 2`` as a case, or None if it has another form."""
    from llm_envs.coding.suites import read_assert

    try:
        return read_assert(text, name)
    except ValueError:
        return None


def _apps(row: Row) -> Draft:
    """APPS (Hendrycks et al. 2021, arXiv 2105.09938). Its examples stand in the statement; all its tests are hidden."""
    tests = _json(row["input_output"], "input_output")
    solutions = _json(row.get("solutions") or "[]", "solutions")
    name = tests.get("fn_name")
    pairs = list(zip(tests.get("inputs", ()), tests.get("outputs", ()), strict=False))
    if name is None:
        hidden = [{"input": _joined(given), "output": _joined(wanted)} for given, wanted in pairs]
    else:
        # An expected result is often wrapped in a list of one.
        hidden = [
            {"input": repr(tuple(given)), "output": repr(wanted[0] if isinstance(wanted, list) and wanted else wanted)}
            for given, wanted in pairs
        ]
    starter = row.get("starter_code") or ""
    data = _data(name, [], hidden, starter=starter, **_levels(row))
    return Draft(question_text(row["question"]), solutions[0] if solutions else "", data)


def _joined(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _code_contests(row: Row) -> Draft:
    """CodeContests (Li et al. 2022, arXiv 2203.07814). Its wrong submissions are the variants."""
    hidden = _pairs(row.get("private_tests")) + _pairs(row.get("generated_tests"))
    solutions = _in_python(row.get("solutions"))
    data = _data(
        None,
        _pairs(row["public_tests"]),
        hidden,
        variants=_in_python(row.get("incorrect_solutions"))[:8],
        **_levels(row),
    )
    return Draft(question_text(row["description"]), solutions[0] if solutions else "", data)


def _pairs(tests: Any) -> list[dict[str, str]]:
    if not tests:
        return []
    return [{"input": i, "output": o} for i, o in zip(tests["input"], tests["output"], strict=True)]


def _in_python(programs: Any) -> list[str]:
    if not programs:
        return []
    return [text for kind, text in zip(programs["language"], programs["solution"], strict=True) if kind == PYTHON3]


def _live_code_bench(row: Row) -> Draft:
    """LiveCodeBench (Jain et al. 2024, arXiv 2403.07974). It has no reference solutions."""
    name = _json(row.get("metadata") or "{}", "metadata").get("func_name")
    public = [_live_case(test, name) for test in _json(row["public_test_cases"], "public_test_cases")]
    packed = row.get("private_test_cases") or "[]"
    hidden = [_live_case(test, name) for test in _json(_unpacked(packed), "private_test_cases")]
    data = _data(name, public, hidden, starter=row.get("starter_code") or "", **_levels(row))
    if row.get("contest_date") is not None:
        data["released"] = str(row["contest_date"])[:10]
    return Draft(question_text(row["question_content"]), "", data)


def _live_case(test: Mapping[str, Any], name: str | None) -> dict[str, str]:
    if name is None:
        return {"input": test["input"], "output": test["output"]}
    arguments = tuple(json.loads(line) for line in test["input"].split("\n") if line.strip())
    return {"input": repr(arguments), "output": repr(json.loads(test["output"]))}


def _unpacked(text: str) -> str:
    """Private tests: JSON, or JSON in a pickled string, compressed, in base64. The pickle is read, never executed."""
    if text.lstrip().startswith("["):
        return text
    try:
        pickled = zlib.decompress(base64.b64decode(text, validate=True))
        texts = [arg for code, arg, _ in pickletools.genops(pickled) if "UNICODE" in code.name]
    except (binascii.Error, zlib.error, ValueError) as error:
        raise RowError(f"private_test_cases is neither JSON nor its packed form: {error}") from error
    if len(texts) != 1:
        raise RowError(f"private_test_cases holds {len(texts)} texts, expected one")
    return str(texts[0])


def _plain(row: Row, columns: Columns) -> Draft:
    """A row of one's own; docs/tasks.md describes it."""
    question = question_text(pick(row, columns, "question", ("problem", "question", "prompt")))
    tests = columns.get("hidden", "hidden_tests"), columns.get("public", "public_tests")
    hidden, public = (column(row, name) for name in tests)
    name = column(row, columns.get("entry_point", "entry_point"))
    if not hidden:
        raise RowError(
            f"no tests in the column {tests[0]!r}; expected a list of "
            '{"input": …, "output": …}, or with an entry_point {"args": […], "result": …}'
        )
    data = _data(name, _own_cases(public or (), name), _own_cases(hidden, name))
    tolerance = column(row, columns.get("tolerance", "tolerance"))
    if tolerance is not None:
        data["tolerance"] = float(tolerance)
    variants = column(row, columns.get("variants", "wrong_solutions"))
    if variants:
        data["variants"] = list(variants)
    answer = column(row, columns.get("answer", "solution")) or ""
    kept = {k: v for k, v in columns.items() if k not in _OWN}
    return Draft(question, str(answer), {**extra_data(row, kept), **data})


_OWN = ("question", "answer", "id", "hidden", "public", "entry_point", "tolerance", "variants")


def _own_cases(tests: Any, name: str | None) -> list[dict[str, str]]:
    if not isinstance(tests, list | tuple) or not all(isinstance(test, Mapping) for test in tests):
        raise RowError(f"tests must be a list of objects, got {tests!r:.80}")
    keys = ("input", "output") if name is None else ("args", "result")
    cases = []
    for test in tests:
        if set(test) != set(keys):
            raise RowError(f"a test must have exactly the keys {keys[0]!r} and {keys[1]!r}, got {sorted(test)}")
        if name is None:
            cases.append({"input": str(test["input"]), "output": str(test["output"])})
        elif isinstance(test["args"], list | tuple):
            cases.append({"input": repr(tuple(test["args"])), "output": repr(test["result"])})
        else:
            raise RowError(f"the args of a test must be a list, got {test['args']!r:.80}")
    return cases


def _data(
    name: str | None,
    public: list[dict[str, str]],
    hidden: list[dict[str, str]],
    *,
    starter: str = "",
    variants: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """The entries of ``Task.data``. A test that is public is not hidden too."""
    shown = {case["input"] for case in public}
    hidden = [case for case in hidden if case["input"] not in shown]
    if not hidden:
        raise RowError("it has no hidden test")
    if len(hidden) > MOST_TESTS:
        hidden = [hidden[i * len(hidden) // MOST_TESTS] for i in range(MOST_TESTS)]
    data: dict[str, Any] = {"form": "stdin" if name is None else "call", "public": public, "hidden": hidden, **more}
    if name is not None:
        data["entry_point"] = name
    if starter.strip():
        data["starter"] = starter
    if variants:
        data["variants"] = list(variants)
    return data


def _levels(row: Row) -> dict[str, Any]:
    return {key: row[key] for key in ("difficulty",) if row.get(key) is not None}


def _json(text: Any, what: str) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise RowError(f"{what} is not JSON: {error}") from error


_FORMATS = (
    (("prompt", "entry_point", "canonical_solution", "test"), _human_eval),
    (("code", "test_list"), _mbpp),
    (("question_content", "public_test_cases"), _live_code_bench),
    (("description", "public_tests", "private_tests"), _code_contests),
    (("question", "input_output"), _apps),
)
