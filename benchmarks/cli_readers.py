"""The sub-commands of ``llm-bench`` that read results folders and play nothing."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.compare import CompareError, compare, compare_ablations
from benchmarks.compare_report import print_ablations, print_comparison
from benchmarks.cost import Prices, PricesError, read_prices
from benchmarks.export import FORMATS as EXPORT_FORMATS
from benchmarks.export import export
from benchmarks.protocols.budget import read_budget
from benchmarks.protocols.group import expand
from benchmarks.protocols.matched_compare import compare_matched, print_matched
from benchmarks.protocols.report import folders_json, print_folders
from benchmarks.results import ResultsError, read_config
from benchmarks.storage import write_atomically
from benchmarks.table import make_leaderboard
from benchmarks.table_entries import TABLE_METRICS
from benchmarks.table_formats import FORMATS
from benchmarks.task_values import MetricError

__all__ = ["READERS", "READER_ERRORS", "add_readers"]

READER_ERRORS = (PricesError, CompareError, MetricError)
"""Mistakes of the caller that these commands explain, beside those that all commands have."""

_REPORT_EXAMPLES = """\
examples:
  llm-bench report runs/*
  llm-bench report runs/my-run --json
  llm-bench report runs/my-run --prices prices.yaml"""

_COMPARE_DESCRIPTION = """\
Compare two runs on the same tasks, task by task: the difference of every figure with a 95 % interval, the p-value of
the paired bootstrap over tasks, and that of McNemar's exact test (with several samples a task, of the sign test).

Runs of different environments, environment arguments, tasks or samples are refused, and what differs is named.

With --ablation, RUN_A is the run of a whole team, and each role=RUN one in which somebody else plays that role and all
else is the same: the difference of their success is what the role contributes.

If RUN_B is a single agent with the budget of RUN_A, from llm-bench matched, they are compared as that command does."""

_COMPARE_EXAMPLES = """\
examples:
  llm-bench compare runs/before runs/after
  llm-bench compare runs/all-tasks runs/some-tasks --common
  llm-bench compare runs/team --ablation solver=runs/random-solver verifier=runs/random-verifier"""

_EXPORT_DESCRIPTION = """\
Write the episodes, the turns and the settings of runs as tables: Parquet, CSV, or a folder that
datasets.load_dataset(folder) loads and that can be put on the Hugging Face Hub as it is. Nothing is uploaded.

The tables hold all that was played and said, and the settings with the command line: see what is in them before you
give them to anybody."""

_EXPORT_EXAMPLES = """\
examples:
  llm-bench export runs/my-run --format csv --out tables
  llm-bench export runs/* --format dataset --out my-dataset"""

_TABLE_DESCRIPTION = """\
Make a leaderboard: policies in rows, environments in columns. A column holds what can be compared: one environment with
the same arguments, tasks and samples. The best figure is marked, and so is every one that a paired test over tasks
cannot tell from it. Tournaments have a column of ratings of their own, zero-sum runs one for each seat and opponent."""

_TABLE_EXAMPLES = """\
examples:
  llm-bench table runs/*
  llm-bench table runs/* --format html --out leaderboard.html
  llm-bench table runs/* --format latex --metric avg --metric tokens-out"""

_PRICES_HELP = (
    "what tokens cost, by patterns of policies: a YAML or JSON file such as "
    '{currency: USD, per_million_tokens: {"openai:my-model*": {input: 0.5, output: 1.5}}}'
)


def add_readers(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-commands to the parser of ``llm-bench``."""
    raw = argparse.RawDescriptionHelpFormatter
    report = commands.add_parser(
        "report", help="tables of one or more results folders", epilog=_REPORT_EXAMPLES, formatter_class=raw,
        description="Print success, avg@k and pass@k with 95 % intervals, turns, tokens, cost and errors, also per "
        "agent; of a game wins, draws and losses; of a tournament ratings and pairings.",
    )  # fmt: skip
    report.add_argument("runs", nargs="+", metavar="DIR", help="a results folder")
    report.add_argument("--json", action="store_true", help="print JSON instead of tables")
    report.add_argument("--prices", metavar="FILE", help=_PRICES_HELP)
    compared = commands.add_parser(
        "compare", help="what differs between two runs on the same tasks", description=_COMPARE_DESCRIPTION,
        epilog=_COMPARE_EXAMPLES, formatter_class=raw,
    )  # fmt: skip
    compared.add_argument("first", metavar="RUN_A", help="a results folder")
    compared.add_argument("second", metavar="RUN_B", nargs="?", help="another")
    compared.add_argument(
        "--ablation", metavar="ROLE=RUN", nargs="+", default=[], help="runs in which somebody else plays a role"
    )
    compared.add_argument("--common", action="store_true", help="compare the tasks and samples that both have")
    compared.add_argument("--json", action="store_true", help="print JSON instead of tables")
    compared.add_argument("--prices", metavar="FILE", help=_PRICES_HELP)
    exported = commands.add_parser(
        "export", help="runs as Parquet, CSV or a data set folder", description=_EXPORT_DESCRIPTION,
        epilog=_EXPORT_EXAMPLES, formatter_class=raw,
    )  # fmt: skip
    exported.add_argument("runs", nargs="+", metavar="RUN", help="a results folder")
    exported.add_argument("--format", choices=EXPORT_FORMATS, default="parquet", help="default: %(default)s")
    exported.add_argument("--out", metavar="DIR", required=True, help="the folder to write, empty or not there yet")
    board = commands.add_parser(
        "table", help="a leaderboard of several runs as a file", description=_TABLE_DESCRIPTION,
        epilog=_TABLE_EXAMPLES, formatter_class=raw,
    )  # fmt: skip
    board.add_argument("runs", nargs="+", metavar="RUN", help="a results folder")
    board.add_argument("--format", choices=tuple(FORMATS), default="md", help="default: %(default)s")
    board.add_argument(
        "--metric", action="append", default=[], metavar="NAME",
        help=f"one of {', '.join(TABLE_METRICS)}; may be repeated (default: avg, of games score, of tournaments elo)",
    )  # fmt: skip
    board.add_argument("--out", metavar="FILE", help="write to a file instead of showing the table")
    board.add_argument("--prices", metavar="FILE", help=_PRICES_HELP)


def _report(arguments: argparse.Namespace) -> None:
    prices = _prices(arguments)
    if arguments.json:
        sys.stdout.write(folders_json(arguments.runs, prices) + "\n")
    else:
        print_folders(arguments.runs, Console(), prices)


def _compare(arguments: argparse.Namespace) -> None:
    if bool(arguments.ablation) == (arguments.second is not None):
        raise CompareError("Give a second run to compare with, or --ablation role=RUN; one of the two")
    found: dict[str, Any]
    if arguments.ablation:
        if arguments.prices is not None:
            raise CompareError("--prices has no effect on --ablation, which compares success alone")
        roles: dict[str, str] = {}
        for text in arguments.ablation:
            role, equals, path = text.partition("=")
            if not (role and equals and path):
                raise CompareError(f"--ablation takes role=RUN, got {text!r}")
            if role in roles:
                raise CompareError(f"--ablation was given twice for the role {role!r}")
            roles[role] = path
        found = compare_ablations(arguments.first, roles, common=arguments.common)
    elif _has_budget(arguments.second) and not _has_budget(arguments.first):
        if arguments.common or arguments.prices is not None:
            raise CompareError("--common and --prices have no effect on a team and a single agent with its budget")
        found = compare_matched(arguments.first, arguments.second)
    else:
        found = compare(arguments.first, arguments.second, common=arguments.common, prices=_prices(arguments))
    if arguments.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    elif arguments.ablation:
        print_ablations(found, Console())
    elif "unit" in found:
        print_matched(found, Console())
    else:
        print_comparison(found, Console())


def _has_budget(path: str) -> bool:
    return read_budget(read_config(path)["identity"]) is not None


def _export(arguments: argparse.Namespace) -> None:
    counts = export(expand(arguments.runs), arguments.out, arguments.format)
    shown = ", ".join(f"{count} {table}" for table, count in counts.items())
    Console().print(f"exported: {arguments.out} ({shown})", markup=False, highlight=False, soft_wrap=True)


def _table(arguments: argparse.Namespace) -> None:
    board = make_leaderboard(expand(arguments.runs), list(dict.fromkeys(arguments.metric)), _prices(arguments))
    text = FORMATS[arguments.format](board)
    if arguments.out is None:
        sys.stdout.write(text)
        return
    path = Path(arguments.out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise ResultsError(f"Cannot write {path}: {error.strerror or error}") from error
    Console().print(f"table: {path}", markup=False, highlight=False, soft_wrap=True)


def _prices(arguments: argparse.Namespace) -> Prices | None:
    return None if arguments.prices is None else read_prices(arguments.prices)


READERS: dict[str, Callable[[argparse.Namespace], None]] = {
    "report": _report,
    "compare": _compare,
    "export": _export,
    "table": _table,
}
"""What each of the sub-commands does."""
