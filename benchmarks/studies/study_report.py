"""The report of a study: its arms and seeds in one JSON file, a table and a plot."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies.held_out import difference, pooled
from benchmarks.studies.study_arms import Arm, TreeSettings
from trainers.tracking import read_metrics

__all__ = ["write_report"]


def write_report(
    out: Path, settings: TreeSettings, known: Mapping[str, Arm], comparisons: Sequence[tuple[str, str]]
) -> Path:
    """Gather the arms that are done, over all seeds in the folder.

    Writes ``report.json``, ``report.md``, ``report.png`` (held-out success) and ``training.png`` (reward in training).

    Args:
        out: The folder of the study.
        settings: The study.
        known: Its arms, in the order of the table.
        comparisons: Names of arms whose difference is reported, task by task.

    Returns:
        The path of ``report.json``.
    """
    arms: dict[str, Any] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    for name, arm in known.items():
        results = [
            json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob(f"seed*/{name}/result.json"))
        ]
        if not results:
            continue
        found[name] = results
        modes = results[0]["evaluation"]
        arms[name] = {
            "label": arm.label,
            "seeds": [result["seed"] for result in results],
            "training": [result["training"] for result in results],
            "seconds": [result["seconds"] for result in results],
            "evaluation": {mode: pooled([result["evaluation"][mode] for result in results]) for mode in modes},
        }
        if all("early" in result for result in results):
            arms[name]["early"] = {mode: pooled([result["early"][mode] for result in results]) for mode in modes}
    report = {"settings": dataclasses.asdict(settings), "arms": arms, "differences": _differences(found, comparisons)}
    path = out / "report.json"
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(_table(report, settings.title), encoding="utf-8")
    _plot(arms, out / "report.png")
    _plot_training(out, arms)
    return path


def _differences(
    found: Mapping[str, list[dict[str, Any]]], comparisons: Sequence[tuple[str, str]]
) -> list[dict[str, Any]]:
    """Arms against each other, over the seeds that both have."""
    rows = []
    for one, other in comparisons:
        ours, theirs = ({result["seed"]: result for result in found.get(name, ())} for name in (one, other))
        seeds = sorted(set(ours) & set(theirs))
        if seeds:
            modes = {
                mode: difference(
                    [ours[seed]["evaluation"][mode] for seed in seeds],
                    [theirs[seed]["evaluation"][mode] for seed in seeds],
                )
                for mode in ours[seeds[0]]["evaluation"]
            }
            rows.append({"arm": one, "against": other, "evaluation": modes})
    return rows


def _table(report: Mapping[str, Any], game: str) -> str:
    settings, arms = report["settings"], report["arms"]
    modes = list(next(iter(arms.values()))["evaluation"]) if arms else []
    title = (
        f"Held-out success, {game}, {settings['eval_tasks']} tasks, "
        f"{settings['tokens']} training tokens an arm. Mean over the seeds, 95 % interval over tasks, (least–greatest "
        "seed). `greedy/1` is greedy in a single turn."
    )
    columns = ["arm", "seeds", "updates", "tokens", *modes, "tokens an episode (last column)"]
    lines = [title, "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for arm in arms.values():
        training = [run for run in arm["training"] if run]
        spent = [f"{_mean(run[key] for run in training):.0f}" if training else "–" for key in ("updates", "tokens")]
        cells = [_cell(arm["evaluation"][mode]) for mode in modes]
        last = f"{arm['evaluation'][modes[-1]]['tokens']:.1f}"
        lines.append(" | ".join([f"| {arm['label']}", str(len(arm["seeds"])), *spent, *cells, last]) + " |")
    return "\n".join(lines) + "\n"


def _mean(values: Any) -> float:
    found = list(values)
    return sum(found) / len(found)


def _cell(value: Mapping[str, Any]) -> str:
    low, high = value["interval"]
    spread = f" ({min(value['seeds']):.3f}–{max(value['seeds']):.3f})" if len(value["seeds"]) > 1 else ""
    return f"{value['success']:.3f} [{low:.3f}, {high:.3f}]{spread}"


def _plot(arms: Mapping[str, Any], path: Path) -> None:
    plt = _pyplot()
    modes = list(next(iter(arms.values()))["evaluation"]) if arms else []
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    width = 0.8 / max(1, len(modes))
    for place, mode in enumerate(modes):
        found = [arm["evaluation"][mode] for arm in arms.values()]
        heights = [value["success"] for value in found]
        errors = [[value["success"] - value["interval"][0] for value in found]]
        errors.append([value["interval"][1] - value["success"] for value in found])
        at = [number + (place - (len(modes) - 1) / 2) * width for number in range(len(found))]
        axis.bar(at, heights, width, yerr=[[max(0.0, e) for e in row] for row in errors], capsize=2, label=mode)
    labels = ["\n".join(textwrap.wrap(arm["label"], 15, break_on_hyphens=False)) for arm in arms.values()]
    axis.set_xticks(range(len(arms)), labels, fontsize=7)
    axis.set(ylim=(0, 1), ylabel="held-out success", title="Greedy and sampled, in 1 turn and within several")
    axis.grid(axis="y", alpha=0.3)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _plot_training(out: Path, arms: Mapping[str, Any]) -> None:
    """The planner's mean return over tokens: in training, so of trees that of the path that was chosen by reward."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for number, (name, arm) in enumerate(arms.items()):
        for place, seed in enumerate(arm["seeds"]):
            rows = read_metrics(out / f"seed{seed}" / name / "train")
            points = [
                (row["train/total_tokens"], row["agent/planner_0/return"])
                for row in rows
                if row.get("agent/planner_0/return") is not None and row.get("train/total_tokens") is not None
            ]
            if points:
                label = arm["label"] if place == 0 else None
                axis.plot(*zip(*points, strict=True), color=f"C{number}", linewidth=1, label=label)
    axis.set(xlabel="completion tokens generated", ylabel="planner's return in training")
    axis.set_title("Training batches (trees: the path chosen by reward, which is no policy's success)", fontsize=9)
    axis.grid(alpha=0.3)
    if axis.get_lines():
        axis.legend(fontsize=8)
    figure.savefig(out / "training.png", dpi=130)
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt
