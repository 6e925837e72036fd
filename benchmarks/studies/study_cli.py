"""The command line of a study: its folder, its seeds, a flag for each setting, a log on standard output."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from trainers.quiet import quieten_libraries

__all__ = ["Log", "add_choice", "add_settings", "read_settings", "run_command", "study_parser"]

Log = Callable[[str], None]
"""Is told what happens, a line each time."""

SettingsT = TypeVar("SettingsT")


def study_parser(name: str, description: str | None, *, seeds: bool = True) -> argparse.ArgumentParser:
    """The parser of ``python -m benchmarks.studies.<name>``, with its ``--out`` and, for ``seeds``, ``--seeds``."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.studies.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("runs") / name, help="folder of the study")
    if seeds:
        parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    return parser


def add_choice(parser: argparse.ArgumentParser, flag: str, names: Iterable[str]) -> None:
    """Add a flag for the names of what is run, such as ``--arms``; all of them by default."""
    names = list(names)
    metavar = flag.strip("-").removesuffix("s").upper()
    parser.add_argument(flag, nargs="+", choices=names, default=names, metavar=metavar, help=", ".join(names))


def add_settings(parser: argparse.ArgumentParser, settings: type) -> None:
    """Add a flag for each field of a dataclass of integers, floats, texts and switches with defaults."""
    for field in dataclasses.fields(settings):
        flag = "--" + field.name.replace("_", "-")
        if field.type == "bool":
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            kind = {"int": int, "float": float}.get(str(field.type), str)
            parser.add_argument(flag, type=kind, default=field.default, help=f"default: {field.default}")


def read_settings(given: argparse.Namespace, settings: type[SettingsT]) -> SettingsT:
    """The settings that the flags of :func:`add_settings` were given."""
    fields = dataclasses.fields(settings)  # type: ignore[arg-type]
    return settings(**{field.name: getattr(given, field.name) for field in fields})


def run_command(parser: argparse.ArgumentParser, run: Callable[[Log], str]) -> int:
    """Run a study, and write what it returns to standard output.

    Args:
        parser: Of the command, whose name errors begin with.
        run: Runs the study; its lines are written with the seconds since its start.

    Returns:
        The exit status: 0, or 2 after a ValueError, whose message is written to standard error.
    """
    quieten_libraries()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    start = time.monotonic()

    def log(line: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - start:7.0f} s] {line}\n")
        sys.stdout.flush()

    try:
        table = run(log)
    except ValueError as problem:
        sys.stderr.write(f"{parser.prog}: {problem}\n")
        return 2
    sys.stdout.write(table)
    return 0
