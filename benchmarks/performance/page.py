"""The documentation page of the measurements, and its plot, from their JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.performance.sections import SECTIONS

__all__ = ["DOCS", "figure", "page", "write_page"]

NAME = "performance"
DOCS = Path(__file__).resolve().parents[2] / "docs"


def write_page(record: Mapping[str, Any], docs: Path = DOCS) -> Path:
    """Write data, plot and page into the documentation; returns the page."""
    (docs / f"{NAME}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _plot(record, docs / f"{NAME}.png")
    for name, section in SECTIONS.items():
        if section.plot is not None and name in record["sections"]:
            section.plot(record["sections"][name]["measurements"], docs / f"{NAME}_{name}.png")
    path = docs / f"{NAME}.md"
    path.write_text(page(record), encoding="utf-8")
    return path


def page(record: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    parts = [
        "# Performance",
        f"*Generated from `{NAME}.json` by `make bench BENCH_ARGS=--page`.*",
        (
            "Figures with a target are ratios: to a peer, or to a bound, measured in the same run on the same machine. "
            "The others only inform; they are this machine's. "
            f"The sections took {sum(found['seconds'] for found in record['sections'].values()) / 60:.0f} minutes."
        ),
        f"![Ratios beside their targets]({NAME}.png)",
    ]
    for name, section in SECTIONS.items():
        if name not in record["sections"]:
            continue
        found = record["sections"][name]
        rows = ["| measured | value | target | |", "|---|---|---|---|"]
        for row in found["measurements"]:
            bound = "" if row["target"] is None else f"{'≤' if row['at_most'] else '≥'} {figure(row['target'])}"
            met = {True: "met", False: "**missed**", None: ""}[row["met"]]
            rows.append(f"| {row['name']} | {figure(row['value'])} {row['unit']} | {bound} | {met} |")
        parts += [
            f"## {section.title}",
            f"{section.about} {found['machine']}; {found['seconds']:.0f} s.",
            *([f"![{section.title}]({NAME}_{name}.png)"] if section.plot is not None else []),
            "\n".join(rows),
        ]
    parts += [
        "## Repeat it",
        (
            "<!-- no-run: takes half an hour -->\n```console\n$ make bench BENCH_ARGS=--page\n"
            "$ python -m benchmarks.performance --only learner step --page\n```"
        ),
        "With `--only` the named sections are measured again, and the others stay as they are in the file.",
    ]
    return "\n\n".join(parts) + "\n"


def figure(value: float) -> str:
    """A number with the digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plot(record: Mapping[str, Any], path: Path) -> None:
    """Draw each ratio as a multiple of its target, so that 1 is the target and more is better."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    bars = [
        (row["name"], row["target"] / row["value"] if row["at_most"] else row["value"] / row["target"])
        for name in SECTIONS
        if name in record["sections"]
        for row in record["sections"][name]["measurements"]
        if row["target"] and row["value"] and row["unit"] == "x"
    ]
    figure, axis = plt.subplots(figsize=(9, 0.9 + 0.28 * len(bars)), layout="constrained")
    names = [name if len(name) < 70 else f"{name[:68]}…" for name, _ in bars]
    axis.barh(names, [value for _, value in bars], color=["C0" if value >= 1 else "C3" for _, value in bars])
    axis.axvline(1.0, color="gray", linestyle=":")
    axis.invert_yaxis()
    axis.set(xlabel="as a multiple of the target (1: met)")
    axis.tick_params(labelsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)
