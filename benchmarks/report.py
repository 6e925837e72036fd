"""Results as tables for people: one column a run, one column an agent, so that they fit a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.cost import Prices
from benchmarks.figures import escape, estimate, money, number, percent, seconds
from benchmarks.results import read_config
from benchmarks.run_state import missing_note
from benchmarks.summary import summarize
from benchmarks.tournament_report import print_tournament
from benchmarks.tournament_summary import is_tournament, summarize_tournament

__all__ = ["print_report", "read_summary", "report_json"]

RUN_WIDTH = 26
AGENT_WIDTH = 16
LABEL_WIDTH = 16

Row = tuple[str, list[str]]


def report_json(paths: Sequence[str | Path], prices: Prices | None = None) -> str:
    """Return the summaries of all folders as a JSON list.

    See :func:`benchmarks.summary.summarize` for a run, :func:`benchmarks.tournament_summary.summarize_tournament` for a
    tournament.
    """
    return json.dumps([read_summary(path, prices) for path in paths], indent=2)


def print_report(paths: Sequence[str | Path], console: Console, prices: Prices | None = None) -> None:
    """Print the tables of all folders, and what a reader must know to trust them.

    Runs share one table, with a table of the agents of each; a tournament has its own tables.
    """
    summaries = [read_summary(path, prices) for path in paths]
    runs = [summary for summary in summaries if "players" not in summary]
    if runs:
        _print_runs(runs, console)
    for summary in summaries:
        if "players" in summary:
            print_tournament(summary, console)


def read_summary(path: str | Path, prices: Prices | None = None) -> dict[str, Any]:
    """Return the summary of a run or a tournament (which has ``players``)."""
    if is_tournament(read_config(path)):
        return summarize_tournament(path, prices)
    return summarize(path, prices)


def _print_runs(summaries: Sequence[dict[str, Any]], console: Console) -> None:
    _print_columns(console, "Runs (95 % intervals; turns and tokens per episode)", _run_rows(summaries), RUN_WIDTH)
    for summary in summaries:
        of = f" of {escape(summary['run'])}" if len(summaries) > 1 else ""
        if summary["outcomes"]:
            title = f"Games{of} (95 % intervals)"
            _print_columns(console, title, _outcome_rows(summary), RUN_WIDTH)
        if summary["agents"]:
            _print_columns(
                console, f"Agents{of} (means per episode)", _agent_rows(summary["agents"], summary["cost"]), AGENT_WIDTH
            )
    for summary in summaries:
        for note in _notes(summary):
            console.print(escape(note), highlight=False, soft_wrap=True)


def _run_rows(summaries: Sequence[dict[str, Any]]) -> list[Row]:
    return [
        *([("run", [escape(s["run"]) for s in summaries])] if len(summaries) > 1 else []),
        ("env", [escape(s["env"]) for s in summaries]),
        ("policy", [escape(s["policy"]) for s in summaries]),
        *_protocol_rows(summaries),
        ("tasks", [escape(f"{s['tasks']['name']} ({s['tasks']['split']})") for s in summaries]),
        ("episodes", [f"{s['episodes']} of {s['planned']}" for s in summaries]),
        *_success_rows(summaries),
        ("turns", [number(s["turns"]) for s in summaries]),
        ("tokens in", [number(s["tokens_in"], 0) for s in summaries]),
        ("tokens out", [number(s["tokens_out"], 0) for s in summaries]),
        ("seconds", [number(s["seconds"], 3) for s in summaries]),
        ("tokens/s", [number(s["tokens_per_s"], 0) for s in summaries]),
        *_cost_rows(summaries),
        ("invalid", [percent(s["invalid_rate"]) for s in summaries]),
        ("undecided", [str(s["undecided"]) for s in summaries]),
        ("errors", [str(s["failed"]) for s in summaries]),
    ]


def _protocol_rows(summaries: Sequence[dict[str, Any]]) -> list[Row]:
    """Return a row with the protocol of each run; none if no run was by a protocol."""
    if not any(summary["protocol"] for summary in summaries):
        return []
    named = [summary["protocol"] for summary in summaries]
    return [("protocol", ["–" if each is None else escape(f"{each['name']}, {each['run']}") for each in named])]


def _success_rows(summaries: Sequence[dict[str, Any]]) -> list[Row]:
    """Return the rows on success; none if all are games, in which one agent's success is another one's failure."""
    solo = [summary for summary in summaries if summary["outcomes"] is None]
    if not solo:
        return []
    ks = sorted({int(k) for summary in solo for k in summary["pass_at_k"] if int(k) > 1})
    several = {summary["samples"] for summary in solo}
    average = "avg@k" if len(several) > 1 or None in several else f"avg@{several.pop()}"
    solved = ["–" if s["outcomes"] is not None else f"{s['solved']} of {s['episodes']}" for s in summaries]
    return [
        ("success", solved),
        (average, [estimate(s["avg_at_k"]) for s in summaries]),
        *((f"pass@{k}", [estimate(s["pass_at_k"].get(str(k))) for s in summaries]) for k in ks),
    ]


def _cost_rows(summaries: Sequence[dict[str, Any]]) -> list[Row]:
    costs = [summary["cost"] for summary in summaries if summary["cost"] is not None]
    if not costs:  # no prices were given
        return []
    rows = [("cost/episode", [money(cost["episode"], cost["currency"]) for cost in costs])]
    if any(summary["outcomes"] is None for summary in summaries):
        rows.append(("cost/success", [money(cost["success"], cost["currency"]) for cost in costs]))
    return rows


def _outcome_rows(summary: dict[str, Any]) -> list[Row]:
    agents = summary["outcomes"]
    columns = list(agents.values())
    policies = [summary["agents"][name]["policy"] for name in agents]

    def counted(what: str) -> list[str]:
        return [f"{agent[what]['count']}: {estimate(agent[what])}" for agent in columns]

    return [
        ("agent", [escape(name) for name in agents]),
        ("policy", [escape(policy) or "–" for policy in policies]),
        ("wins", counted("wins")),
        ("draws", counted("draws")),
        ("losses", counted("losses")),
        ("forfeits", counted("forfeits")),
    ]


def _agent_rows(agents: dict[str, dict[str, Any]], cost: dict[str, Any] | None) -> list[Row]:
    columns = list(agents.values())
    parts = sorted({part for agent in columns for part in agent["reward_parts"]})
    return [
        ("agent", [escape(name) for name in agents]),
        ("policy", [escape(agent["policy"]) or "–" for agent in columns]),
        ("turns", [number(agent["turns"]) for agent in columns]),
        ("share of turns", [percent(agent["share_of_turns"]) for agent in columns]),
        ("tokens in", [number(agent["tokens_in"], 0) for agent in columns]),
        ("tokens out", [number(agent["tokens_out"], 0) for agent in columns]),
        ("invalid", [percent(agent["invalid_rate"]) for agent in columns]),
        ("cut off", [percent(agent["cut_rate"]) for agent in columns]),
        ("median wait", [seconds(agent["latency_s"]) for agent in columns]),
        ("tokens/s", [number(agent["tokens_per_s"], 0) for agent in columns]),
        *([] if cost is None else [("cost", [money(cost["agents"][name], cost["currency"]) for name in agents])]),
        ("return", [number(agent["return"], 3) for agent in columns]),
        *((f"  {escape(part)}", [number(agent["reward_parts"].get(part), 3) for agent in columns]) for part in parts),
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
    missing = missing_note(summary, "episodes")
    if missing is not None:
        notes.append(missing)
    if summary["undecided"]:
        notes.append(
            f"{summary['run']}: in {summary['undecided']} episodes the grader reached no verdict in time; "
            "they count as not solved."
        )
    if summary["cost"] is not None and summary["cost"]["unknown"]:
        notes.append(
            f"{summary['run']}: no cost, since these have no price or count no tokens: "
            f"{', '.join(summary['cost']['unknown'])}."
        )
    return notes
