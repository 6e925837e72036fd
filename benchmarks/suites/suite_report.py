"""A suite in a terminal: what would be run, and in the end what came out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.figures import escape, estimate, number
from benchmarks.report import read_summary
from benchmarks.results import CONFIG
from benchmarks.suites.config import load_suite
from benchmarks.suites.manifest import RunRecord
from benchmarks.suites.missing import Missing
from benchmarks.suites.names import suite_names
from benchmarks.suites.plan import PlannedRun
from benchmarks.suites.tokens import TokenBound, add

__all__ = ["missing_in", "print_missing", "print_outcome", "print_plan", "print_suites"]


def print_suites(console: Console) -> None:
    """Print the suites that ship with the package, one line each."""
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("suite", "entries", "what it measures"):
        table.add_column(title, no_wrap=title != "what it measures", justify="right" if title == "entries" else "left")
    for name in suite_names():
        suite = load_suite(name)
        table.add_row(name, str(len(suite.entries)), escape(suite.description))
    console.print(table)


def print_plan(planned: Sequence[PlannedRun], console: Console) -> list[Missing]:
    """Print what would be run, how many episodes and tokens at most, and what is missing.

    Returns:
        What is missing.
    """
    table = Table(box=box.SIMPLE_HEAD)
    for title in ("run", "environment: tasks", "episodes", "answers", "prompts"):
        text = title in ("run", "environment: tasks")
        table.add_column(title, justify="left" if text else "right", overflow="fold", no_wrap=not text)
    for each in planned:
        table.add_row(
            escape(each.name), escape(f"{each.settings.env}: {_tasks(each)}"), _episodes(each),
            _most(each.tokens.answers), _most(each.tokens.prompts),
        )  # fmt: skip
    total = TokenBound(0, 0)
    for each in planned:
        total = add(total, each.tokens)
    episodes = [each.episodes for each in planned]
    known = [count for count in episodes if count is not None]
    if len(planned) > 1:
        table.add_section()
        table.add_row(
            f"{len(planned)} runs", "", f"{sum(known):,}" if len(known) == len(episodes) else "?",
            _most(total.answers), _most(total.prompts),
        )  # fmt: skip
    console.print(table)
    for line in _explained(planned, total):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    missing = print_missing(planned, console)
    if not missing:
        console.print("Nothing is missing.", highlight=False)
    return missing


def print_missing(planned: Sequence[PlannedRun], console: Console) -> list[Missing]:
    """Print what is missing, with its fix and the runs that need it; return it."""
    found = missing_in(planned)
    for one, names in found.items():
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        console.print(
            f"missing: {one.what} (for {shown})\n  -> {one.fix}", highlight=False, soft_wrap=True, markup=False
        )
    return list(found)


def missing_in(planned: Iterable[PlannedRun]) -> dict[Missing, list[str]]:
    """Return what is missing, each with the names of the runs that need it."""
    found: dict[Missing, list[str]] = {}
    for each in planned:
        for one in each.missing:
            names = found.setdefault(one, [])
            if each.name not in names:
                names.append(each.name)
    return found


def print_outcome(folder: Path, runs: Sequence[RunRecord], console: Console) -> None:
    """Print how each run of a suite ended, and what came out of it."""
    title = f"{escape(str(folder))} (95 % intervals; games: won/drawn/lost; tokens written)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    complete = all(run.status == "complete" for run in runs)
    for name in ("run", "result", "episodes", "tokens", "time", *(() if complete else ("status",))):
        right = name in ("episodes", "tokens", "time")
        table.add_column(name, justify="right" if right else "left", no_wrap=name in ("run", "result"))
    for run in runs:
        summary = read_summary(folder / run.name) if (folder / run.name / CONFIG).is_file() else None
        results = ["–"] if summary is None or not summary["episodes"] else _results(summary)
        planned = "?" if run.planned is None else str(run.planned)
        table.add_row(
            escape(run.name), escape("\n".join(results)), f"{run.stored}/{planned}",
            "–" if summary is None else _tokens_out(summary), f"{number(run.seconds, 0)} s",
            *(() if complete else (run.status,)),
        )  # fmt: skip
    console.print(table)
    for run in runs:
        if run.reason is not None:
            console.print(f"{run.name}: {run.reason}", markup=False, highlight=False, soft_wrap=True)


def _results(summary: dict[str, Any]) -> list[str]:
    if "players" in summary:
        ranked = sorted(summary["players"].items(), key=lambda item: -item[1]["elo"]["value"])
        return [f"{name}: Elo {round(player['elo']['value']):+d}" for name, player in ranked]
    if summary["outcomes"] is not None:
        return [
            f"{agent} {found['wins']['count']}/{found['draws']['count']}/{found['losses']['count']}"
            for agent, found in summary["outcomes"].items()
        ]
    samples = summary["samples"]
    found = [f"avg@{samples} {estimate(summary['avg_at_k'])}"]
    if samples > 1:
        found.append(f"pass@{samples} {estimate(summary['pass_at_k'].get(str(samples)))}")
    return found


def _tokens_out(summary: dict[str, Any]) -> str:
    if "players" in summary:
        parts = [(player["tokens_out"], player["games"]) for player in summary["players"].values()]
    else:
        parts = [(summary["tokens_out"], summary["episodes"])]
    written = sum(mean * count for mean, count in parts if mean is not None)
    return f"{round(written):,}" if written else "–"


def _tasks(each: PlannedRun) -> str:
    split = each.settings.split
    return f"{each.set_name} ({split})" if split else each.set_name or "?"


def _episodes(each: PlannedRun) -> str:
    tasks = "all" if each.tasks is None else f"{each.tasks:,}"
    return tasks if each.samples == 1 else f"{tasks} × {each.samples}"


def _most(count: int | None) -> str:
    """Return a count with three significant digits and a unit: 98.3 M."""
    if count is None:
        return "?"
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 100 * size or (count >= size and size > 1000):
            return f"{count / size:,.3g} {unit}"
    return f"{count:,}"


def _explained(planned: Sequence[PlannedRun], total: TokenBound) -> list[str]:
    specs = dict.fromkeys(spec for each in planned for spec in each.specs)
    lines = [f"Policies: {', '.join(specs)}"]
    if total.answers:
        lines.append(
            "Tokens: answers is what models write at most; prompts is about what they read then (first prompts and "
            "earlier answers; passages and outputs of programs come on top)."
        )
    elif total.answers is None:
        lines.append("Tokens: ? stands where the data is not there to count, or nothing bounds the length of a game.")
    else:
        lines.append("Tokens: none, no model plays.")
    return lines
