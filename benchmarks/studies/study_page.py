"""What the pages of studies of arms have in common: their tables, from the reports that the studies have written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "DOCS",
    "arms_table",
    "differences_table",
    "publish",
    "read_report",
    "success_cell",
    "times",
    "variants_table",
    "where_clear",
]

DOCS = Path(__file__).parents[2] / "docs" / "studies"


def read_report(folder: Path, study: str) -> Any:
    """The report of a run, its numbers to five digits.

    Args:
        folder: Of the run.
        study: Name of the module that writes it.

    Raises:
        ValueError: The folder holds no report.
    """
    path = folder / "report.json"
    if not path.is_file():
        raise ValueError(f"{folder} holds no report.json: run `python -m benchmarks.studies.{study} --out {folder}`")
    return _rounded(json.loads(path.read_text(encoding="utf-8")))


def _columns(report: Mapping[str, Any]) -> list[str]:
    """The ways of playing that all arms were evaluated in, such as ``greedy/1``."""
    evaluations = [arm["evaluation"] for arm in report["arms"].values()]
    return [mode for mode in evaluations[0] if all(mode in found for found in evaluations)]


def arms_table(report: Mapping[str, Any]) -> str:
    """Held-out success of all arms, a row each, and what an arm was at ``early_tokens`` in a row before it."""
    arms = report["arms"]
    modes = _columns(report)
    lines = [f"| arm | seeds | updates | {' | '.join(modes)} | tokens an episode, `{modes[-1]}` |"]
    lines.append("|---" * (len(modes) + 4) + "|")
    for arm in arms.values():
        rows = [(arm["label"], _updates(arm), arm["evaluation"])]
        if "early" in arm:
            early = f"{arm['label']}, after {report['settings']['early_tokens']:,} tokens"
            rows.insert(0, (early, "", arm["early"]))
        for label, updates, found in rows:
            cells = [success_cell(found[mode]) for mode in modes]
            tokens = found[modes[-1]]["tokens"]
            lines.append(f"| {label} | {len(arm['seeds'])} | {updates} | {' | '.join(cells)} | {tokens:.0f} |")
    return "\n".join(lines)


def _updates(arm: Mapping[str, Any]) -> str:
    """Updates of each seed."""
    return ", ".join(f"{run['updates']:.0f}" for run in arm["training"] if run)


def success_cell(value: Mapping[str, Any]) -> str:
    """A success with its interval, and the least and greatest seed."""
    low, high = value["interval"]
    spread = f" ({min(value['seeds']):.3f}–{max(value['seeds']):.3f})" if len(value["seeds"]) > 1 else ""
    return f"{value['success']:.3f} [{low:.3f}, {high:.3f}]{spread}"


def differences_table(report: Mapping[str, Any]) -> str:
    """The compared arms, a row each: mean difference, interval, seeds."""
    labels = {name: arm["label"] for name, arm in report["arms"].items()}
    modes = _columns(report)
    lines = [f"| difference | {' | '.join(modes)} |", "|---" * (len(modes) + 1) + "|"]
    for row in report["differences"]:
        cells = [_gap(row["evaluation"][mode]) for mode in modes]
        lines.append(f"| {labels[row['arm']]} − {labels[row['against']]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _gap(value: Mapping[str, Any]) -> str:
    low, high = value["interval"]
    seeds = ", ".join(f"{seed:+.3f}" for seed in value["seeds"])
    return f"{value['difference']:+.3f} [{low:+.3f}, {high:+.3f}]: {seeds}"


def where_clear(report: Mapping[str, Any]) -> list[str]:
    """In which ways of playing the first arm of each comparison is clearly ahead, and in which behind."""
    labels = {name: arm["label"] for name, arm in report["arms"].items()}
    lines = []
    for row in report["differences"]:
        ahead = [mode for mode, gap in row["evaluation"].items() if gap["interval"][0] > 0]
        behind = [mode for mode, gap in row["evaluation"].items() if gap["interval"][1] < 0]
        lines.append(
            f"- *{labels[row['arm']]}* against *{labels[row['against']]}*: ahead in {_listed(ahead)}, behind in "
            f"{_listed(behind)}."
        )
    return ["Where the interval does not hold 0:\n\n" + "\n".join(lines)] if lines else []


def _listed(modes: Sequence[str]) -> str:
    return ", ".join(f"`{mode}`" for mode in modes) or "none"


def variants_table(comparison: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> str:
    """Arms again, with settings that are others than in the comparison."""
    settings, modes = comparison["settings"], _columns(comparison)
    lines = [f"| arm | other settings | updates | {' | '.join(modes)} |", "|---" * (len(modes) + 3) + "|"]
    for report in variants:
        others = ", ".join(f"`{key}` {value}" for key, value in report["settings"].items() if settings[key] != value)
        for arm in report["arms"].values():
            cells = " | ".join(success_cell(arm["evaluation"][mode]) for mode in modes if mode in arm["evaluation"])
            lines.append(f"| {arm['label']} | {others} | {_updates(arm)} | {cells} |")
    return "\n".join(lines)


def times(report: Mapping[str, Any]) -> str:
    """How long training took, in a sentence."""
    lines = []
    for arm in report["arms"].values():
        minutes = [seconds["training"] / 60 for seconds in arm["seconds"]]
        if any(arm["training"]):
            lines.append(f"{arm['label']}: {', '.join(f'{value:.1f}' for value in minutes)}")
    return f"Minutes of training, a seed each, on one core beside other work: {'; '.join(lines)}."


def publish(docs: Path, name: str, report: Any, text: str, plot: Path) -> None:
    """Write a page, the data that it is made of, and its plot into the folder ``docs``."""
    docs.mkdir(parents=True, exist_ok=True)
    (docs / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (docs / f"{name}.md").write_text(text, encoding="utf-8")
    shutil.copy(plot, docs / f"{name}.png")


def _rounded(value: Any) -> Any:
    """Numbers to five digits, so that the file is small."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value
