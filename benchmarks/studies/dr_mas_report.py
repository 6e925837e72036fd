"""The numbers of the Dr. MAS study: its runs gathered over seeds, with intervals, in one JSON object; and its plot."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from benchmarks.metrics import student_quantile, wilson_interval
from benchmarks.studies.dr_mas_arms import ARMS, REGIMES, StudySettings
from benchmarks.studies.dr_mas_page import page

__all__ = ["collapsed", "gather", "seed_interval", "spike_ratio", "write_page", "write_plot"]

WINDOW = 5
"""Updates whose mean training success a run's end is compared with."""
RARE = "answerer_0"
CONTROLS = (("grpo_turns", "grpo"), ("step_grpo", "grpo_turns"), ("dr_mas", "step_grpo"))
"""From an episode that counts once to turns that count, to scores of one's own, to statistics of one's own."""


def gather(out: Path, settings: StudySettings, machine: str) -> dict[str, Any]:
    """Put the runs that are done together.

    Args:
        out: The folder of the study.
        settings: Its settings.
        machine: What it ran on, in words.
    """
    regimes = {}
    seconds = 0.0
    for name, regime in REGIMES.items():
        runs = {arm: _read(out / "runs" / name / arm) for arm in regime.arms()}
        runs = {arm: found for arm, found in runs.items() if found}
        if not runs:
            continue
        seconds += sum(run["seconds"] for found in runs.values() for run in found.values())
        arms = {arm: _arm(found) | _against(found, runs.get("dr_mas", {})) for arm, found in runs.items()}
        controls = [
            {"first": first, "second": second, **_difference(runs[first], runs[second])}
            for first, second in CONTROLS
            if first in runs and second in runs
        ]
        regimes[name] = {**dataclasses.asdict(regime), "arms": arms, "controls": controls}
    return {
        "machine": machine,
        "processor_minutes": round(seconds / 60, 1),
        "settings": dataclasses.asdict(settings),
        "warm_start": json.loads((out / "warm.json").read_text(encoding="utf-8")),
        "lemma": json.loads((out / "lemma.json").read_text(encoding="utf-8")),
        "regimes": regimes,
    }


def spike_ratio(norms: Sequence[float]) -> float:
    """The largest norm over the median. Updates without signal, whose gradient is 0, do not count.

    >>> spike_ratio([1.0, 0.0, 2.0, 8.0])
    4.0
    """
    found = [norm for norm in norms if norm > 0]
    return max(found) / median(found) if found else 1.0


def collapsed(run: Mapping[str, Any]) -> bool:
    """Whether a run stopped on a gradient that is not finite, or ended below half of its best stretch of training."""
    if run["stopped"] is not None:
        return True
    success = run["success"]
    best = max(fmean(success[i : i + WINDOW]) for i in range(max(1, len(success) - WINDOW + 1)))
    return float(run["held_out"]["success"]) < best / 2


