"""Files of Sokoban levels, in the format of Boxoban: a header line ``; <title>``, the rows, an empty line.

>>> levels = parse_levels("; 0\\n#####\\n#@$.#\\n#####\\n\\n")
>>> levels[0].title, render_levels(levels)
('0', '; 0\\n#####\\n#@$.#\\n#####\\n\\n')
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from llm_envs.planning.sokoban import LevelError, State, parse_level, render

__all__ = ["Level", "parse_levels", "render_levels"]


class Level(NamedTuple):
    """One level of a file: what its header line says after ``;`` (None without a header), and its start."""

    title: str | None
    start: State


def parse_levels(text: str, *, place: str = "levels") -> list[Level]:
    """The levels of a file.

    A level ends at an empty line, at the next header or at the end of the file. A line that begins with ``;`` is the
    header of the level that follows it.

    Args:
        text: The whole file.
        place: Its name, for messages.

    Raises:
        LevelError: A level cannot be read (as :func:`parse_level`), a header has no level, or there are no levels.
    """
    levels: list[Level] = []
    title: str | None = None
    header = first = 0
    rows: list[str] = []
    for number, raw in enumerate([*text.split("\n"), ""], 1):
        line = raw.removesuffix("\r")
        if line.strip() and not line.startswith(";"):
            first = first if rows else number
            rows.append(line)
            continue
        if rows:
            levels.append(Level(title, parse_level("\n".join(rows), place=place, first_line=first)))
            title, header, rows = None, 0, []
        if line.startswith(";"):
            if header:
                raise LevelError(f"{place}:{header}: the header has no level")
            title, header = line[1:].strip(), number
    if header:
        raise LevelError(f"{place}:{header}: the header has no level")
    if not levels:
        raise LevelError(f"{place}: there are no levels in it")
    return levels


def render_levels(levels: Iterable[Level]) -> str:
    """The text of a file: each level with its header, if it has one, and an empty line after it (as Boxoban does)."""
    return "".join(
        f"{'' if title is None else f'; {title}'.rstrip() + chr(10)}{render(start)}\n\n" for title, start in levels
    )
