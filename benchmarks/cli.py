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

from benchmarks.live import LiveView
from benchmarks.options import parse_env_arguments, parse_options
from benchmarks.report import print_report, report_json
from benchmarks.results import ResultsError, read_config
from benchmarks.runner import RunResult, RunSettings, SettingsError, run
from trainers.policies.base import SPEC_FORMS, MissingBackendError, PolicyError, PolicySpecError, Sampling
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
)

_DESCRIPTION = "Measure any policy on any environment, and read what was measured."

_RUN_DESCRIPTION = f"""\
Play tasks of an environment and store every episode in a results folder.

A policy SPEC is one of: {", ".join(SPEC_FORMS)}.
--policy SPEC plays all roles; --policy role=SPEC plays one. Equal specs share one loaded model.

--option KEY=VALUE sets an option of every policy that has a model, --option role.KEY=VALUE of one role's:
  hf, vllm, openai   system_prompt
  hf, vllm           chat_template_kwargs (JSON)
  hf                 dtype, device, max_batch and what from_pretrained takes
  vllm               engine (local or async), share, and vLLM's engine arguments, such as max_model_len
  openai             timeout_s, retries, backoff_s, max_concurrency, logprobs, extra_body (JSON)"""

_RUN_EXAMPLES = """\
examples:
  the environment's own solution, to see that all is in place
    llm-bench run math-2agent --policy oracle -n 20

  a small model through vLLM, 20 problems of a file, 4 samples each
    llm-bench run math-2agent --policy vllm:smollm2-135m --tasks gsm8k_test.jsonl -n 20 -k 4

  one model per role
    llm-bench run math-2agent --policy solver=vllm:Qwen/Qwen3-0.6B --policy verifier=openai:my-model@http://localhost:8000/v1

  one model, two system prompts
    llm-bench run math-2agent --policy vllm:smollm2-135m --option max_model_len=1024 \\
      --option solver.system_prompt="Answer in one line." --option verifier.system_prompt="Trust nobody."

  arguments of the environment, greedy decoding
    llm-bench run math-2agent --policy hf:smollm2-135m --env max_rounds=3 --temperature 0

  go on after a crash, Ctrl-C or failed episodes
    llm-bench run --resume --out runs/my-run

exit status: 0 all episodes are stored, 1 some failed or are missing, 2 the command is wrong, 130 interrupted"""

_REPORT_EXAMPLES = """\
examples:
  llm-bench report runs/*
  llm-bench report runs/my-run --json"""

