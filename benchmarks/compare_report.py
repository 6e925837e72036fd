"""Comparisons as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.figures import escape, number, percent, seconds

__all__ = ["difference", "p_value", "print_ablations", "print_comparison", "print_table", "say"]

FIGURE_WIDTH = 22
_SMALLEST = 0.001  # of a p-value that is written out


def print_comparison(found: dict[str, Any], console: Console) -> None:
    """Print what :func:`benchmarks.compare.compare` returns."""
    say(console, f"{found['env']}: {found['episodes']} episodes of {found['tasks']} tasks, paired by task")
    for letter, run, policy in zip("AB", found["runs"], found["policies"], strict=True):
        say(console, f"  {letter}  {run}: {policy}")
    rows = []
    for metric in found["metrics"].values():
        one, two = metric["values"]
        signs = metric["signs"]
        rows.append(
            [
                escape(metric["title"]), _value(one, metric["share"]), _value(two, metric["share"]),
                difference(metric["difference"], metric["share"]), p_value(metric["difference"]["p"]),
                f"{signs['better']} – {signs['worse']}", p_value(signs["p"]),
            ]
        )  # fmt: skip
    header = ["", "A", "B", "A – B [95 %]", "p", "higher", "p"]
    print_table(console, "Differences (means over tasks)", header, rows)
    say(
        console,
        "The first p is of the paired bootstrap over tasks, the second of McNemar's exact test (several samples a "
        "task: the sign test) on how many tasks each was higher. Differences of shares are in percentage points.",
    )
    _print_agents(found["agents"], console)
    for name, (one, two) in found["differing"].items():
        say(console, f"differs: {name}: {one!r} and {two!r}")
    if any(found["left_out"]):
        one, two = found["left_out"]
        say(console, f"left out as the other has no such task or sample: {one} episodes of A, {two} of B")


def print_ablations(found: dict[str, Any], console: Console) -> None:
    """Print what :func:`benchmarks.compare.compare_ablations` returns."""
    say(console, f"{found['env']}: {found['policy']} ({found['base']})")
    several = len(found["roles"]) > 1
    rows = []
    for role, of in found["roles"].items():
        say(console, f"  {role} played by {of['by']} instead of {of['replaced']}: {of['run']}, {of['tasks']} tasks")
        whole, without = of["values"]
        change, signs = of["contribution"], of["signs"]
        rows.append(
            [
                escape(role), percent(whole), percent(without), difference(change, share=True),
                p_value(change["p"]), *([p_value(change["p_holm"])] if several else []), p_value(signs["p"]),
            ]
        )  # fmt: skip
    header = ["role", "whole", "without", "lost [95 %]", "p", *(["p, Holm"] if several else []), "sign p"]
    print_table(console, "Contribution of each role (success of the whole team less that without it)", header, rows)
    say(
        console,
        "p is of the paired bootstrap over tasks; sign p of McNemar's exact test (or the sign test) over tasks.",
    )


def p_value(p: float) -> str:
    """Return a p-value with three decimals, or how small it is."""
    return "< 0.001" if p < _SMALLEST else f"{p:.3f}"


def _print_agents(agents: dict[str, list[dict[str, Any] | None]], console: Console) -> None:
    columns = [
        (name, letter, figures)
        for name, both in agents.items()
        for letter, figures in zip("AB", both, strict=True)
        if figures is not None
    ]
    parts = sorted({part for _, _, figures in columns for part in figures["reward_parts"]})
    header = ["agent", "run", "policy", "turns", "share", "tokens in", "tokens out", "invalid", "median wait"]
    rows = [
        [
            escape(name), letter, escape(figures["policy"]) or "–", number(figures["turns"]),
            percent(figures["share_of_turns"]), number(figures["tokens_in"], 0), number(figures["tokens_out"], 0),
            percent(figures["invalid_rate"]), seconds(figures["latency_s"]),
        ]
        for name, letter, figures in columns
    ]  # fmt: skip
    print_table(console, "Agents (means per episode)", header, rows)
    paid = [
        [escape(name), letter, number(figures["return"], 3)]
        + [number(figures["reward_parts"].get(part), 3) for part in parts]
        for name, letter, figures in columns
    ]
    print_table(console, "Rewards (means per episode)", ["agent", "run", "return", *map(escape, parts)], paid)


def print_table(console: Console, title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under a header; a column with an interval, ``[95 %]`` in its name, is never wrapped."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for position, name in enumerate(header):
        figure = "[95 %]" in name
        table.add_column(
            escape(name), overflow="fold", justify="left" if position == 0 else "right", no_wrap=figure,
            min_width=FIGURE_WIDTH if figure else None,
        )  # fmt: skip
    for row in rows:
        table.add_row(*row)
    console.print(title, highlight=False, soft_wrap=True)
    console.print(table)


def say(console: Console, text: str) -> None:
    """Print a line as it is, without markup or highlights."""
    console.print(escape(text), highlight=False, soft_wrap=True)


def _value(value: float, share: bool) -> str:
    return percent(value) if share else number(value, 3)


def difference(found: dict[str, Any], share: bool) -> str:
    """Return a difference with its interval; of shares in percentage points."""
    scale, digits = (100, 1) if share else (1, 3)
    value, (low, high) = found["value"], found["interval"]
    return f"{scale * value:+.{digits}f} [{scale * low:+.{digits}f}, {scale * high:+.{digits}f}]"
