"""``make demo``: a real small model plays ``math-2agent``, and then its two roles learn for a few updates.

Everything runs offline: the bundled 135M model through vLLM (or, where vLLM cannot be installed, through transformers,
which every output then says), a procedural task set, and the recipe ``dr_mas_math_cpu``. The team that is measured is
the team that is trained: model, system prompts and sampling come from the recipe.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from trainers.config import TrainConfig, load_config

RECIPE = "dr_mas_math_cpu"
BACKEND_NOTE = Path(sys.prefix) / ".backend"


def main() -> int:
    """Run the demo; returns the exit status of the step that failed, or 0."""
    backend = _backend()
    folder = Path("runs") / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    started = time.monotonic()
    config = load_config(RECIPE)
    bench = [*_bench_arguments(config, backend), "--out", str(folder / "benchmark")]
    train = ["--config", RECIPE, "--backend", backend, "--out", str(folder / "training")]
    through = "vLLM" if backend == "vllm" else "transformers (vLLM is not installed)"
    steps = (
        (f"1 of 2: the untrained team plays {config.env.id} through {through}", "llm-bench", "benchmarks.cli", bench),
        (f"2 of 2: the team learns with {config.algorithm.preset}", "llm-train", "trainers.cli", train),
    )
    for title, command, module, arguments in steps:
        _say(f"\n== {title}\n$ {command} {shlex.join(arguments)}\n")
        done = subprocess.run([sys.executable, "-m", module, *arguments], check=False)
        if done.returncode:
            _say(f"The demo stopped: {command} ended with exit status {done.returncode}.")
            return done.returncode
    _say(f"\n== Done in {(time.monotonic() - started) / 60:.1f} minutes")
    _say(f"Episodes:  {folder / 'benchmark' / 'episodes.jsonl'}")
    _say(f"Metrics:   {folder / 'training' / 'metrics.jsonl'}")
    _say(f"Plot:      {folder / 'training' / 'plot.png'}")
    _say(f"Models:    {folder / 'training' / 'models'}")
    return 0


def _bench_arguments(config: TrainConfig, backend: str) -> list[str]:
    """``llm-bench run`` on the recipe's environment, by the recipe's team before it is trained."""
    roles = config.role_map()
    models = {config.policies[name].model for name in roles.values()}
    samplings = {config.policies[name].sampling for name in roles.values()}
    if len(models) > 1 or len(samplings) > 1:
        raise ValueError(f"the demo measures a team of one model and one sampling; {RECIPE} has {models}, {samplings}")
    (model,), (sampling,) = models, samplings
    arguments = ["run", config.env.id, "--policy", f"{backend}:{model}", "--tasks", str(config.env.tasks)]
    for key, value in config.env.kwargs.items():
        arguments += ["--env", f"{key}={json.dumps(value)}"]
    for role, name in roles.items():
        arguments += ["--option", f"{role}.system_prompt={json.dumps(config.policies[name].system_prompt)}"]
    return [
        *arguments,
        *("-n", "10", "-k", "4", "--temperature", str(sampling.temperature), "--max-tokens", str(sampling.max_tokens)),
    ]


def _backend() -> str:
    """What the set-up could install: ``vllm``, or ``hf`` with the reason, which is shown."""
    try:
        backend, *reason = BACKEND_NOTE.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return "vllm"
    if backend == "hf":
        _say("\n".join(reason))
    return backend


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