# What --resume without an environment takes from the folder; the rest is about this session only.
_SESSION_ONLY = frozenset({"command", "out", "resume", "quiet", "concurrency", "action"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    arguments = _parser().parse_args(argv)
    errors = Console(stderr=True)
    try:
        if arguments.action == "report":
            return _report(arguments)
        return _run(arguments, list(sys.argv[1:] if argv is None else argv), errors)
    except _USER_ERRORS as error:
        errors.print(f"llm-bench: {error}", markup=False, highlight=False, soft_wrap=True)
        return EXIT_USAGE


def _run(arguments: argparse.Namespace, argv: list[str], errors: Console) -> int:
    quieten_libraries()
    if not arguments.quiet:  # the first use of the bundled model converts it, which takes up to a minute
        logging.getLogger("trainers.models").setLevel(logging.INFO)
    if errors.is_terminal:
        logging.basicConfig(format="%(message)s", handlers=[RichHandler(console=errors, show_path=False)])
    else:
        logging.basicConfig(format="%(levelname)s: %(message)s")
    given = vars(arguments)
    if arguments.env is None:
        given = _stored_arguments(arguments)
    settings = _settings(given, ["llm-bench", *argv])
    view = LiveView(errors, quiet=arguments.quiet)
    try:
        with view:
            result = asyncio.run(run(settings, view))
    except KeyboardInterrupt:
        where = view.path
        if where is None:
            errors.print("interrupted before the first episode")
        else:
            errors.print(
                f"interrupted; what was played is in {where}. Go on with: llm-bench run --resume --out {where}",
                markup=False, soft_wrap=True,
            )  # fmt: skip
        return EXIT_INTERRUPTED
    console = Console()
    print_report([result.path], console)
    console.print(f"results: {result.path}", markup=False, highlight=False, soft_wrap=True)
    return _verdict(result, errors)


def _verdict(result: RunResult, errors: Console) -> int:
    if result.complete:
        return 0
    lines = []
    if result.gave_up:
        lines.append(f"gave up: {result.gave_up}")
    lines.append(
        f"{result.failed} episodes failed, {result.planned - result.stored} of {result.planned} are missing. "
        f"Go on with: llm-bench run --resume --out {result.path}"
    )
    errors.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    return EXIT_FAILED


def _report(arguments: argparse.Namespace) -> int:
    if arguments.json:
        sys.stdout.write(report_json(arguments.runs) + "\n")
    else:
        print_report(arguments.runs, Console())
    return 0


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
        return Sampling(**{name: given[name] for name in names})
    except ValueError as error:
        raise SettingsError(str(error)) from error


def _stored_arguments(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of the run that is to be resumed, with those of this session on top."""
    if not arguments.resume or arguments.out is None:
        raise SettingsError("Name an environment, or go on with a run: llm-bench run --resume --out DIR")
    stored = read_config(arguments.out)["context"]["arguments"]
    if not stored:
        raise SettingsError(f"{arguments.out} was not started from the command line; repeat its arguments to resume it")
    changed = [
        f"--{name.replace('_arguments', '').replace('_', '-')}" if len(name) > 1 else f"-{name}"
        for name, value in vars(arguments).items()
        if name in stored and value != _DEFAULTS[name]
    ]
    if changed:
        raise SettingsError(
            f"--resume without an environment takes all settings from {arguments.out}; leave out: {', '.join(changed)}"
        )
    return {**vars(arguments), **stored}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llm-bench", description=_DESCRIPTION)
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    raw = argparse.RawDescriptionHelpFormatter
    _add_run(
        commands.add_parser(
            "run", help="play tasks and store the episodes", description=_RUN_DESCRIPTION, epilog=_RUN_EXAMPLES,
            formatter_class=raw,
        )
    )  # fmt: skip
    report = commands.add_parser(
        "report", help="tables of one or more results folders", epilog=_REPORT_EXAMPLES, formatter_class=raw,
        description="Print success, avg@k and pass@k with 95 % intervals, turns, tokens and errors, also per agent.",
    )  # fmt: skip
    report.add_argument("runs", nargs="+", metavar="DIR", help="a results folder")
    report.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def _add_run(parser: argparse.ArgumentParser) -> None:
    defaults = Sampling()
    add = parser.add_argument
    add("env", nargs="?", metavar="ENV", help="environment id, such as math-2agent (`llm-envs list` shows all)")
    add("--policy", action="append", default=[], metavar="[ROLE=]SPEC", help="who plays; may be given once per role")
    add(
        "--option", action="append", default=[], metavar="[ROLE.]KEY=VALUE",
        help="option of the policies, JSON or text; may be repeated",
    )  # fmt: skip
    what = parser.add_argument_group("tasks")
    add = what.add_argument
    add("--tasks", metavar="SET|PATH", help="task set or file (default: the environment's own set)")
    add("--split", help="split of the set (default: test; all rows of a file)")
    add("-n", type=int, metavar="TASKS", help="play the first TASKS tasks (default: all)")
    add("--shuffle", action="store_true", help="play TASKS random tasks, chosen by --seed, instead of the first")
    add("-k", type=int, default=1, metavar="SAMPLES", help="episodes per task (default: 1)")
    add("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    add(
        "--env", dest="env_arguments", action="append", default=[], metavar="KEY=VALUE",
        help="argument of the environment, JSON or text; may be repeated",
    )  # fmt: skip
    how = parser.add_argument_group("sampling")
    add = how.add_argument
    add("--temperature", type=float, default=defaults.temperature, help="0 is greedy (default: %(default)s)")
    add("--top-p", type=float, default=defaults.top_p, help="nucleus mass (default: %(default)s)")
    add("--top-k", type=int, default=defaults.top_k, help="most likely tokens kept, -1 for all (default: %(default)s)")
    add("--max-tokens", type=int, default=defaults.max_tokens, help="per answer (default: %(default)s)")
    where = parser.add_argument_group("run")
    add = where.add_argument
    add("--concurrency", type=int, default=64, help="episodes in flight; changes no result (default: %(default)s)")
    add("--out", metavar="DIR", help="results folder (default: runs/<env>-<policy>-<time>)")
    add("--resume", action="store_true", help="go on with the run in --out, or start it if there is none")
    add("--save-tokens", action="store_true", help="store token ids and log-probs as well")
    add("--quiet", action="store_true", help="no progress, only the report")


_DEFAULTS = vars(_parser().parse_args(["run"]))


if __name__ == "__main__":
    sys.exit(main())
