"""A whole GRPO step beside TRL's: sample, score, update, and bring the new weights to what samples.

The same model, full weights in float32, the same questions in the same chat template, the same number of answers to
each and the same limits. An answer is worth 0 or 1 by a checksum of its text, on both sides, so that every group has
something to learn from. What a step takes is divided by its tokens, prompts and answers, since answers end where the
model ends them.

Ours is the trainer with each of its back ends (vLLM, transformers), the sync included; the faster one counts. TRL's is
``GRPOTrainer`` with transformers' ``generate``. Its two other ways do not run without a GPU: the vLLM mode asks for
one, and continuous batching took all of 24 GiB for the cache of a tiny model.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import llm_envs
from benchmarks.performance.learner import MODEL, has_trl
from benchmarks.performance.measure import Measurement
from llm_envs.core import Outcome
from llm_envs.math.env import Math1Agent
from llm_envs.registration import register, registry
from llm_envs.rewards import shared

__all__ = ["measure_grpo_steps"]

ENV = "checksum-1agent-v0"
TASKS, SAMPLES = 4, 8
TARGET = 1.3
STEPS = {"tiny": 15, MODEL: 3}
"""Steps that count: a step of the tiny model takes a fraction of a second, so what disturbs one shows."""
UNMEASURED = 1
"""Steps of a run that are not counted: they make what later ones use again."""


def worth(text: str) -> float:
    """What an answer is worth: 0 or 1, by its checksum."""
    return float(zlib.crc32(text.encode("utf-8", "surrogatepass")) % 2)


class Checksum1Agent(Math1Agent):
    """``math-1agent`` with one answer, which is worth its checksum."""

    metadata = {"name": "checksum_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}

    def _play(self, agent: str, action: str) -> Outcome:
        value = worth(action)
        return Outcome(rewards=shared(self.possible_agents, value), terminated=True, success=bool(value))


def measure_grpo_steps(
    steps: Mapping[str, int] = STEPS,
    *,
    max_tokens: int = 32,
    backends: tuple[str, ...] = ("vllm", "hf"),
) -> list[Measurement]:
    """Measure seconds a token of GRPO steps, for a tiny model of random weights and for the bundled one.

    Args:
        steps: Steps that count, after the unmeasured, by model: ``tiny``, or the name of one. Their median counts.
        max_tokens: Longest answer.
        backends: Ways of ours to sample.
    """
    if ENV not in registry:
        register(ENV, Checksum1Agent)
    rows: list[Measurement] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model, count in steps.items():
            rows += _compare(model, folder, count, max_tokens, backends)
    return rows


def _compare(model: str, folder: Path, steps: int, max_tokens: int, backends: tuple[str, ...]) -> list[Measurement]:
    source = str(_tiny(folder / "tiny")) if model == "tiny" else model
    what = f"GRPO step, {TASKS} × {SAMPLES} answers, {model}"
    ours = {
        backend: _our_step(source, backend, folder / f"{model}-{backend}", steps, max_tokens) for backend in backends
    }
    rows = [Measurement(f"ours through {name}, {what}", 1 / seconds, "tokens/s") for name, seconds in ours.items()]
    if not has_trl():
        return rows
    theirs = _trl_step(source, steps, max_tokens)
    return [
        *rows,
        Measurement(f"TRL, {what}", 1 / theirs, "tokens/s"),
        Measurement(f"ours / TRL, {what}", theirs / min(ours.values()), "x", TARGET),
    ]


def _tiny(folder: Path) -> Path:
    from trainers.env_texts import env_texts
    from trainers.models import build_tiny_model

    return build_tiny_model(folder, texts=list(env_texts(ENV, tasks=64)), hidden_size=128, layers=4, max_length=512)


def _our_step(model: str, backend: str, out: Path, steps: int, max_tokens: int) -> float:
    """Seconds a token, through the trainer."""
    from trainers.config import load_config
    from trainers.rollout.records import Episode
    from trainers.tracking import read_metrics
    from trainers.trainer import Trainer

    tokens: list[int] = []

    def count(episode: Episode) -> None:
        tokens.append(sum(turn.prompt_tokens + turn.completion_tokens for turn in episode.turns))

    config = {
        "env": {"id": ENV, "tasks": "one-digit", "kwargs": {}},
        "algorithm": {"preset": "grpo"},
        "policies": {
            "solver": {
                "model": model,
                "backend": backend,
                "learning_rate": 1e-6,
                "sampling": {"temperature": 1.0, "max_tokens": max_tokens},
                "engine": {"max_model_len": 512} if backend == "vllm" else {},
            }
        },
        "updates": UNMEASURED + steps,
        "tasks_per_update": TASKS,
        "samples_per_task": SAMPLES,
        "concurrency": TASKS * SAMPLES,
        "verify_every": UNMEASURED + steps,
        "checkpoint": {"every": UNMEASURED + steps},
        "record": {"every": 0},
    }
    asyncio.run(Trainer(load_config(config), out, on_episode=count).run())
    each = TASKS * SAMPLES
    spent = [sum(row[f"time/{phase}_s"] for phase in ("rollout", "update", "sync")) for row in read_metrics(out)]
    rates = [
        seconds / sum(tokens[number * each : (number + 1) * each])
        for number, seconds in enumerate(spent)
        if number >= UNMEASURED
    ]
    return median(rates)


def _trl_step(model: str, steps: int, max_tokens: int) -> float:
    """Seconds a token, through TRL's trainer."""
    import datasets
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from trainers.models import resolve_model

    env: Any = llm_envs.make(ENV, tasks="one-digit", split="train").unwrapped
    prompts = []
    for index in range(TASKS * (UNMEASURED + steps)):
        env.reset(seed=0, options={"task_index": index})
        prompts.append({"prompt": [{"role": "user", "content": str(env.observe("solver_0"))}]})
    path = str(resolve_model(model))

    class Times(TrainerCallback):
        """Seconds of each step and the tokens until its end."""

        def __init__(self) -> None:
            self.seconds: list[float] = []
            self.tokens: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self._started = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds.append(time.perf_counter() - self._started)
            self.tokens.append(float(trainer._metrics["train"]["num_tokens"][-1]))

    times = Times()
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            AutoModelForCausalLM.from_pretrained(path, dtype="float32"),
            reward_funcs=_worth_of,
            args=GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=SAMPLES,
                gradient_accumulation_steps=TASKS,
                num_generations=SAMPLES,
                max_completion_length=max_tokens,
                max_steps=UNMEASURED + steps,
                learning_rate=1e-6,
                temperature=1.0,
                gradient_checkpointing=False,
                bf16=False,
                use_cpu=True,
                report_to="none",
                save_strategy="no",
                logging_steps=10_000,
                disable_tqdm=True,
                shuffle_dataset=False,
            ),
            train_dataset=datasets.Dataset.from_list(prompts),
            processing_class=AutoTokenizer.from_pretrained(path),
            callbacks=[times],
        )
        trainer.train()
    spent = [after - before for before, after in zip([0.0, *times.tokens], times.tokens, strict=False)]
    return median(seconds / tokens for seconds, tokens in list(zip(times.seconds, spent, strict=True))[UNMEASURED:])


def _worth_of(completions: list[Any], **_: Any) -> list[float]:
    return [worth(completion[0]["content"]) for completion in completions]
