"""Judges programs: runs them against tests in the sandbox and compares what comes out on this side of its wall.

What a program could do to fake a verdict, and why it cannot:

* Expected outputs never enter the sandbox, so there is nothing in there to read, to print or to compare with.
* All tests of a program are one run of the sandbox, but each is a process of its own, forked by a driver in which no
  line of the program ever runs (`_inside_driver.py`). What one test does to interpreter, working folder or open files
  is gone for the next, and the driver's reports go through a pipe that the tests do not hold.
* A test is passed only if its process ended by itself with exit code 0 and printed (or returned) what was expected.
  ``os._exit(0)`` is an end without an output.
* Results of calls are read as plain data (:mod:`llm_envs.coding.plain_data`).

A program that breaks the run itself (it kills the driver, uses up all memory) fails the test in which it did so; the
others are run without that one. After a test that ran out of time the rest are not run and do not count as passed.
"""

from __future__ import annotations

import base64
import functools
import json
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llm_envs.coding import plain_data
from llm_envs.coding.cases import Case, call_text, literal, same_text, same_value, shown
from llm_envs.tools._sandbox_inner import MEMORY_SIGNAL
from llm_envs.tools.sandbox import Limits, RunResult

__all__ = ["LIMITS", "Report", "RunFunction", "Verdict", "judge", "run_calls", "run_in_sandbox"]

RunFunction = Callable[..., RunResult]
"""``run(code, stdin, *, limits) -> RunResult``, such as the method of a :class:`~llm_envs.tools.sandbox.Sandbox`."""

LIMITS = Limits(cpu_s=5.0, wall_s=15.0, output_bytes=1 << 20)
"""What a program may use for each test."""

_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")


@dataclass(frozen=True, slots=True)
class Raw:
    """What came out of one test, before anything is compared.

    Attributes:
        status: As of a :class:`~llm_envs.tools.sandbox.RunResult`, or ``"not run"``.
        output: Standard output.
        error: The end of standard error.
        result: What the call returned, encoded; empty if it did not return.
    """

    status: str
    output: str = ""
    error: str = ""
    result: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one test.

    Attributes:
        passed: Whether the program passed it.
        status: ``"ok"`` (it ran; passed or not), ``"error"``, ``"timeout"``, ``"memory"``, ``"output"``, ``"killed"``,
            or ``"not run"``, after a test that ran out of time.
        got: What it printed or returned, or the end of its error message, as an agent may be shown it.
    """

    passed: bool
    status: str
    got: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of all tests.

    Attributes:
        verdicts: One a test, in order.
        isolation: How the program was isolated.
    """

    verdicts: tuple[Verdict, ...]
    isolation: str = ""

    @property
    def fraction(self) -> float:
        """Share of tests that were passed; 1 if there are none."""
        return sum(v.passed for v in self.verdicts) / len(self.verdicts) if self.verdicts else 1.0

    @property
    def passed(self) -> bool:
        """Whether all tests were."""
        return all(v.passed for v in self.verdicts)

    @property
    def ran(self) -> bool:
        """Whether the program ended by itself and without an error in every test."""
        return all(v.status == "ok" for v in self.verdicts)


def run_in_sandbox(code: str, stdin: str = "", *, limits: Limits | None = None) -> RunResult:
    """Runs a program in the sandbox that the process shares."""
    from llm_envs.tools.sandbox import default_sandbox

    return default_sandbox().run(code, stdin, limits=limits)


def judge(
    program: str,
    cases: Sequence[Case],
    *,
    entry_point: str | None = None,
    prelude: str = "",
    tolerance: float | None = None,
    limits: Limits = LIMITS,
    run: RunFunction = run_in_sandbox,
) -> Report:
    """Runs ``program`` against ``cases``.

    Args:
        program: Python source.
        cases: The tests.
        entry_point: The function to call; None for a program that reads standard input and prints.
        prelude: Source that runs before the program in the same namespace (imports that a task promises).
        tolerance: How far numbers may be off; None for not at all.
        limits: What it may use for each test.
        run: Runs the driver.

    Raises:
        llm_envs.tools.sandbox.SandboxUnavailable: The machine offers no isolation.
        llm_envs.tools.sandbox.SandboxError: The sandbox itself failed.
        ValueError: A case of a function is no Python literal.
    """
    if not cases:
        return Report(())
    inputs: list[Any] = [case.input for case in cases]
    if entry_point is not None:
        inputs = [plain_data.encode([list(literal(text)), {}]) for text in inputs]
    raws, isolation = run_tests(program, inputs, entry_point=entry_point, prelude=prelude, limits=limits, run=run)
    verdicts = []
    for case, raw in zip(cases, raws, strict=True):
        if entry_point is None:
            passed = raw.status == "ok" and same_text(case.output, raw.output, tolerance)
            got = shown(raw.output)
        else:
            returned, value = read_result(raw)
            passed = returned and same_value(literal(case.output), value, tolerance)
            got = shown(_repr(value)) if returned else ""
        if raw.status != "ok" or (entry_point is not None and not got):
            got = _failure(raw)
        verdicts.append(Verdict(passed, raw.status, got))
    return Report(tuple(verdicts), isolation)


