"""``llm-train``: train the policies of a team.

Examples:
  llm-train --config dr_mas_math_cpu
  llm-train --config dr_mas_math_cpu updates=20 policies.*.learning_rate=1e-4
  llm-train --config my.yaml --out runs/mine --resume
  llm-train --config dr_mas_math_cpu --backend hf        (sample with transformers instead of vLLM)
  llm-train --list                                       (the recipes that ship)
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from trainers.config import ConfigError, load_config, recipe_names
from trainers.quiet import quieten_libraries


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: 0 done, 2 wrong arguments, 1 the run stopped, 130 interrupted."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.list:
        sys.stdout.write("\n".join(recipe_names()) + "\n")
        return 0
    if options.config is None:
        parser.error("--config is missing: a YAML file, or one of the recipes that ship: " + ", ".join(recipe_names()))
    quieten_libraries()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    from gymnasium import error

    from trainers.algorithms.diagnostics import GradientSpike
    from trainers.checkpoint import CheckpointError
    from trainers.console import TrainConsole
    from trainers.learner import NonFiniteGradient
    from trainers.members import with_backend
    from trainers.policies.base import MissingBackendError, PolicySpecError
    from trainers.trainer import RunError, Trainer
    from trainers.weight_sync import WeightSyncError

    try:
        config = load_config(options.config, options.overrides)
        if options.backend:
            config = with_backend(config, options.backend)
        run_dir = options.out or Path("runs") / f"{Path(options.config).stem}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        with TrainConsole(config, run_dir, quiet=options.quiet) as console:
            trainer = Trainer(
                config, run_dir, resume=options.resume, on_progress=console.progress, on_episode=console.episode
            )
            result = asyncio.run(trainer.run())
            console.done(result)
    except (ConfigError, RunError, MissingBackendError, PolicySpecError, error.Error) as problem:
        sys.stderr.write(f"llm-train: {problem}\n")
        return 2
    except (WeightSyncError, NonFiniteGradient, GradientSpike, CheckpointError) as problem:
        sys.stderr.write(f"llm-train: the run in {run_dir} stopped: {problem}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\nllm-train: interrupted. Go on with: llm-train --config {options.config} --out {run_dir} --resume\n"
        )
        return 130
    return 0


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
    parser.add_argument("--quiet", action="store_true", help="plain lines, no progress bar")
    parser.add_argument("--list", action="store_true", help="list the recipes that ship")
    return parser


if __name__ == "__main__":
    sys.exit(main())
