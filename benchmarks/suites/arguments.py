"""What the command line says of suites: the arguments of ``run`` that only they take, and the command ``suites``."""

from __future__ import annotations

import argparse

__all__ = ["add_dry_run", "add_entry", "add_suites"]


def add_entry(parser: argparse.ArgumentParser) -> None:
    """Add ``--entry``, which only a suite takes."""
    parser.add_argument_group("suites").add_argument(
        "--entry", action="append", default=[], metavar="NAME", help="play this entry of the suite; may be repeated"
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Add ``--dry-run``."""
    parser.add_argument(
        "--dry-run", action="store_true",
        help="play nothing; say what would be played, how many tokens it takes at most, and what is missing (exit "
        "status 1 if something is)",
    )  # fmt: skip


def add_suites(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the sub-command ``suites``."""
    parser = commands.add_parser(
        "suites", help="list the suites, or show one",
        description="List the suites that `llm-bench run` knows by name, or write the file of one, to copy and change.",
    )  # fmt: skip
    parser.add_argument("suite", nargs="?", metavar="SUITE", help="write the file of this suite")