def seed_interval(values: Sequence[float]) -> list[float] | None:
    """The 95 % interval of a mean over seeds, by Student's t; None for a single one."""
    if len(values) < 2:
        return None
    reach = student_quantile(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return [fmean(values) - reach, fmean(values) + reach]


def write_page(report: Path) -> None:
    """Write the page of a report beside it."""
    found = json.loads(report.read_text(encoding="utf-8"))
    report.with_suffix(".md").write_text(page(found, report.with_suffix(".png").name), encoding="utf-8")


def write_plot(report: Path) -> None:
    """Draw a report beside it: the lemma, and for every regime the cost of other statistics, and spikes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = json.loads(report.read_text(encoding="utf-8"))
    figure, (lemma, success, spikes) = plt.subplots(1, 3, figsize=(14, 5.2), layout="constrained")
    for color, kind in enumerate(("played", "dealt")):
        points = [point for point in found["lemma"]["points"] if point["outcomes"] == kind]
        at = [[point[name] for point in points] for name in ("predicted", "inflation")]
        lemma.loglog(*at, "o", color=f"C{color}", markersize=4, label=f"outcomes as {kind}")
    ends = [0.1, 10]
    lemma.loglog(ends, ends, "k-", linewidth=0.7)
    lemma.set(xlabel="predicted factor", ylabel="measured: second moment of the gradient", title="Lemma 4.2")
    lemma.legend(fontsize=8)
    names = list(found["regimes"])
    for color, arm in enumerate(("step_grpo", "agent_std")):
        for place, name in enumerate(names):
            value = found["regimes"][name]["arms"].get(arm, {}).get("against_dr_mas")
            if value is not None and value["interval"] is not None:
                low, high = value["interval"]
                row = place + 0.25 * (color - 0.5)
                success.plot([max(low, -1), min(high, 1)], [row, row], color=f"C{color}", linewidth=1)
                success.plot([value["mean"]], [row], "o", color=f"C{color}", markersize=4)
    success.axvline(0, color="k", linewidth=0.7)
    success.set_yticks(range(len(names)), names, fontsize=8)
    success.set(xlabel="held-out success less that of dr_mas, 95 %", xlim=(-1, 1), title="Success")
    for color, arm in enumerate(("step_grpo", "agent_std", "dr_mas")):
        for place, name in enumerate(names):
            seeds = found["regimes"][name]["arms"].get(arm, {}).get("spike", {}).get("seeds", [])
            row = place + 0.25 * (color - 1)
            spikes.plot(seeds, [row] * len(seeds), "o", color=f"C{color}", markersize=3)
        spikes.plot([], [], "o", color=f"C{color}", label=ARMS[arm].label.replace("`", ""))
    spikes.set_yticks(range(len(names)), names, fontsize=8)
    spikes.set(xscale="log", xlabel="max/median gradient norm, every seed", title="Spikes")
    for axis in (success, spikes):
        axis.invert_yaxis()
        axis.grid(axis="x", alpha=0.3)
    spikes.legend(fontsize=8)
    figure.savefig(report.with_suffix(".png"), dpi=80)
    plt.close(figure)


def _read(folder: Path) -> dict[int, dict[str, Any]]:
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("seed*/result.json"))]
    return {run["seed"]: run for run in runs}


def _success(run: Mapping[str, Any]) -> float:
    """Success on held-out tasks; a run that stopped has no policies to play them, and solves none."""
    return 0.0 if run["stopped"] is not None else float(run["held_out"]["success"])


def _arm(runs: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    success = [_success(run) for run in runs.values()]
    ratios = {
        agent: [spike_ratio(run["norms"][agent]) for run in runs.values()]
        for agent in next(iter(runs.values()))["norms"]
    }
    worst = [max(values) for values in zip(*ratios.values(), strict=True)]
    logs = seed_interval([math.log(value) for value in worst])
    count = sum(collapsed(run) for run in runs.values())
    inflation = [value for run in runs.values() for value in run["inflation"][RARE] if value is not None]
    turns = {agent: sum(sum(run["turns"][agent]) for run in runs.values()) for agent in ratios}
    return {
        "seeds": list(runs),
        "success": {"mean": fmean(success), "interval": seed_interval(success), "seeds": success},
        "spike": {
            "mean": math.exp(fmean(map(math.log, worst))),
            "interval": None if logs is None else [math.exp(end) for end in logs],
            "seeds": worst,
            "agents": {agent: max(values) for agent, values in ratios.items()},
        },
        "largest_norm": max(max(norms) for run in runs.values() for norms in run["norms"].values()),
        "collapse": {"runs": count, "of": len(runs), "interval": list(wilson_interval(count, len(runs)))},
        "stopped": sum(run["stopped"] is not None for run in runs.values()),
        "rare_inflation": fmean(inflation) if inflation else None,
        "rare_share": turns[RARE] / sum(turns.values()),
        "curve": [fmean(values) for values in zip(*(run["success"] for run in runs.values()), strict=False)],
    }


def _against(runs: Mapping[int, Mapping[str, Any]], base: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Success less that of ``dr_mas``, and the spike ratio over that of ``dr_mas``, paired by seed."""
    if not base or runs is base:
        return {"against_dr_mas": None, "spike_over_dr_mas": None}
    logs = [math.log(_worst(runs[seed]) / _worst(base[seed])) for seed in runs if seed in base]
    interval = seed_interval(logs)
    over = {
        "mean": math.exp(fmean(logs)) if logs else 1.0,
        "interval": None if interval is None else [math.exp(end) for end in interval],
    }
    return {"against_dr_mas": _difference(runs, base), "spike_over_dr_mas": over}


def _worst(run: Mapping[str, Any]) -> float:
    """The largest spike ratio of a run's agents."""
    return max(spike_ratio(norms) for norms in run["norms"].values())


def _difference(first: Mapping[int, Mapping[str, Any]], second: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The paired difference in success over the seeds that both have."""
    values = [_success(first[seed]) - _success(second[seed]) for seed in first if seed in second]
    return {"mean": fmean(values) if values else 0.0, "interval": seed_interval(values), "seeds": values}
