"""What ``llm-bench run SUITE``, ``--dry-run`` and ``llm-bench suites`` do."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from benchmarks.live import LiveView
from benchmarks.options import parse_env_arguments, parse_options
from benchmarks.results import ResultsError
from benchmarks.runner import RunSettings, SettingsError, default_folder
from benchmarks.suites.config import SuiteConfig, load_suite
from benchmarks.suites.manifest import RunRecord, SuiteFolder, read_manifest
from benchmarks.suites.names import builtin_path, suite_names
from benchmarks.suites.plan import PlannedRun, SuiteRequest, plan_run, plan_suite
from benchmarks.suites.players import Given
from benchmarks.suites.running import play_suite, write_suite_page
from benchmarks.suites.suite_report import print_missing, print_outcome, print_plan, print_suites
from trainers.recipe_files import ConfigError

__all__ = ["ConfigError", "dry_run", "run_suite", "show_suites"]

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

_OF_SESSION = frozenset({"action", "env", "out", "resume", "quiet", "dry_run", "concurrency", "given"})
"""Arguments of ``llm-bench run`` that a resumed suite takes without its name; the rest stands in its folder."""

_TAKEN = _OF_SESSION | {"policy", "option", "n", "seed", "env_arguments", "save_tokens", "entry"}
"""Those that a suite takes; the rest stands in its file."""


def show_suites(name: str | None, console: Console) -> None:
    """List the suites that ship with the package, or write the file of one.

    Raises:
        ConfigError: If there is no such suite.
    """
    if name is None:
        print_suites(console)
        return
    load_suite(name)
    sys.stdout.write((builtin_path(name) if name in suite_names() else Path(name)).read_text(encoding="utf-8"))


def dry_run(runs: Mapping[str, RunSettings], console: Console, *, tournament: bool = False) -> int:
    """Print what runs would take and what they lack; return the exit status.

    Args:
        runs: Their settings, by label.
        console: Where to.
        tournament: Whether they are tournaments.
    """
    planned = [plan_run(settings, label, tournament=tournament) for label, settings in runs.items()]
    return EXIT_FAILED if print_plan(planned, console) else 0


def run_suite(arguments: argparse.Namespace, defaults: Mapping[str, Any], argv: Sequence[str], errors: Console) -> int:
    """Play a suite, go on with one, or with ``--dry-run`` say what it would take; return the exit status.

    Args:
        arguments: Of the command line.
        defaults: What they are where nothing was given.
        argv: The command line, for the record.
        errors: Where to say how it goes.

    Raises:
        ConfigError: If the suite cannot be used.
        SettingsError, ResultsError, TeamError, PolicySpecError, gymnasium.error.Error: If something of the command
            line, an entry or the folder cannot be used.
    """
    name, suite, request = _read(arguments, defaults)
    planned = plan_suite(suite, request)
    console = Console()
    if arguments.dry_run:
        return EXIT_FAILED if print_plan(planned, console) else 0
    label = Path(name).stem
    specs = Given(suite, request.policies, request.options).by_role.values()
    out = Path(arguments.out) if arguments.out is not None else default_folder(f"suite-{label}", specs)
    content = {
        "name": name,
        "description": suite.description,
        "suite": suite.model_dump(),
        "request": asdict(request),
    }
    runs = [RunRecord(each.name, each.settings.env, each.tournament, planned=each.episodes) for each in planned]
    with SuiteFolder(out, content, runs, resume=arguments.resume, command=argv) as folder:
        print_missing(planned, errors)
        watch = _Watch(planned, errors, quiet=arguments.quiet)
        try:
            asyncio.run(play_suite(planned, folder, suite.budget, watch.observe, command=argv))
        except KeyboardInterrupt:
            message = f"interrupted; what was played is in {out}. Go on with: {_resume(out)}"
            errors.print(message, markup=False, highlight=False, soft_wrap=True)
            return EXIT_INTERRUPTED
        page = write_suite_page(folder, folder.runs)
        records = list(folder.runs.values())
    print_outcome(out, records, console)
    console.print(f"results: {out}", markup=False, highlight=False, soft_wrap=True)
    if page is not None:
        console.print(f"page: {page}", markup=False, highlight=False, soft_wrap=True)
    return _verdict(records, out, errors)


class _Watch:
    """Says which run begins, and shows how it goes."""

    def __init__(self, planned: Sequence[PlannedRun], errors: Console, *, quiet: bool) -> None:
        self._count = len(planned)
        self._errors = errors
        self._quiet = quiet

    def observe(self, number: int, each: PlannedRun) -> LiveView:
        """Return the view of a run."""
        if not self._quiet:
            where = f"{each.name} ({number} of {self._count}): {each.settings.env}"
            self._errors.print(where, markup=False, highlight=False, soft_wrap=True)
        return LiveView(self._errors, quiet=self._quiet)


def _read(arguments: argparse.Namespace, defaults: Mapping[str, Any]) -> tuple[str, SuiteConfig, SuiteRequest]:
    """Return the name of the suite, the suite, and what the command line says about it."""
    given = getattr(arguments, "given", ())
    concurrency = arguments.concurrency if "concurrency" in given else None
    if arguments.env is None:
        return _stored(arguments, defaults, concurrency)
    _refuse(arguments, defaults, _TAKEN, "A suite says this in its file (see `llm-bench suites NAME`); leave out")
    request = SuiteRequest(
        policies=arguments.policy,
        options=parse_options(arguments.option),
        n=arguments.n,
        seed=arguments.seed if "seed" in given else None,
        env_kwargs=parse_env_arguments(arguments.env_arguments),
        concurrency=concurrency,
        only=arguments.entry,
        save_tokens=arguments.save_tokens,
    )
    return arguments.env, load_suite(arguments.env), request


def _stored(
    arguments: argparse.Namespace, defaults: Mapping[str, Any], concurrency: int | None
) -> tuple[str, SuiteConfig, SuiteRequest]:
    why = f"--resume without a suite takes all settings from {arguments.out}; leave out"
    _refuse(arguments, defaults, _OF_SESSION, why)
    manifest = read_manifest(arguments.out)
    try:
        suite = SuiteConfig.model_validate(manifest["suite"])
        request = SuiteRequest(**{**manifest["request"], "concurrency": concurrency})
        return str(manifest["name"]), suite, request
    except (KeyError, TypeError, ValidationError) as error:
        raise ResultsError(f"{arguments.out} holds a suite of another version of llm-envs ({error})") from error


def _refuse(arguments: argparse.Namespace, defaults: Mapping[str, Any], taken: frozenset[str], why: str) -> None:
    """Refuse arguments that have no place here.

    Raises:
        SettingsError: If one was given.
    """
    changed = [name for name, value in vars(arguments).items() if value != defaults.get(name)]
    refused = [name for name in dict.fromkeys([*changed, *getattr(arguments, "given", ())]) if name not in taken]
    if refused:
        names = [name.removesuffix("_arguments").replace("_", "-") for name in refused]
        raise SettingsError(f"{why}: {', '.join(f'-{name}' if len(name) == 1 else f'--{name}' for name in names)}")


def _resume(path: Path) -> str:
    return f"llm-bench run --resume --out {path}"


def _verdict(records: Sequence[RunRecord], out: Path, errors: Console) -> int:
    bad = [record.name for record in records if record.status not in ("complete", "stopped")]
    if not bad:
        return 0
    message = f"{len(bad)} of {len(records)} runs are not complete: {', '.join(bad)}. Go on with: {_resume(out)}"
    errors.print(message, markup=False, highlight=False, soft_wrap=True)
    return EXIT_FAILED
