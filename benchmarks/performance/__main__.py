"""Measure all, print a table, write JSON: ``python -m benchmarks.performance [--out FILE] [--check]``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.context import describe_machine, describe_source, package_versions
from benchmarks.performance.engine_use import measure_engine_use, missing_vllm
from benchmarks.performance.forks import measure_forks
from benchmarks.performance.games import measure_games, missing_peers
from benchmarks.performance.growth import measure_growth
from benchmarks.performance.grpo_step import measure_grpo_steps
from benchmarks.performance.learner import measure_learner, missing_trl
from benchmarks.performance.load import measure_load
from benchmarks.performance.measure import Measurement
from benchmarks.performance.overlap import measure_overlap
from benchmarks.performance.retrieval import measure_retrieval
from benchmarks.performance.schedule import measure_schedule
from benchmarks.performance.steps import measure_grading, measure_moves, measure_steps
from benchmarks.performance.team_memory import measure_team_memory


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurements and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.performance", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/performance.json"), help="default: %(default)s")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one try (default: %(default)s)")
    arguments = parser.parse_args(argv)
    console = Console()
    machine = describe_machine()
    console.print(f"{machine}; the best of three tries counts", highlight=False, soft_wrap=True)
    measurements = [
        *measure_steps(arguments.seconds),
        *measure_moves(arguments.seconds),
        *measure_games(arguments.seconds),
        *measure_forks(),
        *measure_grading(arguments.seconds),
        *measure_schedule(),
        *measure_load(),
        *measure_retrieval(),
        *measure_learner(),
        *measure_grpo_steps(),
        *measure_overlap(),
        *measure_engine_use(),
        *measure_team_memory(),
        *measure_growth(),
    ]
    console.print(_table(measurements))
    for line in [*missing_peers(), *missing_trl(), *missing_vllm()]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "machine": machine,
        "source": describe_source(),
        "versions": package_versions(()),
        "measurements": [{**asdict(measurement), "met": measurement.met} for measurement in measurements],
    }
    arguments.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    console.print(f"written to {arguments.out}", highlight=False, soft_wrap=True)
    missed = [measurement.name for measurement in measurements if measurement.met is False]
    return 1 if arguments.check and missed else 0


def _table(measurements: Sequence[Measurement]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("measured", overflow="fold")
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("target", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for measurement in measurements:
        target = ""
        if measurement.target is not None:
            target = f"{'≤' if measurement.at_most else '≥'} {_figure(measurement.target)}"
        met = {True: "met", False: "missed", None: ""}[measurement.met]
        table.add_row(measurement.name, f"{_figure(measurement.value)} {measurement.unit}", target, met)
    return table


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
