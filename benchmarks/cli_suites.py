"""Suites and ``--dry-run`` on the command line; what reads suites is imported when one is asked for."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium.error
from rich.console import Console

from benchmarks.runner import RunSettings, SettingsError
from benchmarks.suites.manifest import holds_suite
from benchmarks.suites.names import is_suite, suite_names
from llm_envs.registration import spec as find_env
from trainers.policies.base import MissingBackendError

__all__ = ["check_is_environment", "dry_run", "means_suite", "play_suite"]


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


def check_is_environment(arguments: argparse.Namespace) -> None:
    """Check that what was named is no suite that was mistyped, and that nothing was given that only a suite takes.

    Raises:
        SettingsError: If ``--entry`` was given.
        gymnasium.error.Error: If there is no such environment.
    """
    if getattr(arguments, "entry", None):
        raise SettingsError(f"--entry {arguments.entry[0]} names an entry of a suite, and {arguments.env} is none")
    if arguments.action != "run" or arguments.env is None:
        return
    close = difflib.get_close_matches(arguments.env, suite_names(), n=1)
    if close:
        try:
            find_env(arguments.env)
        except gymnasium.error.NameNotFound as error:
            raise SettingsError(f"{error} Did you mean the suite `{close[0]}`?") from error


def _import_command() -> Any:
    try:
        from benchmarks.suites import command
    except ImportError as error:
        raise MissingBackendError(
            f"suites and --dry-run need pydantic and pyyaml: install llm-envs[train] ({error})"
        ) from error
    return command
