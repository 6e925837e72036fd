"""A leaderboard as Markdown, LaTeX or HTML, with every text of a run escaped as the format needs it."""

from __future__ import annotations

import html
import re

from benchmarks.table import Cell, Leaderboard
from llm_envs.console import printable

__all__ = ["FORMATS", "escape_latex", "escape_markdown", "to_html", "to_latex", "to_markdown"]

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#|~&!$])")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "&": r"\&",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}",
    "[": "{[}", "]": "{]}", "-": "{-}", "†": r"\textdagger{}", "–": "--", "≥": r"$\geq$", "…": r"\ldots{}",
}  # fmt: skip

_STYLE = """\
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { margin: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.8rem; text-align: right; border-bottom: 1px solid rgb(128 128 128 / 40%); }
th:first-child { text-align: left; }
thead th { vertical-align: bottom; max-width: 16rem; }
.interval { opacity: 0.75; white-space: nowrap; }
"""


def to_markdown(table: Leaderboard) -> str:
    """Return a table in GitHub's Markdown, and the notes as a list."""

    def cell(figure: Cell | None) -> str:
        if figure is None:
            return "–"
        value = escape_markdown(figure.value)
        return _join(f"**{value}**" if figure.best else value, "†", escape_markdown(figure.interval), figure)

    lines = [
        _row_of_markdown(["policy", *map(escape_markdown, table.columns)]),
        _row_of_markdown([":---", *("---:" for _ in table.columns)]),
        *(_row_of_markdown([escape_markdown(label), *map(cell, cells)]) for label, cells in table.rows),
        "",
        *(f"* {escape_markdown(note)}" for note in table.notes),
    ]
    return "\n".join(lines) + "\n"


def to_latex(table: Leaderboard) -> str:
    """Return a ``tabular`` with the rules of ``booktabs``; the notes are comments."""

    def cell(figure: Cell | None) -> str:
        if figure is None:
            return "--"
        value = _latex_number(figure.value)
        bold = rf"\textbf{{{value}}}" if figure.best else value
        return _join(bold, r"\textdagger{}", _latex_number(figure.interval), figure)

    rows = [(escape_latex(label), list(map(cell, cells))) for label, cells in table.rows]
    lines = [
        r"% Needs \usepackage{booktabs} and \usepackage{textcomp}.",
        rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
        r"\toprule",
        " & ".join(["policy", *map(escape_latex, table.columns)]) + r" \\",
        r"\midrule",
        *(" & ".join([label, *cells]) + r" \\" for label, cells in rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(f"% {_one_line(note)}" for note in table.notes),
    ]
    return "\n".join(lines) + "\n"


def to_html(table: Leaderboard) -> str:
    """Return a page of its own, for light and dark, without a script."""

    def cell(figure: Cell | None) -> str:
        if figure is None:
            return "<td>–</td>"
        value = _escape_html(figure.value)
        interval = f'<span class="interval">{_escape_html(figure.interval)}</span>' if figure.interval else ""
        return f"<td>{_join(f'<strong>{value}</strong>' if figure.best else value, '†', interval, figure)}</td>"

    heads = "".join(f'<th scope="col">{_escape_html(title)}</th>' for title in ("policy", *table.columns))
    rows = "\n".join(
        f'<tr><th scope="row">{_escape_html(label)}</th>{"".join(map(cell, cells))}</tr>' for label, cells in table.rows
    )
    notes = "\n".join(f"<li>{_escape_html(note)}</li>" for note in table.notes)
    return f"""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Leaderboard</title>
<style>
{_STYLE}</style>
</head>
<body>
<h1>Leaderboard</h1>
<div class="scroll" tabindex="0" role="region" aria-label="Leaderboard">
<table>
<thead><tr>{heads}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
<ul>
{notes}
</ul>
</body>
</html>
"""


FORMATS = {"md": to_markdown, "latex": to_latex, "html": to_html}
"""The formats, by the name that the command line has for them."""


def escape_markdown(text: str) -> str:
    r"""Return text that Markdown shows as it is, in one line.

    Example:
        >>> escape_markdown("a|b *c* <d>")
        'a\\|b \\*c\\* \\<d\\>'
    """
    return _MARKDOWN.sub(r"\\\1", _one_line(text))


def escape_latex(text: str) -> str:
    r"""Return text that LaTeX sets as it is, in one line.

    Example:
        >>> escape_latex("50 % of a_b & [c]")
        '50 \\% of a\\_b \\& {[}c{]}'
    """
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


def _latex_number(text: str) -> str:
    """Return a figure or an interval of figures, in which a minus is one."""
    return re.sub(r"(?<![0-9])-(?=[0-9])", lambda _: "$-$", _one_line(text)).replace("[", "{[}").replace("]", "{]}")


def _escape_html(text: str) -> str:
    return html.escape(_one_line(text))


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())


def _join(value: str, mark: str, interval: str, figure: Cell) -> str:
    marked = value + mark if figure.incomplete else value
    return f"{marked} {interval}" if interval else marked


def _row_of_markdown(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
