"""The command ``llm-bench``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium.error
from rich.console import Console
from rich.logging import RichHandler

from benchmarks.arguments import make_parser
from benchmarks.cli_protocols import ACTION_OF, MATCHED, Plan, make_plan, plan_matched, play_matched_run, play_plan
from benchmarks.cli_readers import READER_ERRORS, READERS
from benchmarks.cli_suites import check_is_environment, dry_run, means_suite, play_suite
from benchmarks.live import LiveView
from benchmarks.options import parse_env_arguments, parse_options
from benchmarks.protocols.budget import read_budget
from benchmarks.protocols.catalogue import ProtocolError
from benchmarks.protocols.group import read_group
from benchmarks.protocols.report import print_played
from benchmarks.results import ResultsError, read_config
from benchmarks.runner import RunResult, RunSettings, SettingsError, run
from benchmarks.tournament import run_tournament
from benchmarks.tournament_summary import is_tournament
from benchmarks.viewer.command import view_runs
from llm_envs.console import PrintableFormatter
from trainers.policies.base import MissingBackendError, PolicyError, PolicySpecError, Sampling
from trainers.quiet import quieten_libraries
from trainers.team import TeamError

__all__ = ["main"]

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# Mistakes of the caller, each with a message that says what to do.
_USER_ERRORS = (
    gymnasium.error.Error,
    TeamError,
    PolicySpecError,
    PolicyError,
    MissingBackendError,
    ResultsError,
    SettingsError,
    ProtocolError,
    *READER_ERRORS,
)

# What --resume without an environment takes from the folder; the rest is about this session only.
_SESSION_ONLY = frozenset({"command", "out", "resume", "quiet", "concurrency", "action", "given", "dry_run", "entry"})

_PLAY = {"run": run, "tournament": run_tournament}
_CALLED = {"swap": "a swap test", "ablate": "an ablation", MATCHED: "a matched run"}
_TO_NAME = {
    "run": "Name an environment, or go on with a run",
    "tournament": "Name a game, or go on with a tournament",
    "swap": "Name an environment, or go on with a swap test",
    "ablate": "Name an environment, or go on with an ablation",
    MATCHED: "Name the run of a team and an environment of one agent, or go on with a matched run",
}
_DEFAULTS = {action: vars(make_parser().parse_args([action])) for action in _TO_NAME}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    arguments = make_parser().parse_args(argv)
    errors = Console(stderr=True)
    try:
        if arguments.action in READERS:
            READERS[arguments.action](arguments)
            return 0
        if arguments.action == "view":
            view_runs(arguments.runs, Console(), port=arguments.port, html=arguments.html)
            return 0
        command = list(sys.argv[1:] if argv is None else argv)
        _set_up_logging(arguments, errors)
        if means_suite(arguments):
            return play_suite(arguments, _DEFAULTS["run"], ["llm-bench", *command], errors)
        return _play(arguments, command, errors)
    except _USER_ERRORS as error:
        errors.print(f"llm-bench: {error}", markup=False, highlight=False, soft_wrap=True)
        return EXIT_USAGE


def _set_up_logging(arguments: argparse.Namespace, errors: Console) -> None:
    quieten_libraries()
    if not getattr(arguments, "quiet", False):  # the bundled model is converted at its first use, for up to a minute
        logging.getLogger("trainers.models").setLevel(logging.INFO)
    handler: logging.Handler = logging.StreamHandler()
    if errors.is_terminal:
        handler = RichHandler(console=errors, show_path=False)
    handler.setFormatter(PrintableFormatter("%(message)s" if errors.is_terminal else "%(levelname)s: %(message)s"))
    logging.basicConfig(handlers=[handler])


def _play(arguments: argparse.Namespace, argv: list[str], errors: Console) -> int:
    given = vars(arguments)
    check_is_environment(arguments)
    if arguments.env is None:
        given = _stored_arguments(arguments)
    settings = _settings(given, ["llm-bench", *argv])
    plan, team = Plan({"": settings}), None
    if arguments.action in ACTION_OF.values():
        plan = make_plan(arguments.action, given, settings)
    elif arguments.action == MATCHED:
        settings, team = plan_matched(given, settings)
        plan = Plan({"": settings})
    if getattr(arguments, "dry_run", False):
        return dry_run(arguments, plan.runs)
    view = LiveView(errors, quiet=arguments.quiet)
    try:
        if plan.group is not None:
            results = play_plan(plan, errors, resume=arguments.resume, quiet=arguments.quiet)
        else:
            (settings,) = plan.runs.values()
            with view:
                if team is not None:
                    results = [play_matched_run(settings, team, view)]
                else:
                    results = [asyncio.run(_PLAY[arguments.action](settings, view))]
    except KeyboardInterrupt:
        where = plan.path or view.path
        if where is None:
            errors.print("interrupted before the first episode")
        else:
            errors.print(
                f"interrupted; what was played is in {where}. Go on with: {_resume(arguments.action, where)}",
                markup=False, soft_wrap=True,
            )  # fmt: skip
        return EXIT_INTERRUPTED
    console = Console()
    path = plan.path or results[0].path
    print_played(path, console, None if team is None else team.path)
    console.print(f"results: {path}", markup=False, highlight=False, soft_wrap=True)
    return _verdict(results, len(plan.runs), path, arguments.action, errors)


def _resume(action: str, path: Path | str) -> str:
    return f"llm-bench {action} --resume --out {path}"


def _verdict(results: Sequence[RunResult], runs: int, path: Path, action: str, errors: Console) -> int:
    if len(results) == runs and all(result.complete for result in results):
        return 0
    lines = [f"gave up: {result.gave_up}" for result in results if result.gave_up]
    failed, planned, stored = (
        sum(getattr(result, name) for result in results) for name in ("failed", "planned", "stored")
    )
    lines.append(
        f"{failed} episodes failed, {planned - stored} of {planned} are missing"
        + (f", and {runs - len(results)} of {runs} runs have not begun" if len(results) < runs else "")
        + f". Go on with: {_resume(action, path)}"
    )
    errors.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    return EXIT_FAILED


def _settings(given: dict[str, Any], command: list[str]) -> RunSettings:
    return RunSettings(
        env=given["env"],
        policies=given["policy"],
        options=parse_options(given["option"]),
        tasks=given["tasks"],
        split=given["split"],
        n=given["n"],
        samples=given["k"],
        seed=given["seed"],
        shuffle=given["shuffle"],
        sampling=_sampling(given),
        env_kwargs=parse_env_arguments(given["env_arguments"]),
        concurrency=given["concurrency"],
        out=None if given["out"] is None else Path(given["out"]),
        resume=given["resume"],
        save_tokens=given["save_tokens"],
        command=command,
        arguments={name: value for name, value in given.items() if name not in _SESSION_ONLY},
    )


def _sampling(given: dict[str, Any]) -> Sampling:
    names = ("temperature", "top_p", "top_k", "max_tokens")
    try:
        return Sampling(**{name: given[name] for name in names if given[name] is not None})
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _stored_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of the run that is to be resumed, with those of this session on top."""
    action = arguments.action
    if not arguments.resume or arguments.out is None:
        raise SettingsError(f"{_TO_NAME[action]}: {_resume(action, 'DIR')}")
    group = read_group(arguments.out)
    if group is None:
        config = read_config(arguments.out)
        budget = read_budget(config["identity"])
        found = "tournament" if is_tournament(config) else "run" if budget is None else MATCHED
        stored = config["context"]["arguments"]
    else:
        found, stored = ACTION_OF[group.kind], group.arguments
    if found != action:
        what = _CALLED.get(found, f"a {found}")
        raise SettingsError(f"{arguments.out} holds {what}. Go on with: {_resume(found, arguments.out)}")
    if not stored:
        raise SettingsError(f"{arguments.out} was not started from the command line; repeat its arguments to resume it")
    changed = [
        f"--{name.replace('_arguments', '').replace('_', '-')}" if len(name) > 1 else f"-{name}"
        for name, value in vars(arguments).items()
        if name in stored and value != _DEFAULTS[action][name]
    ]
    if changed:
        raise SettingsError(
            f"--resume without an environment takes all settings from {arguments.out}; leave out: {', '.join(changed)}"
        )
    return {**vars(arguments), **stored}


if __name__ == "__main__":
    sys.exit(main())
