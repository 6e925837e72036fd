"""Hidden tests that are written as assertions (HumanEval, MBPP), without letting a program meet them.

The usual way puts the assertions and the program into one interpreter, where the program can read, patch and end what
judges it. Here they never meet:

1. the check runs with the *reference* solution, in a sandbox run of its own, and the calls it makes are noted;
2. the judged program answers those calls, each in a process of its own, and returns plain data;
3. the check runs again, without the program, on a function that looks the answers up.

Every assertion that is executed is a test with a verdict of its own. The check must call the same way whatever it gets.
"""

from __future__ import annotations

import functools
import json
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from llm_envs.coding import plain_data
from llm_envs.coding.cases import Case, is_literal
from llm_envs.coding.judge import LIMITS, Report, RunFunction, Verdict, read_result, run_calls, run_in_sandbox
from llm_envs.tasks import TaskError
from llm_envs.tools.sandbox import Limits

__all__ = ["judge_check", "reference_cases"]

_MOST_NOTED = 4096
_noted: OrderedDict[tuple[str, str, str], tuple[list[Any], int]] = OrderedDict()
_lock = Lock()


def judge_check(
    program: str,
    *,
    check: str,
    reference: str,
    entry_point: str,
    prelude: str = "",
    limits: Limits = LIMITS,
    run: RunFunction = run_in_sandbox,
) -> Report:
    """Runs ``program`` against a check.

    Args:
        program: Python source that defines ``entry_point``.
        check: Source with assertions about ``candidate`` (or about the entry point by its name).
        reference: Source of a right solution.
        entry_point: The function.
        prelude: Source that runs before the program.
        limits: What the program may use for each call.
        run: Runs a program in the sandbox.

    Raises:
        TaskError: The reference solution itself does not pass the check.
        llm_envs.tools.sandbox.SandboxUnavailable: The machine offers no isolation.
    """
    calls, assertions = _calls(check, reference, entry_point, run)
    raws, isolation = run_calls(program, calls, entry_point=entry_point, prelude=prelude, limits=limits, run=run)
    results = []
    statuses = []
    for call, raw in zip(calls, raws, strict=True):
        returned, value = read_result(raw)
        results.append([call, [plain_data.encode(value)] if returned else None])
        statuses.append(raw.status)
    if not any(result for _, result in results):  # Nothing to check.
        reply: dict[str, Any] = {"verdicts": []}
    else:
        reply = _ask(check, reference, entry_point, results, run)
    verdicts = [bool(held) for held in reply["verdicts"][:assertions]]
    verdicts += [False] * (assertions - len(verdicts))
    worst = next((status for status in statuses if status != "ok"), "ok")
    return Report(tuple(Verdict(held, "ok" if held else worst) for held in verdicts), isolation)


def reference_cases(
    *, check: str, reference: str, entry_point: str, limits: Limits = LIMITS, run: RunFunction = run_in_sandbox
) -> list[Case]:
    """The calls of a check as tests: what the reference solution returns for each, where both are literals.

    Raises:
        TaskError: As of :func:`judge_check`.
    """
    calls = [call for call in _calls(check, reference, entry_point, run)[0] if not plain_data.decode(call[1])]
    raws, _ = run_calls(reference, calls, entry_point=entry_point, limits=limits, run=run)
    cases = []
    for call, raw in zip(calls, raws, strict=True):
        returned, value = read_result(raw)
        case = Case(repr(tuple(plain_data.decode(call[0]))), repr(value))
        if returned and is_literal(case.input) and is_literal(case.output):
            cases.append(case)
    return cases


def _calls(check: str, reference: str, entry_point: str, run: RunFunction) -> tuple[list[Any], int]:
    """The distinct calls that a check makes of the reference solution, and how many assertions it executes."""
    key = (check, reference, entry_point)
    with _lock:
        if key in _noted:
            _noted.move_to_end(key)
            return _noted[key]
    reply = _ask(check, reference, entry_point, None, run)
    if reply["error"] or not reply["verdicts"] or not all(reply["verdicts"]):
        raise TaskError(
            f"the reference solution of {entry_point!r} does not pass its own check "
            f"({sum(reply['verdicts'])} of {len(reply['verdicts'])} assertions hold; {reply['error'] or 'no error'}); "
            "leave this task out"
        )
    calls = list({json.dumps(call): call for call in reply["calls"]}.values())
    with _lock:
        _noted[key] = calls, len(reply["verdicts"])
        if len(_noted) > _MOST_NOTED:
            _noted.popitem(last=False)
    return calls, len(reply["verdicts"])


def _ask(check: str, reference: str, entry_point: str, results: Any, run: Callable[..., Any]) -> dict[str, Any]:
    request = {"check": check, "reference": reference, "entry_point": entry_point, "results": results}
    limits = Limits(cpu_s=20.0, wall_s=60.0, output_bytes=16 << 20)
    result = run(_checker(), json.dumps(request), limits=limits)
    if result.status != "ok":
        if results is not None:  # Answers can make a check fail in any way, such as comparing something huge.
            return {"verdicts": [], "error": result.status}
        raise TaskError(
            f"the check of {entry_point!r} cannot be run ({result.status}): {result.stderr.strip()[-300:]}; leave this "
            "task out"
        )
    reply: dict[str, Any] = json.loads(result.stdout.rpartition("\n")[2])
    return reply


@functools.cache
def _checker() -> str:
    folder = Path(__file__).parent
    sources = [(folder / name).read_text(encoding="utf-8") for name in ("plain_data.py", "_inside_checker.py")]
    first = "from __future__ import annotations\n"
    return first + "\n".join(source.replace(first, "") for source in sources)
