"""Measure all, print tables, write JSON: ``python -m benchmarks.performance [--only SECTION …] [--out FILE] [--page]``.

Each section is written as soon as it is measured. With --only, the sections that are not named stay in the file as they
are.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.context import describe_machine, describe_source, package_versions
from benchmarks.performance.measure import Measurement
from benchmarks.performance.page import figure, write_page
from benchmarks.performance.sections import SECTIONS, missing


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurements and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.performance",
        description=__doc__,
        epilog="sections: " + "; ".join(f"{name}: {section.title}" for name, section in SECTIONS.items()),
    )
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--out", type=Path, default=Path("runs/performance.json"), help="default: %(default)s")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md, its data and its plot too")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one short try (default: %(default)s)")
    arguments = parser.parse_args(argv)
    console = Console()
    machine = describe_machine()
    console.print(f"{machine}; the best of several tries counts", highlight=False, soft_wrap=True)
    record: dict[str, Any] = {"sections": {}}
    if arguments.out.is_file() and set(arguments.only) != set(SECTIONS):
        record["sections"] = json.loads(arguments.out.read_text(encoding="utf-8")).get("sections", {})
    record |= {"source": describe_source(), "versions": package_versions(())}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    missed = []
    for number, name in enumerate(arguments.only, start=1):
        section = SECTIONS[name]
        console.print(f"[{number}/{len(arguments.only)}] {section.title} …", markup=False, highlight=False)
        started = time.perf_counter()
        found = section.measure(arguments.seconds)
        record["sections"][name] = {
            "machine": machine,
            "seconds": time.perf_counter() - started,
            "measurements": [{**asdict(measurement), "met": measurement.met} for measurement in found],
        }
        console.print(_table(found))
        arguments.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        missed += [measurement.name for measurement in found if measurement.met is False]
    for line in missing():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"written to {arguments.out}", highlight=False, soft_wrap=True)
    if arguments.page:
        console.print(f"written to {write_page(record)}", highlight=False, soft_wrap=True)
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
            target = f"{'≤' if measurement.at_most else '≥'} {figure(measurement.target)}"
        met = {True: "met", False: "missed", None: ""}[measurement.met]
        table.add_row(measurement.name, f"{figure(measurement.value)} {measurement.unit}", target, met)
    return table


if __name__ == "__main__":
    sys.exit(main())
