"""The process that does the algebra of `llm_envs.math.grading`.

One JSON request a line on stdin, one JSON verdict a line on stdout. It is started clean (never forked off a trainer),
imports sympy before it says it is ready, cannot grow without bound, and dies with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys

MEMORY_LIMIT = 2 << 30  # bytes of address space
_PR_SET_PDEATHSIG = 1


def _die_with_parent(parent: int) -> None:
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request above
        sys.exit(1)


def main() -> None:
    """Serve requests until stdin closes. The parent's process id is the first argument."""
    _die_with_parent(int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # nothing that a library prints can mix with the replies

    from sympy.core.sympify import SympifyError
    from sympy.polys.polyerrors import BasePolynomialError

    from llm_envs.math.algebra import SympyAlgebra
    from llm_envs.math.expressions import TooComplex
    from llm_envs.math.grading import Verdict, decide

    # What sympy raises on expressions it cannot handle: undecided, never a verdict.
    failures = (
        ArithmeticError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        NotImplementedError,
        RecursionError,
        MemoryError,
        SympifyError,
        BasePolynomialError,
    )
    algebra = SympyAlgebra()
    for gold, answer in (
        (r"\sqrt{8}", r"2\sqrt{2}"),
        ("(x+1)^2", "x^2+2x+1"),
        (r"\sin^2 x", r"1-\cos^2 x"),
        ("[1,2]", r"1 \le x \le 2"),
    ):
        if decide(gold, answer, algebra) is not Verdict.CORRECT:
            sys.exit(f"the grading worker's own check failed on {gold!r} and {answer!r}")
    replies.write('{"ready": true}\n')
    replies.flush()
    for line in sys.stdin:
        request = json.loads(line)
        detail = ""
        try:
            verdict = decide(request["gold"], request["answer"], algebra)
        except (TooComplex, *failures) as error:
            verdict, detail = Verdict.UNDECIDED, f"{type(error).__name__}: {error}"[:200]
        replies.write(json.dumps({"verdict": verdict.value, "detail": detail}) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
