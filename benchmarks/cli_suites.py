"""Suites and ``--dry-run`` on the command line; what reads suites is imported when one is asked for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from benchmarks.runner import RunSettings, SettingsError
from benchmarks.suites.manifest import holds_suite
from benchmarks.suites.names import is_suite
from trainers.policies.base import MissingBackendError

__all__ = ["dry_run", "means_suite", "play_suite", "refuse_entry"]


def means_suite(arguments: argparse.Namespace) -> bool:
    """Whether the command is about a suite."""
    if arguments.action != "run":
        return bool(arguments.action == "suites")
    if arguments.env is not None:
        return is_suite(arguments.env)
    return arguments.resume and arguments.out is not None and holds_suite(arguments.out)


def play_suite(
    arguments: argparse.Namespace, defaults: Mapping[str, Any], command: Sequence[str], errors: Console
) -> int:
    """Play a suite, or show which there are; return the exit status.

    Raises:
        SettingsError: If the suite cannot be used.
        MissingBackendError: If the packages that read suites are not installed.
        Exception: What :func:`benchmarks.suites.command.run_suite` raises.
    """
    suites = _import_command()
    try:
        if arguments.action == "suites":
            suites.show_suites(arguments.suite, Console())
            return 0
        return int(suites.run_suite(arguments, defaults, command, errors))
    except suites.ConfigError as error:
        raise SettingsError(str(error)) from error


def dry_run(arguments: argparse.Namespace, runs: Mapping[str, RunSettings]) -> int:
    """Say what the runs of a command would take; return the exit status.

    Raises:
        MissingBackendError: If the packages that read suites are not installed.
        Exception: What :func:`benchmarks.suites.plan.plan_run` raises.
    """
    return int(_import_command().dry_run(runs, Console(), tournament=arguments.action == "tournament"))


def refuse_entry(arguments: argparse.Namespace) -> None:
    """Check that ``--entry`` was not given for an environment.

    Raises:
        SettingsError: If it was.
    """
    if getattr(arguments, "entry", None):
        raise SettingsError(f"--entry {arguments.entry[0]} names an entry of a suite, and {arguments.env} is none")


def _import_command() -> Any:
    try:
        from benchmarks.suites import command
    except ImportError as error:
        raise MissingBackendError(
            f"suites and --dry-run need pydantic and pyyaml: install llm-envs[train] ({error})"
        ) from error
    return command
