"""What runs and groups of runs say, as tables for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.compare import CompareError
from benchmarks.compare_report import difference, p_value, print_ablations, print_table, say
from benchmarks.cost import Prices
from benchmarks.figures import escape, percent
from benchmarks.protocols import ablation, swap
from benchmarks.protocols.group import Group, expand, read_group
from benchmarks.protocols.matched_compare import compare_matched, print_matched
from benchmarks.report import print_report, read_summary
from benchmarks.results import ResultsError
from benchmarks.task_values import MetricError

__all__ = ["folders_json", "print_folders", "print_played"]


def print_played(path: str | Path, console: Console, team: str | Path | None = None) -> None:
    """Print what somebody wants to see who has just played it: of what was played to be compared, the comparison.

    Args:
        path: A run, a tournament or a group.
        console: Where to.
        team: The run whose budget it got.
    """
    group = read_group(path)
    if team is not None:
        try:
            print_matched(compare_matched(team, path), console)
        except CompareError as error:
            say(console, f"Nothing to compare yet. {error}")
        return
    if group is None or group.kind not in (swap.KIND, ablation.KIND):
        print_folders([path], console)
        return
    _print_findings(_findings(path, group), console)
    say(console, f"The tables of each run: llm-bench report {path}")


def print_folders(paths: Sequence[str | Path], console: Console, prices: Prices | None = None) -> None:
    """Print the tables of runs, tournaments and groups: of a group those of its runs, and what they say together.

    Raises:
        ResultsError: If a folder cannot be read.
    """
    print_report(expand(paths), console, prices)
    for path in paths:
        group = read_group(path)
        if group is not None:
            _print_findings(_findings(path, group), console)


def folders_json(paths: Sequence[str | Path], prices: Prices | None = None) -> str:
    """Return what :func:`print_folders` prints as a JSON list.

    A run or tournament is what :func:`benchmarks.report.read_summary` returns. A group is an object of its ``kind``,
    the folder (``group``), the ``runs`` by label, and ``swap`` (see :func:`benchmarks.protocols.swap.compare_swaps`)
    or ``ablation`` (see :func:`benchmarks.protocols.ablation.compare_group`); in their place ``incomplete`` says why
    the runs cannot be compared yet.
    """
    found: list[dict[str, Any]] = []
    for path in paths:
        group = read_group(path)
        if group is None:
            found.append(read_summary(path, prices))
        else:
            runs = {run.name: read_summary(run, prices) for run in expand([path])}
            found.append({**_findings(path, group), "runs": runs})
    return json.dumps(found, indent=2)


def _findings(path: str | Path, group: Group) -> dict[str, Any]:
    about = {"kind": group.kind, "group": str(path)}
    try:
        if group.kind == swap.KIND:
            return {**about, "swap": swap.compare_swaps(path, group)}
        if group.kind == ablation.KIND:
            return {**about, "ablation": ablation.compare_group(path, group)}
    except (CompareError, ResultsError, MetricError) as error:
        return {**about, "incomplete": str(error)}
    return about


def _print_findings(found: dict[str, Any], console: Console) -> None:
    if "swap" in found:
        _print_swap(found["swap"], console)
    for each in found.get("ablation", ()):
        print_ablations(each, console)
    if "incomplete" in found:
        say(console, f"{found['group']}: nothing to compare yet. {found['incomplete']}")


def _print_swap(found: dict[str, Any], console: Console) -> None:
    policies = found["policies"]
    say(console, f"{found['env']}: the policies of {' and '.join(policies)} exchanged ({found['group']})")
    several = len(found["assignments"]) > 1
    for role, spec in policies.items():
        say(console, f"  {role}'s policy: {spec}")
    rows = [[*("own" for _ in policies), percent(found["value"])]]
    for each in found["assignments"].values():
        change = each["difference"]
        rows.append(
            [
                *("own" if role == source else escape(f"{source}'s") for role, source in each["sources"].items()),
                percent(each["values"][1]), difference(change, share=True), p_value(change["p"]),
                *([p_value(change["p_holm"])] if several else []), p_value(each["signs"]["p"]),
            ]
        )  # fmt: skip
    header = [*policies, "success", "own – this [95 %]", "p", *(["p, Holm"] if several else []), "sign p"]
    print_table(console, "Swap test (success of the team as it was given less that of each exchange)", header, rows)
    say(
        console,
        "p is of the paired bootstrap over tasks; sign p of McNemar's exact test (or the sign test) over tasks. "
        "Differences are in percentage points.",
    )
