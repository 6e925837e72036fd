"""What a task template is, and how its programs, statements and tests are made.

A template is one function, the reference solution, in plain Python. Its source is the oracle's program, its wrong
variants are edits of that source, and calling it gives the expected outputs; so the three cannot drift apart. Whether a
task calls the function or runs a program on standard input is decided when the task is drawn: the types of arguments
and result say how values are written as text.
"""

from __future__ import annotations

import ast
import functools
import inspect
import random
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llm_envs.tasks import Draft, stable_hash

PUBLIC_TESTS = 3
HIDDEN_TESTS = 16

Draw = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Type:
    """A type of arguments or results.

    Attributes:
        hint: How Python writes it.
        described: How the input format describes it; ``{name}`` is the argument.
        read: Source of an expression that reads it from ``lines``, an iterator over the lines of the input.
        write: Source of an expression that is the text of ``value``.
        text: The text of a value.
    """

    hint: str
    described: str
    read: str
    write: str
    text: Callable[[Any], str]


def _row(values: Sequence[Any]) -> str:
    return " ".join(map(str, values))


def _rows(values: Sequence[Sequence[Any]]) -> str:
    return "\n".join([str(len(values)), *map(_row, values)])


INT = Type("int", "one line with the integer {name}", "int(next(lines))", "str(value)", str)
FLOAT = Type("float", "one line with the number {name}", "float(next(lines))", "repr(value)", repr)
STR = Type("str", "one line with the text {name}", "next(lines)", "value", str)
BOOL = Type(
    "bool", "one line: yes or no", "next(lines) == 'yes'", "'yes' if value else 'no'", lambda v: "yes" if v else "no"
)
INTS = Type(
    "list[int]",
    "one line with the integers of {name}, separated by blanks (an empty line if there are none)",
    "[int(word) for word in next(lines).split()]",
    "' '.join(map(str, value))",
    _row,
)
WORDS = Type(
    "list[str]",
    "one line with the words of {name}, separated by blanks (an empty line if there are none)",
    "next(lines).split()",
    "' '.join(value)",
    _row,
)
ROWS = Type(
    "list[list[int]]",
    "one line with the number of rows of {name}, then each row on a line, its integers separated by blanks",
    "[[int(word) for word in next(lines).split()] for _ in range(int(next(lines)))]",
    "'\\n'.join([str(len(value)), *(' '.join(map(str, row)) for row in value)])",
    _rows,
)
GRID = Type(
    "list[str]",
    "one line with the number of rows of {name}, then each row on a line",
    "[next(lines) for _ in range(int(next(lines)))]",
    "'\\n'.join([str(len(value)), *value])",
    lambda grid: "\n".join([str(len(grid)), *grid]),
)


