"""What groups of runs say, as tables for people and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.compare_report import difference, p_value, print_ablations, print_table, say
from benchmarks.figures import escape, percent
from benchmarks.protocols import ablation, swap
from benchmarks.protocols.group import Group

__all__ = ["group_findings", "print_group"]


def group_findings(path: str | Path, group: Group) -> dict[str, Any]:
    """Return what the runs of a group say together, as a JSON object.

    ``kind`` and ``group`` (its folder) are there for each; a swap test has ``swap`` (see
    :func:`benchmarks.protocols.swap.compare_swaps`) and an ablation ``ablation`` (see
    :func:`benchmarks.protocols.ablation.compare_group`).

    Raises:
        CompareError: If runs cannot be compared, because episodes are missing for example.
        ResultsError: If a folder cannot be read.
    """
    found: dict[str, Any] = {"kind": group.kind, "group": str(path)}
    if group.kind == swap.KIND:
        found["swap"] = swap.compare_swaps(path, group)
    elif group.kind == ablation.KIND:
        found["ablation"] = ablation.compare_group(path, group)
    return found


def print_group(found: dict[str, Any], console: Console) -> None:
    """Print what :func:`group_findings` returns."""
    if "swap" in found:
        _print_swap(found["swap"], console)
    for each in found.get("ablation", ()):
        print_ablations(each, console)


def _print_swap(found: dict[str, Any], console: Console) -> None:
    policies = found["policies"]
    say(console, f"{found['env']}: the policies of {' and '.join(policies)} exchanged ({found['group']})")
    several = len(found["assignments"]) > 1
    rows = [[*(f"{escape(spec)} (own)" for spec in policies.values()), percent(found["value"])]]
    for each in found["assignments"].values():
        change = each["difference"]
        rows.append(
            [
                *(_seat(role, source, policies) for role, source in each["sources"].items()),
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


def _seat(role: str, source: str, policies: dict[str, str]) -> str:
    return escape(policies[source]) + (" (own)" if role == source else escape(f" ({source}'s)"))
