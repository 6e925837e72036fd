"""What environments ask of a program that an agent wrote, without running it, and how they show a run of it."""

from __future__ import annotations

import ast
import warnings
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llm_envs.tools.sandbox import RunResult

__all__ = ["MAX_SHOWN_OUTPUT", "parses", "shown"]

MAX_SHOWN_OUTPUT = 2000
"""Characters of a program's output that agents read."""

_quiet = Lock()


def parses(program: str) -> bool:
    """Whether ``program`` is Python. It is only parsed, never run here.

    >>> parses("print(1)"), parses("print(")
    (True, False)
    """
    # What Python would warn of concerns whoever wrote the text, not the user. The filters are the whole process's.
    with _quiet, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(program)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def shown(result: RunResult) -> str:
    """What everybody reads of a run: the end of its output or, where it failed, of its error message."""
    if result.status == "ok":
        return f"[output of the program]\n{result.stdout.strip()[-MAX_SHOWN_OUTPUT:] or '(nothing was printed)'}"
    detail = result.stderr.strip().splitlines()[-1:] or [""]
    return f"[output of the program]\n(failed: {result.status}) {detail[0][-MAX_SHOWN_OUTPUT:]}".rstrip()
