"""What runs inside the sandbox for a check written as code: its assertions, and never a line of the judged program.

Sent into the sandbox as text, together with `plain_data`; never imported. Without results the check meets the reference
solution and its calls are noted; with results it meets what the judged program returned for those calls, as plain data.
"""

from __future__ import annotations

import ast
import json
import os
import random
import sys
from typing import Any

VERDICTS: list[bool] = []
CALLS: list[Any] = []


class Recorder(ast.NodeTransformer):
    """Makes every assertion note whether it held, and go on."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        held = ast.parse("__verdicts__.append(True)").body[0]
        failed = ast.parse("try: pass\nexcept Exception: __verdicts__.append(False)").body[0]
        assert isinstance(failed, ast.Try)  # noqa: S101 - for the type checker
        whole = ast.Try(body=[node], handlers=failed.handlers, orelse=[held], finalbody=[])
        return ast.copy_location(whole, node)


def main() -> None:
    data = b""
    while chunk := os.read(0, 1 << 16):
        data += chunk
    request = json.loads(data)
    random.seed(0)  # Some checks draw inputs without a seed.
    world: dict[str, Any] = {"__name__": "reference"}
    exec(compile(request["reference"], "reference.py", "exec", dont_inherit=True), world)  # noqa: S102 - a sandbox
    solution = world[request["entry_point"]]
    results = request["results"]
    known = None if results is None else {json.dumps(call): result for call, result in results}

    def candidate(*arguments: Any, **keywords: Any) -> Any:
        call = encode([list(arguments), keywords])  # type: ignore[name-defined] # noqa: F821 - of plain_data
        if known is None:
            CALLS.append(call)
            return solution(*arguments, **keywords)
        if json.dumps(call) not in known:
            raise LookupError("the check makes a call here that it does not make of the reference solution")
        result = known[json.dumps(call)]
        if result is None:
            raise ValueError("this call did not return plain data")
        return decode(result[0])  # type: ignore[name-defined] # noqa: F821

    # Functions of the reference keep their own names for each other; only the check sees the candidate.
    place = {**world, "__name__": "check", "__verdicts__": VERDICTS}
    place[request["entry_point"]] = place["candidate"] = candidate
    tree = ast.fix_missing_locations(Recorder().visit(ast.parse(request["check"])))
    # What the judged program returned may break the check between two assertions; the rest then did not hold.
    error = ""
    random.seed(0)
    try:
        exec(compile(tree, "check.py", "exec", dont_inherit=True), place)  # noqa: S102 - a sandbox
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is the check's end
        error = f"{type(problem).__name__}: {problem}"
    sys.stdout.write(json.dumps({"calls": CALLS, "verdicts": VERDICTS, "error": error}))


if __name__ == "__main__":
    main()
