"""``llm-train init`` and ``llm-train sft``: a tiny model of one's own, and a warm start on recorded episodes."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from trainers.quiet import quieten_libraries

_INIT = """\
Build a tiny model with random weights and a tokenizer of an environment's own words, as an ordinary model folder that
the back ends hf and vllm load. Fit it on every environment that it is to play:

  llm-train init --env plan-path-1agent --env-arg notation=cells --env-arg 'task_options={"grid_size": 5}' \\
      --out models/tiny
"""
_SFT = """\
Fine-tune a model on recorded episodes (warm start): the loss is taken on the answers only, each with its end token, and
prompts are written with the model's own chat template. Episodes come from `llm-bench run`, played by any policy:

  llm-bench run plan-path-1agent --policy oracle --split train -n 2000 --out runs/demos
  llm-train sft --episodes runs/demos --model models/tiny --out models/warm --learning-rate 1e-3
  llm-train sft --episodes runs/team --agents planner --model models/tiny --out models/planner    (one model a role)
"""


def main(argv: Sequence[str]) -> int:
    """Run ``init`` or ``sft``; returns the exit status: 0 done, 2 wrong arguments, 1 it stopped, 130 interrupted."""
    options = _parser().parse_args(argv)
    quieten_libraries()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        sys.stderr.write(f"\nllm-train {options.command}: interrupted. Nothing can be resumed; start again.\n")
        return 130


def _init(options: argparse.Namespace) -> int:
    from gymnasium import error

    from trainers.env_texts import env_texts
    from trainers.models import build_tiny_model

    def texts() -> Iterable[str]:
        for env in options.env:
            yield from env_texts(env, tasks=options.tasks, **dict(options.env_arg))

    try:
        if options.out.exists() and (not options.out.is_dir() or any(options.out.iterdir())):
            raise ValueError(f"{options.out} is not empty: choose another folder for the model")
        folder = build_tiny_model(
            options.out,
            texts=texts(),
            hidden_size=options.hidden,
            layers=options.layers,
            intermediate_size=options.intermediate or 8 * options.hidden // 3,
            max_length=options.max_length,
            seed=options.seed,
        )
    except (ValueError, error.Error) as problem:
        sys.stderr.write(f"llm-train init: {problem}\n")
        return 2
    sys.stdout.write(f"Model: {folder} ({_size(folder)})\n")
    return 0


def _size(folder: Path) -> str:
    from safetensors import safe_open

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    with safe_open(folder / "model.safetensors", framework="np") as weights:
        count = sum(weights.get_tensor(name).size for name in weights.keys())  # noqa: SIM118
    return f"{count:,} parameters, a vocabulary of {config['vocab_size']} tokens"


def _sft(options: argparse.Namespace) -> int:
    from trainers.learner import NonFiniteGradient
    from trainers.models import ModelNotFoundError
    from trainers.policies.base import PolicyError
    from trainers.sft import SFTConfig, SFTError, sft

    try:
        config = SFTConfig(
            episodes=options.episodes,
            model=options.model,
            out=options.out,
            agents=options.agents or (),
            all_episodes=options.all_episodes,
            epochs=options.epochs,
            learning_rate=options.learning_rate,
            batch=options.batch,
            held_out=options.held_out,
            seed=options.seed,
            system_prompt=options.system_prompt,
            threads=options.threads,
        )
        with _Bar(quiet=options.quiet) as bar:
            result = sft(config, bar.progress)
    except (SFTError, ModelNotFoundError, PolicyError) as problem:
        sys.stderr.write(f"llm-train sft: {problem}\n")
        return 2
    except (NonFiniteGradient, OSError) as problem:
        sys.stderr.write(f"llm-train sft: stopped: {problem}\n")
        return 1
    left_out = "".join(f"; {count} {reason} left out" for reason, count in result.left_out.items())
    held_out = "" if result.held_out_loss is None else f", held-out {result.held_out_loss:.4f}"
    sys.stdout.write(
        f"Trained on {result.turns} turns, {result.held_out_turns} held out{left_out}.\n"
        f"Loss {result.loss:.4f} nats a token{held_out}.\nModel: {result.folder}\n"
        f"Plot:  {result.folder / 'plot.png'}\n"
    )
    return 0


class _Bar:
    """A progress bar; outside a terminal, and with ``quiet``, a line whenever the held-out loss is known."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("tokenising", total=None)

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def progress(self, done: Any) -> None:
        """Show a step."""
        loss = done.metrics.get("sft/loss")
        shown = "" if loss is None else f"loss {loss:.4f}"
        self._bar.update(self._task, completed=done.step, total=done.steps, description=shown or "start")
        held_out = done.metrics.get("sft/held_out_loss")
        if held_out is not None:
            self._console.print(f"step {done.step}/{done.steps}: held-out loss {held_out:.4f} {shown}".rstrip())


def _pair(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        raise argparse.ArgumentTypeError(f"expected key=value, got {text!r}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="llm-train")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(name: str, text: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name, help=text.partition(".")[0], description=text, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        command.set_defaults(run=run)
        return command

    init = add("init", _INIT, _init)
    init.add_argument("--env", action="append", required=True, metavar="ENV", help="an environment; may be repeated")
    init.add_argument(
        "--env-arg", action="append", default=[], type=_pair, metavar="KEY=VALUE", help="argument of them; JSON or text"
    )
    init.add_argument("--out", type=Path, required=True, metavar="DIR", help="the model's folder")
    init.add_argument("--tasks", type=int, default=256, metavar="N", help="tasks whose texts are read (default: 256)")
    init.add_argument("--hidden", type=int, default=96, help="width, a multiple of 32 (default: 96)")
    init.add_argument("--layers", type=int, default=3, help="layers (default: 3)")
    init.add_argument("--intermediate", type=int, help="width of the MLP (default: 8/3 of the width)")
    init.add_argument("--max-length", type=int, default=1024, help="longest sequence in tokens (default: 1024)")
    init.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")

    sft = add("sft", _SFT, _sft)
    sft.add_argument("--episodes", nargs="+", required=True, metavar="RUN", help="folders of llm-bench, .jsonl files")
    sft.add_argument("--model", required=True, help="a bundled name, a folder, or a hub id")
    sft.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the new model")
    sft.add_argument(
        "--agents", "--roles", nargs="+", metavar="NAME", help="agents (solver_0) or roles (solver) to imitate (all)"
    )
    sft.add_argument("--all-episodes", action="store_true", help="also imitate episodes without success")
    sft.add_argument("--epochs", type=int, default=3, help="passes over the turns (default: 3)")
    sft.add_argument("--learning-rate", type=float, default=1e-5, help="peak (default: 1e-5; tiny models: 1e-3)")
    sft.add_argument("--batch", type=int, default=32, help="turns a step (default: 32)")
    sft.add_argument("--held-out", type=float, default=0.05, help="share of the tasks that is held out (default: 0.05)")
    sft.add_argument("--seed", type=int, default=0, help="order of the turns, choice of held-out tasks (default: 0)")
    sft.add_argument("--system-prompt", metavar="TEXT", help="as of the policies that will play the model")
    sft.add_argument("--threads", type=int, help="torch threads (default: torch's choice)")
    sft.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser
