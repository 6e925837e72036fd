"""``llm-train report``: one or several training runs on one page of plots and tables, for a browser without a network.

The page holds everything: style, charts as SVG, no script. Alarms (:mod:`trainers.run_report_alarms`) are at its top.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from trainers.run_report_alarms import find_alarms
from trainers.run_report_data import ReportError, read_runs
from trainers.run_report_page import render

__all__ = ["ReportError", "main", "write_report"]


def write_report(runs: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the page of one run, or of several on the same charts.

    Args:
        runs: Run folders.
        out: The page; by default ``report.html`` in the run's folder, or ``comparison.html`` in that of the first.

    Returns:
        The page's path.

    Raises:
        ReportError: A folder is no run, has logged nothing yet, or cannot be read; or the page cannot be written.
    """
    if not runs:
        raise ReportError("No run was given. Give the folder of at least one.")
    folders = [Path(run) for run in runs]
    read = read_runs(folders)
    default = "report.html" if len(folders) == 1 else "comparison.html"
    path = folders[0] / default if out is None else Path(out)
    page = render(read, [find_alarms(run) for run in read])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(page.encode("utf-8", "replace"))
    except OSError as problem:
        raise ReportError(f"The page {path} cannot be written: {problem}") from problem
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``llm-train report``; returns the exit status: 0 written, 2 nothing to report on."""
    parser = argparse.ArgumentParser(
        prog="llm-train report",
        description="Write one HTML page of plots, tables and alarms of a training run; several runs are compared.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default: report.html or comparison.html in the first RUN)"
    )
    options = parser.parse_args(argv)
    try:
        path = write_report(options.runs, options.out)
    except ReportError as problem:
        sys.stderr.write(f"llm-train report: {problem}\n")
        return 2
    sys.stdout.write(f"Report: {path}\n")
    return 0