@functools.cache
def _source(function: Callable[..., Any]) -> str:
    return textwrap.dedent(inspect.getsource(function))


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of task.

    Attributes:
        name: Its name, which is the name of the function, with dashes.
        statement: What is asked; ``{parameter}`` stands for a parameter's value.
        solve: The reference solution: arguments first, parameters after them by keyword.
        arguments: Types of the arguments, by name.
        result: Type of the result.
        draw: ``draw(rng, **parameters)`` returns the arguments of one test.
        wrong: Wrong variants: (text in the source of ``solve``, what stands there instead). The text occurs once.
        parameters: The values of each parameter.
        tolerance: How far numbers may be off, where the result has any.
    """

    name: str
    statement: str
    solve: Callable[..., Any]
    arguments: Mapping[str, Type]
    result: Type
    draw: Draw
    wrong: tuple[tuple[str, str], ...]
    parameters: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tolerance: float | None = None

    @property
    def entry_point(self) -> str:
        """The function that a solution defines."""
        return self.name.replace("-", "_")

    def chosen(self, rng: random.Random) -> dict[str, Any]:
        """A value for every parameter."""
        return {name: rng.choice(values) for name, values in self.parameters.items()}

    def source(self, edit: tuple[str, str] | None = None) -> str:
        """The function's source, edited or not. Its name becomes ``_solve``."""
        text = _source(self.solve)
        if edit is not None:
            if text.count(edit[0]) != 1:
                raise ValueError(f"{self.name}: {edit[0]!r} stands {text.count(edit[0])} times in its reference")
            text = text.replace(*edit)
        return text.replace(f"def {self.solve.__name__}(", "def _solve(", 1)

    def program(self, form: str, parameters: Mapping[str, Any], edit: tuple[str, str] | None = None) -> str:
        """A complete program in ``form`` (``"call"`` or ``"stdin"``)."""
        names = list(self.arguments)
        given = ", ".join([*names, *(f"{name}={value!r}" for name, value in parameters.items())])
        if form == "call":
            return f"{self.source(edit)}\n\ndef {self.entry_point}({', '.join(names)}):\n    return _solve({given})\n"
        reads = "\n".join(f"{name} = {kind.read}" for name, kind in self.arguments.items())
        return (
            f"import sys\n\n\n{self.source(edit)}\n\nlines = iter(sys.stdin.read().split('\\n'))\n{reads}\n"
            f"value = _solve({given})\nprint({self.result.write})\n"
        )

    def question(self, parameters: Mapping[str, Any]) -> str:
        """The statement with its format of input and output."""
        form = self.form(parameters)
        text = self.statement.format(**parameters)
        if form == "call":
            return f"{text}\n\nWrite the function\n\n    {self.signature()}"
        lines = [f"- {kind.described.format(name=f'`{name}`')}" for name, kind in self.arguments.items()]
        answer = self.result.described.replace(" of {name}", "").replace(" {name}", "")
        return f"{text}\n\nInput:\n" + "\n".join(lines) + f"\n\nOutput:\n- {answer}"

    def signature(self) -> str:
        """The first line of the function that is asked for."""
        given = ", ".join(f"{name}: {kind.hint}" for name, kind in self.arguments.items())
        return f"def {self.entry_point}({given}) -> {self.result.hint}:"

    def case(self, form: str, arguments: tuple[Any, ...], parameters: Mapping[str, Any]) -> dict[str, str]:
        """A test: input and expected output as text."""
        if form == "call":
            text = repr(arguments)
            return {"input": text, "output": repr(self.solve(*ast.literal_eval(text), **parameters))}
        pieces = [kind.text(value) for kind, value in zip(self.arguments.values(), arguments, strict=True)]
        # The reference may change its arguments; the text is made first.
        return {"input": "\n".join(pieces) + "\n", "output": self.result.text(self.solve(*arguments, **parameters))}

    def form(self, parameters: Mapping[str, Any]) -> str:
        """How a task with these parameters is tested.

        It depends on nothing else: were one problem asked in both forms, it could be in both splits.
        """
        return ("call", "stdin")[stable_hash("form", self.statement.format(**parameters)) % 2]

    def task(self, rng: random.Random, parameters: Mapping[str, Any]) -> Draft:
        """A task of this template: the problem that ``parameters`` say, with random tests."""
        form = self.form(parameters)
        cases: dict[str, dict[str, str]] = {}
        for _ in range(40 * (PUBLIC_TESTS + HIDDEN_TESTS)):
            case = self.case(form, self.draw(rng, **parameters), parameters)
            cases.setdefault(case["input"], case)
            if len(cases) == PUBLIC_TESTS + HIDDEN_TESTS:
                break
        tests = list(cases.values())
        data: dict[str, Any] = {
            "template": self.name,
            "form": form,
            "public": tests[:PUBLIC_TESTS],
            "hidden": tests[PUBLIC_TESTS:],
            "variants": [self.program(form, parameters, edit) for edit in self.wrong],
        }
        if form == "call":
            data["entry_point"] = self.entry_point
        if self.tolerance is not None:
            data["tolerance"] = self.tolerance
        return Draft(self.question(parameters), self.program(form, parameters), data)


def integers(rng: random.Random, fewest: int = 1, most: int = 9, low: int = -20, high: int = 20) -> list[int]:
    """A list of integers."""
    return [rng.randint(low, high) for _ in range(rng.randint(fewest, most))]


def text_of(rng: random.Random, alphabet: str, fewest: int = 1, most: int = 12) -> str:
    """A text over ``alphabet``."""
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(fewest, most)))


def words_of(rng: random.Random, alphabet: str, fewest: int = 1, most: int = 7, longest: int = 6) -> list[str]:
    """A list of words over ``alphabet``."""
    return [text_of(rng, alphabet, 1, longest) for _ in range(rng.randint(fewest, most))]
