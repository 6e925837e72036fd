"""``llm-train``: train the policies of a team.

Examples:
  llm-train --config dr_mas_math_cpu
  llm-train --config dr_mas_math_cpu updates=20 policies.*.learning_rate=1e-4
  llm-train --config my.yaml --out runs/mine --resume
  llm-train --config dr_mas_math_cpu --backend hf        (sample with transformers instead of vLLM)
  llm-train --config dr_mas_math_cpu --cluster local:8   (on a Ray cluster: environments, samplers, learners apart)
  llm-train --list                                       (the recipes that ship)
  llm-train report runs/mine [runs/other …] --out page.html   (plots, tables and alarms; see llm-train report --help)
  llm-train init --env plan-path-1agent --out models/tiny        (a tiny model with an environment's own words)
  llm-train sft --episodes runs/demos --model models/tiny --out models/warm           (warm start on recorded episodes)
  llm-train plan --config dr_mas_math --devices 8xH100           (memory and time before a run; llm-train plan --help)
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from llm_envs.console import PrintableFormatter, printable
from trainers.config import ConfigError, load_config, recipe_names
from trainers.quiet import quieten_libraries


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 done, 2 wrong arguments, 1 the run stopped, 130 interrupted."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["report"]:
        from trainers import run_report

        return run_report.main(arguments[1:])
    if arguments[:1] in (["init"], ["sft"]):
        from trainers import sft_cli

        return sft_cli.main(arguments)
    if arguments[:1] == ["plan"]:
        from trainers.capacity import plan

        return plan.main(arguments[1:])
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)  # overrides may stand anywhere
    if options.list:
        sys.stdout.write("\n".join(recipe_names()) + "\n")
        return 0
    if options.config is None:
        parser.error("--config is missing: a YAML file, or one of the recipes that ship: " + ", ".join(recipe_names()))
    if options.resume and options.out is None:
        parser.error("--resume needs --out, the folder of the run to go on with")
    quieten_libraries()
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(message)s"))  # errors quote what models and servers have said
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx").setLevel(logging.WARNING)
    run_dir = options.out or Path("runs") / f"{Path(options.config).stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    try:
        return _run(options, run_dir)
    except KeyboardInterrupt:
        sys.stderr.write(f"\nllm-train: interrupted. {_way_on(options, run_dir)}\n")
        return 130


def _run(options: argparse.Namespace, run_dir: Path) -> int:
    from gymnasium import error

    from trainers.algorithms.diagnostics import GradientSpike
    from trainers.checkpoint import CheckpointError
    from trainers.console import TrainConsole
    from trainers.learner import NonFiniteGradient
    from trainers.members import with_backend
    from trainers.models import ModelNotFoundError
    from trainers.policies.base import MissingBackendError, PolicyError, PolicySpecError
    from trainers.trainer import RunError, Trainer
    from trainers.weight_sync import WeightSyncError
    from trainers.workers import make_workers

    try:
        config = load_config(options.config, options.overrides)
        if options.backend:
            config = with_backend(config, options.backend)
        console = TrainConsole(config, run_dir, quiet=options.quiet)
        trainer = Trainer(
            config,
            run_dir,
            resume=options.resume,
            on_progress=console.progress,
            on_episode=console.episode,
            workers=make_workers(options.cluster),
        )
    except (ConfigError, RunError, error.Error) as problem:
        sys.stderr.write(f"llm-train: {problem}\n")
        return 2
    try:
        with console:
            console.done(asyncio.run(trainer.run()))
    except (ConfigError, MissingBackendError, ModelNotFoundError, PolicySpecError) as problem:
        sys.stderr.write(f"llm-train: {problem}\n")
        return 2
    except (
        CheckpointError, GradientSpike, NonFiniteGradient, OSError, PolicyError, RunError, WeightSyncError
    ) as problem:  # fmt: skip
        sys.stderr.write(f"llm-train: the run in {run_dir} stopped: {printable(str(problem))}\n")
        return 1
    return 0


def _way_on(options: argparse.Namespace, run_dir: Path) -> str:
    """What to type to go on with an interrupted run."""
    from trainers.run_folder import CONFIG_FILE

    if not (run_dir / CONFIG_FILE).is_file():
        return "The run had not begun."
    backend = ["--backend", options.backend] if options.backend else []
    cluster = ["--cluster", options.cluster] if options.cluster else []
    given = ["--config", options.config, *options.overrides, *backend, *cluster, "--out", str(run_dir), "--resume"]
    return f"Go on with: llm-train {shlex.join(given)}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llm-train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", metavar="FILE|RECIPE", help="a YAML file, or the name of a recipe that ships")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="override a field: updates=10, policies.solver.lora.rank=4"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: runs/<recipe>-<time>)")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in --out")
    parser.add_argument("--backend", choices=("vllm", "hf"), help="sample every policy with this back end")
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="run on a Ray cluster: ray://host:port or host:port of one, auto (this machine's), or local:<n> to start "
        "one of n CPUs; without, everything is in this process",
    )
    parser.add_argument("--quiet", action="store_true", help="plain lines, no progress bar")
    parser.add_argument("--list", action="store_true", help="list the recipes that ship")
    return parser


if __name__ == "__main__":
    sys.exit(main())
