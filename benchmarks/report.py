"""Results as tables for people: one column a run, one column an agent, so that they fit a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table

from benchmarks.summary import summarize
from llm_envs.console import printable

__all__ = ["print_report", "report_json"]

RUN_WIDTH = 26
AGENT_WIDTH = 16
LABEL_WIDTH = 16

Row = tuple[str, list[str]]


def report_json(paths: Sequence[str | Path]) -> str:
    """Return the summaries of all folders as a JSON list (see :func:`benchmarks.summary.summarize`)."""
    return json.dumps([summarize(path) for path in paths], indent=2)


def print_report(paths: Sequence[str | Path], console: Console) -> None:
    """Print a table of the runs, a table of the agents of each, and what a reader must know to trust them."""
    summaries = [summarize(path) for path in paths]
    _print_columns(console, "Runs (95 % intervals; turns and tokens per episode)", _run_rows(summaries), RUN_WIDTH)
    for summary in summaries:
        if summary["agents"]:
            title = "Agents (means per episode)"
            if len(summaries) > 1:
                title = f"Agents of {escape(summary['run'])} (means per episode)"
            _print_columns(console, title, _agent_rows(summary["agents"]), AGENT_WIDTH)
    for summary in summaries:
        for note in _notes(summary):
            console.print(escape(note), highlight=False, soft_wrap=True)


def escape(text: str) -> str:
    """Make text from a folder safe to show: no control characters, no markup."""
    return escape_markup(printable(text))


def _run_rows(summaries: Sequence[dict[str, Any]]) -> list[Row]:
    ks = sorted({int(k) for summary in summaries for k in summary["pass_at_k"] if int(k) > 1})
    several = {summary["samples"] for summary in summaries}
    average = f"avg@{several.pop()}" if len(several) == 1 else "avg@k"
    return [
        *([("run", [escape(s["run"]) for s in summaries])] if len(summaries) > 1 else []),
        ("env", [escape(s["env"]) for s in summaries]),
        ("policy", [escape(s["policy"]) for s in summaries]),
        ("tasks", [escape(f"{s['tasks']['name']} ({s['tasks']['split']})") for s in summaries]),
        ("episodes", [f"{s['episodes']} of {s['planned']}" for s in summaries]),
        ("success", [f"{s['solved']} of {s['episodes']}" for s in summaries]),
        (average, [_estimate(s["avg_at_k"]) for s in summaries]),
        *((f"pass@{k}", [_estimate(s["pass_at_k"].get(str(k))) for s in summaries]) for k in ks),
        ("turns", [_number(s["turns"]) for s in summaries]),
        ("tokens in", [_number(s["tokens_in"], 0) for s in summaries]),
        ("tokens out", [_number(s["tokens_out"], 0) for s in summaries]),
        ("invalid", [_percent(s["invalid_rate"]) for s in summaries]),
        ("undecided", [str(s["undecided"]) for s in summaries]),
        ("errors", [str(s["failed"]) for s in summaries]),
    ]


def _agent_rows(agents: dict[str, dict[str, Any]]) -> list[Row]:
    columns = list(agents.values())
    parts = sorted({part for agent in columns for part in agent["reward_parts"]})
    return [
        ("agent", [escape(name) for name in agents]),
        ("policy", [escape(agent["policy"]) or "–" for agent in columns]),
        ("turns", [_number(agent["turns"]) for agent in columns]),
        ("tokens in", [_number(agent["tokens_in"], 0) for agent in columns]),
        ("tokens out", [_number(agent["tokens_out"], 0) for agent in columns]),
        ("invalid", [_percent(agent["invalid_rate"]) for agent in columns]),
        ("cut off", [_percent(agent["cut_rate"]) for agent in columns]),
        ("median wait", [_seconds(agent["latency_s"]) for agent in columns]),
        ("return", [_number(agent["return"], 3) for agent in columns]),
        *((f"  {escape(part)}", [_number(agent["reward_parts"].get(part), 3) for agent in columns]) for part in parts),
    ]


def _print_columns(console: Console, title: str, rows: Sequence[Row], width: int) -> None:
    """Print rows of equally many values, as many columns of ``width`` at a time as fit. The first row is the header."""
    (label, header), body = rows[0], rows[1:]
    fit = max(1, (console.width - LABEL_WIDTH) // width)
    console.print(title, highlight=False, soft_wrap=True)
    for start in range(0, len(header), fit):
        columns = slice(start, start + fit)
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column(label)
        for text in header[columns]:
            table.add_column(
                text, overflow="fold", max_width=max(width, (console.width - LABEL_WIDTH) // len(header[columns]))
            )
        for name, values in body:
            table.add_row(name, *values[columns])
        console.print(table)


def _notes(summary: dict[str, Any]) -> list[str]:
    notes = []
    missing = summary["planned"] - summary["episodes"]
    if missing:
        failed = f", {summary['failed']} of them failed (see errors.jsonl)" if summary["failed"] else ""
        notes.append(
            f"{summary['run']}: {missing} of {summary['planned']} episodes are missing{failed}. --resume plays them."
        )
    if summary["undecided"]:
        notes.append(
            f"{summary['run']}: in {summary['undecided']} episodes the grader reached no verdict in time; "
            "they count as not solved."
        )
    return notes


def _estimate(estimate: dict[str, Any] | None) -> str:
    if estimate is None:
        return "–"
    low, high = estimate["interval"]
    return f"{100 * estimate['value']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.1f} %"


def _seconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.3f} s"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
