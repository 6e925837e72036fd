"""The sub-commands of ``llm-bench`` that read results folders and play nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from rich.console import Console

from benchmarks.cost import Prices, PricesError, read_prices
from benchmarks.report import print_report, report_json

__all__ = ["READERS", "READER_ERRORS", "add_readers"]

READER_ERRORS = (PricesError,)
"""Mistakes of the caller that these commands explain, beside those that all commands have."""

_REPORT_EXAMPLES = """\
examples:
  llm-bench report runs/*
  llm-bench report runs/my-run --json
  llm-bench report runs/my-run --prices prices.yaml"""

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


def _report(arguments: argparse.Namespace) -> None:
    prices = _prices(arguments)
    if arguments.json:
        sys.stdout.write(report_json(arguments.runs, prices) + "\n")
    else:
        print_report(arguments.runs, Console(), prices)


def _prices(arguments: argparse.Namespace) -> Prices | None:
    return None if arguments.prices is None else read_prices(arguments.prices)


READERS: dict[str, Callable[[argparse.Namespace], None]] = {"report": _report}
"""What each of the sub-commands does."""
