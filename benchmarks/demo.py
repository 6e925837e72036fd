"""``make demo``: a real small model plays ``math-2agent``, and then its two roles learn for a few updates.

Everything runs offline: the bundled 135M model through vLLM (or, where vLLM cannot be installed, through transformers,
which every output then says), a procedural task set, and the recipe ``dr_mas_math_cpu``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

MODEL = "smollm2-135m"
TASKS = "one-digit"
BACKEND_NOTE = Path(sys.prefix) / ".backend"
QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "PYTHONWARNINGS": "ignore::FutureWarning",
}


def main() -> int:
    """Run the demo; returns the exit status of the step that failed, or 0."""
    backend = _backend()
    folder = Path("runs") / f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    started = time.monotonic()
    policy = f"{backend}:{MODEL}"
    sampling = ["-n", "12", "-k", "2", "--max-tokens", "64", "--temperature", "0.7"]
    bench = ["run", "math-2agent", "--policy", policy, "--tasks", TASKS, *sampling, "--out", str(folder / "benchmark")]
    train = ["--config", "dr_mas_math_cpu", "--out", str(folder / "training"), "--backend", backend]
    steps = (
        (f"1 of 2: {MODEL} plays math-2agent through {_label(backend)}", "llm-bench", "benchmarks.cli", bench),
        ("2 of 2: solver and verifier learn with Dr. MAS", "llm-train", "trainers.cli", train),
    )
    for title, command, module, arguments in steps:
        _say(f"\n== {title}\n$ {command} {' '.join(arguments)}\n")
        done = subprocess.run([sys.executable, "-m", module, *arguments], env={**os.environ, **QUIET}, check=False)
        if done.returncode:
            _say(f"The demo stopped: {command} ended with exit status {done.returncode}.")
            return done.returncode
    _say(f"\n== Done in {(time.monotonic() - started) / 60:.1f} minutes")
    _say(f"Episodes:  {folder / 'benchmark' / 'episodes.jsonl'}   (llm-bench report {folder / 'benchmark'})")
    _say(f"Metrics:   {folder / 'training' / 'metrics.jsonl'}")
    _say(f"Plot:      {folder / 'training' / 'plot.png'}")
    _say(f"Models:    {folder / 'training' / 'models'}")
    return 0


def _backend() -> str:
    """What the set-up could install: ``vllm``, or ``hf`` with the reason, which is shown."""
    try:
        backend, *reason = BACKEND_NOTE.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return "vllm"
    if backend == "hf":
        _say("\n".join(reason))
    return backend


def _label(backend: str) -> str:
    return "vLLM" if backend == "vllm" else "transformers (vLLM is not installed)"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