def run_calls(
    program: str,
    calls: Sequence[Any],
    *,
    entry_point: str,
    prelude: str = "",
    limits: Limits = LIMITS,
    run: RunFunction = run_in_sandbox,
) -> tuple[list[Raw], str]:
    """Runs one call after the other, each in a process of its own, and compares nothing.

    Args:
        program: Python source.
        calls: Encoded ``[arguments, keywords]``.
        entry_point: The function.
        prelude: As of :func:`judge`.
        limits: Likewise.
        run: Likewise.

    Returns:
        What came out, one a call, and the isolation.
    """
    return run_tests(program, calls, entry_point=entry_point, prelude=prelude, limits=limits, run=run)


def run_tests(
    program: str, inputs: Sequence[Any], *, entry_point: str | None, prelude: str, limits: Limits, run: RunFunction
) -> tuple[list[Raw], str]:
    """Runs the driver until every test has a report; see the module's text."""
    raws: list[Raw] = []
    isolation = ""
    while len(raws) < len(inputs):
        waiting = inputs[len(raws) :]
        request = {
            "program": program,
            "prelude": prelude,
            "entry_point": entry_point,
            "tests": waiting,
            "cpu_s": limits.cpu_s,
            "wall_s": limits.wall_s,
            "output_bytes": limits.output_bytes,
        }
        result = run(_driver(), json.dumps(request), limits=_limits_of_run(limits, len(waiting)))
        isolation = result.isolation
        lines = result.stdout.split("\n")
        raws += [_read_report(line) for line in lines[:-1][: len(waiting)]]  # What follows the last line end is torn.
        if len(raws) < len(inputs) and (not raws or raws[-1].status != "timeout"):
            # The test that was running ended the run.
            raws.append(Raw(result.status if result.status != "ok" else "killed", error=result.stderr))
        if raws and raws[-1].status == "timeout":
            raws += [Raw("not run")] * (len(inputs) - len(raws))
    return raws, isolation


def _limits_of_run(limits: Limits, tests: int) -> Limits:
    return Limits(
        cpu_s=(limits.cpu_s + 1) * tests + 1,
        wall_s=(limits.wall_s + 1) * tests + 1,
        memory_bytes=limits.memory_bytes,
        processes=limits.processes,
        file_bytes=limits.file_bytes,
        tmp_bytes=limits.tmp_bytes,
        open_files=limits.open_files,
        output_bytes=(3 * limits.output_bytes + 16384) * tests,  # two streams in base64, and the error
    )


@functools.cache
def _driver() -> str:
    folder = Path(__file__).parent
    sources = [(folder / name).read_text(encoding="utf-8") for name in ("plain_data.py", "_inside_driver.py")]
    first = "from __future__ import annotations\n"
    return first + "\n".join(source.replace(first, "") for source in sources)


def _read_report(line: str) -> Raw:
    try:
        report = json.loads(line)
        output, error, result = (
            base64.b64decode(report[name]).decode("utf-8", "replace") for name in ("out", "err", "result")
        )
        code, ended, cpu_over = int(report["exit"]), report["ended"], report["cpu_over"]
    except (ValueError, TypeError, KeyError, RecursionError):  # Without isolation, a program can reach the driver.
        return Raw("killed")
    if ended in ("timeout", "output"):
        status = ended
    elif ended is not None:
        status = "killed"
    elif cpu_over or code == -signal.SIGXCPU:
        status = "timeout"
    elif code == -MEMORY_SIGNAL:
        status = "memory"
    else:
        status = "ok" if code == 0 else "error" if code > 0 else "killed"
    return Raw(status, output, error, result)


def read_result(raw: Raw) -> tuple[bool, Any]:
    """Whether a call returned plain data, and what."""
    if raw.status != "ok":
        return False, None
    try:
        return True, plain_data.decode(json.loads(raw.result))
    except (ValueError, TypeError, RecursionError):
        return False, None


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # An integer with more digits than Python prints, or deep nesting.
        return "(a value too large to show)"


def _failure(raw: Raw) -> str:
    """The end of an error message without what differs between runs."""
    last = raw.error.strip().splitlines()[-1:] or [""]
    line = re.findall(r'File "solution\.py", line (\d+)', raw.error)
    place = f" (line {line[-1]})" if line else ""
    if raw.status == "ok":
        return "(no result)"
    return f"({raw.status}) {_ADDRESS.sub('0x…', last[0][-300:])}{place}".strip()


def describe(case: Case, verdict: Verdict, entry_point: str | None) -> str:
    """A test and what became of it, as an agent is shown it."""
    if entry_point is not None:
        return f"{shown(call_text(entry_point, case.input))}\nexpected: {shown(case.output)}\ngot: {verdict.got}"
    return f"input:\n{shown(case.input)}\nexpected output:\n{shown(case.output)}\ngot:\n{verdict.got}"


def cases_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Case, ...]:
    """The cases in a list of ``Task.data``."""
    return tuple(Case.of(row) for row in rows)
