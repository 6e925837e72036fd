"""One HTML page with its script, its style and, if it is to stand alone, the runs themselves.

Everything that a model wrote is compressed and in base64 where the page holds it, so no text can end the element that
it is in, and the script only ever sets it as text. The content security policy allows the page's own script and style
by their hashes and nothing else: no address can be reached, no markup can be made from a string.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from benchmarks.storage import explain
from benchmarks.viewer.source import Source

__all__ = ["policy", "server_page", "write_page"]

MODULES = (
    "dom", "text", "segments", "blocks", "boards", "store", "filters", "charts", "lines", "list", "tree", "episode",
    "overview", "runs", "episodes", "compare", "training", "help", "app",
)  # fmt: skip
"""The script, module by module, each after those that it imports."""

CHUNK = 512 * 1024
"""Characters of JSON that are compressed, and later read, together."""

_IMPORT = re.compile(r"^import (\{[^}]*\}) from \"\./(\w+)\.js\";$", re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|let|class) (\w+)", re.MULTILINE)


def script() -> str:
    """Return the modules of the page as one script: each a function of its own, which returns what it exports."""
    parts = ["const modules = {};\n"]
    for name in MODULES:
        source = _IMPORT.sub(r"const \1 = modules.\2;", _asset(f"{name}.js"))
        exported = ", ".join(match[2] for match in _EXPORT.finditer(source))
        body = _EXPORT.sub(r"\1 \2", source)
        parts.append(f"modules.{name} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();\n")
    return "".join(parts)


def policy(*, server: bool) -> str:
    """Return the content security policy of the page.

    Args:
        server: Whether the page may ask the server that it came from.
    """
    allowed = {
        "default-src": "'none'",
        "script-src": _hash(script()),
        "style-src": _hash(_asset("viewer.css")),
        "img-src": "data:",
        "connect-src": "'self'" if server else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in allowed.items())


def server_page() -> str:
    """Return the page that asks a server for the runs."""
    return "".join(_page(server=True, data=()))


def write_page(sources: Sequence[Source], path: Path) -> None:
    """Write one page that holds all of the runs and needs nothing else.

    Raises:
        ResultsError: If a run cannot be read or the file cannot be written. A file that was there before is then
            untouched.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with explain(path):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(_page(server=False, data=_data(sources)))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _page(*, server: bool, data: Iterable[str]) -> Iterator[str]:
    head, tail = _asset("page.html").split("<!-- data -->\n")
    fills = {"policy": html.escape(policy(server=server)), "style": _asset("viewer.css")}
    for name, text in fills.items():
        head = head.replace(f"{{{{ {name} }}}}", text)
    yield head
    yield from data
    yield tail.replace("{{ script }}", script())


def _data(sources: Sequence[Source]) -> Iterator[str]:
    """Yield the data elements: chunks of episodes, then an index of everything."""
    runs = []
    number = 0
    for source in sources:
        index = source.index()
        chunks: list[list[int]] = []  # number of the element, first episode, number of episodes
        at = 0
        for lines in _chunks(source.records()):
            yield _element(f"chunk-{number}", "\n".join(lines))
            chunks.append([number, at, len(lines)])
            at += len(lines)
            number += 1
        runs.append({**index, "chunks": chunks, "summary": source.summary()})
    yield _element("index", json.dumps({"runs": runs}, allow_nan=False, separators=(",", ":")))


def _chunks(records: Iterable[dict[str, Any]]) -> Iterator[list[str]]:
    lines: list[str] = []
    size = 0
    for record in records:
        line = json.dumps(record, allow_nan=False, separators=(",", ":"))
        lines.append(line)
        size += len(line)
        if size >= CHUNK:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _element(key: str, text: str) -> str:
    data = base64.b64encode(zlib.compress(text.encode("ascii"), 6)).decode("ascii")
    return f'<script type="application/octet-stream" id="{key}">{data}</script>\n'


def _asset(name: str) -> str:
    return resources.files("benchmarks.viewer").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
