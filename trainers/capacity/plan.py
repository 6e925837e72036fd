"""``llm-train plan``: does a configuration fit on devices, and how long does an update take there?

Examples:
  llm-train plan --config dr_mas_math --devices 8xH100
  llm-train plan --config dr_mas_math --devices 4xH100+4xL40S      (learners on the first pool, engines on the second)
  llm-train plan --config dr_mas_math_cpu --devices cpu --json
  llm-train plan --config my.yaml --devices 1xRTX4090 --episodes runs/mine     (lengths as in a run of llm-bench)

Memory is counted; on GPUs times are a roofline of published peaks with assumed shares, not measured. Without
``--episodes`` lengths are the bounds of the configuration, and times are upper bounds of that model.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainers.capacity.devices import GIB, Pool, assumptions, parse_pools
from trainers.capacity.placement import Fit, place, placements, remedies
from trainers.capacity.timing import POINTS, fit_points
from trainers.capacity.workload import PolicyWork, recorded_lengths, workload
from trainers.config import ConfigError, TrainConfig, load_config

__all__ = ["main", "plan"]


def plan(config: TrainConfig, pools: Sequence[Pool], works: Sequence[PolicyWork]) -> dict[str, Any]:
    """Look at every placement and return what was found, as JSON values.

    Of the splits of one pool only the fastest that fits is kept, or the one that is nearest to fitting.

    Args:
        config: The run.
        pools: The devices.
        works: What each policy does, from :func:`~trainers.capacity.workload.workload`.

    Raises:
        ConfigError: No policy has a model of ours.
    """
    if not works:
        raise ConfigError("no policy of the configuration has a model that runs here: there is nothing to plan")
    fits = [place(config, works, placement) for placement in placements(pools)]
    best: dict[str, Fit] = {}
    for fit in fits:
        known = best.get(fit.placement.name)
        if known is None or _rank(fit) < _rank(known):
            best[fit.placement.name] = fit
    report = {
        "devices": [{"pool": str(pool), **asdict(pool.device)} for pool in pools],
        "policies": [_policy(work) for work in works],
        "placements": [_placement(config, works, fit) for fit in best.values()],
        "fits": any(not fit.problems for fit in best.values()),
        "lengths": "bounds of the configuration" if any(work.bounded for work in works) else "given",
        "basis": _basis(pools),
    }
    if len(pools) == 1 and pools[0].count == 1 and pools[0].device.gpu:
        report["note"] = "one device cannot be split between learners and engines"
    return report


def _rank(fit: Fit) -> tuple[int, float]:
    if fit.time is not None:
        return 0, fit.time.total
    return 1, sum(phase.over for phase in fit.phases)


def _basis(pools: Sequence[Pool]) -> dict[str, Any]:
    if pools[0].device.gpu:
        return {
            "times": "roofline: published peaks times assumed shares; not measured by us",
            "sources": {pool.device.name: pool.device.source for pool in pools},
            "assumptions": assumptions(),
        }
    points = json.loads(POINTS.read_text(encoding="utf-8"))
    errors = {kind: round(error, 3) for kind, (_, error) in fit_points().items()}
    return {
        "times": f"fitted to {len(points['points'])} measured points, for one thread of {points['machine']}",
        "largest_relative_error": errors,
        "measured_with": points["command"],
    }


def _policy(work: PolicyWork) -> dict[str, Any]:
    shape = work.shape
    return {
        "name": work.name,
        "model": str(work.policy.model),
        "shape": {**asdict(shape), "parameters": shape.parameters, "source": work.shape_source},
        "agents": list(work.agents),
        "turns": work.turns,
        "prompt_tokens": work.prompt,
        "completion_tokens": work.completion,
        "update_tokens": work.update_tokens,
        "sequences_in_flight": work.sequences,
    }


def _placement(config: TrainConfig, works: Sequence[PolicyWork], fit: Fit) -> dict[str, Any]:
    time = fit.time
    return {
        "name": fit.placement.name,
        "learners_on": str(fit.placement.learners),
        "engines_on": str(fit.placement.engines),
        "fits": not fit.problems,
        "problems": fit.problems,
        "remedies": remedies(config, works, fit.placement) if fit.problems else [],
        "phases": [
            {
                "name": phase.name,
                "device": phase.device.name,
                "need": phase.need,
                "room": phase.room,
                "parts": phase.parts,
            }
            for phase in fit.phases
        ],
        "learners": {name: memory.parts() for name, memory in fit.learners.items()},
        "engines": {name: asdict(memory) for name, memory in fit.engines.items()},
        "sequences": fit.sequences,
        "gpu_memory_utilization": fit.utilization,
        "seconds": None if time is None else {**time.parts(), "total": time.total},
    }


def _render(report: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for policy in report["policies"]:
        console.print(
            f"{policy['name']}: {policy['model']}, {policy['shape']['parameters'] / 1e6:,.1f}M parameters "
            f"({policy['shape']['source']}); an update has {policy['turns']:,.0f} turns of "
            f"{policy['prompt_tokens']:,.0f} + {policy['completion_tokens']:,.0f} tokens ({report['lengths']}), "
            f"{policy['sequences_in_flight']:,.0f} in flight",
            highlight=False, markup=False, soft_wrap=True,
        )  # fmt: skip
    for found in report["placements"]:
        where = found["learners_on"]
        if found["name"] == "split":
            where = f"learners on {where}, engines on {found['engines_on']}"
        table = Table(box=box.SIMPLE_HEAD, title=f"{found['name']}: {where}", title_justify="left", title_style="bold")
        table.add_column("on each device, GiB")
        table.add_column("", justify="right")
        for phase in found["phases"]:
            table.add_row(
                f"while {phase['name']}", f"{phase['need'] / GIB:.2f} of {phase['room'] / GIB:.2f}", style="bold"
            )
            for name, size in phase["parts"].items():
                table.add_row(f"  {name}", f"{size / GIB:.2f}")
        console.print(table)
        for name, share in found["gpu_memory_utilization"].items():
            if found["fits"]:
                console.print(
                    f"{name}: engine.gpu_memory_utilization {share:.2f}, "
                    f"{found['sequences'][name]:,.0f} sequences at once",
                    highlight=False,
                    soft_wrap=True,
                )
        if found["seconds"]:
            parts = ", ".join(f"{name} {value:,.2f}" for name, value in found["seconds"].items() if name != "total")
            console.print(f"an update: {found['seconds']['total']:,.2f} s ({parts})", highlight=False, soft_wrap=True)
        for problem in found["problems"]:
            console.print(f"does not fit: {problem}", style="red", highlight=False, markup=False, soft_wrap=True)
        for remedy in found["remedies"]:
            console.print(f"  would fit: {remedy}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"times: {report['basis']['times']}", highlight=False, soft_wrap=True)
    if "note" in report:
        console.print(report["note"], highlight=False, soft_wrap=True)


def main(argv: Sequence[str]) -> int:
    """Run ``llm-train plan``; returns 0 where a placement fits, 1 where none does, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="llm-train plan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, metavar="FILE|RECIPE", help="as llm-train takes it")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="override a field of the configuration")
    parser.add_argument("--devices", required=True, metavar="POOLS", help="8xH100, 4xH100+4xL40S, cpu, …")
    parser.add_argument("--episodes", type=Path, metavar="DIR", help="take turns and lengths from a run of llm-bench")
    parser.add_argument("--turns", type=float, help="turns of each agent in an episode")
    parser.add_argument("--prompt-tokens", type=float, help="mean tokens of a prompt")
    parser.add_argument("--completion-tokens", type=float, help="mean tokens of an answer")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    options = parser.parse_intermixed_args(argv)
    for name in ("turns", "prompt_tokens", "completion_tokens"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            parser.error(f"--{name.replace('_', '-')} is {value:g}; it is above 0")
    try:
        config = load_config(options.config, options.overrides)
        works = workload(
            config,
            recorded=None if options.episodes is None else recorded_lengths(options.episodes),
            turns=options.turns,
            prompt=options.prompt_tokens,
            completion=options.completion_tokens,
        )
        report = plan(config, parse_pools(options.devices), works)
    except ConfigError as problem:
        sys.stderr.write(f"llm-train plan: {problem}\n")
        return 2
    if options.json:
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        _render(report)
    if report["fits"]:
        return 0
    lines = []
    for found in report["placements"]:
        lines += [f"{found['name']}: {problem}" for problem in found["problems"]]
        lines += [f"{found['name']} would fit with: {remedy}" for remedy in found["remedies"]]
    sys.stderr.write("llm-train plan: " + options.config + " does not fit.\n  " + "\n  ".join(lines) + "\n")
    return 1
