r"""Study: does a real language model learn as a team, on two processor cores?

The bundled SmolLM2-135M-Instruct plays ``math-2agent`` on sums and differences of one digit. Solver and verifier are a
LoRA adapter each on one base, sampled by one vLLM engine, trained with Dr. MAS. Pairs of digits are divided: a pair is
in training or held out, in both orders.

**Warm start.** The model seldom finds the form of an answer by itself, so it first imitates a few short demonstrations
on training tasks: ``\boxed{…}`` with the right number, and a verdict on right and on wrong answers. The baseline is
measured after it.

    python -m benchmarks.studies.llm_learns --out runs/llm_learns

The run can be stopped and started again: what is done is kept, training goes on from its newest checkpoint.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llm_envs
from benchmarks.metrics import bootstrap_interval
from benchmarks.studies.llm_learns_page import write_page
from benchmarks.studies.llm_learns_tasks import ENV, ROLES, demonstrate, one_digit_tasks
from benchmarks.studies.study_cli import Log, add_settings, read_settings, run_command, study_parser
from benchmarks.studies.study_folder import same_study, write_json
from trainers.config import TrainConfig, load_config
from trainers.policies.base import Sampling, make_policy
from trainers.rollout.episodes import collect, make_jobs
from trainers.rollout.records import Episode
from trainers.run_folder import CONFIG_FILE
from trainers.sft import SFTConfig, sft
from trainers.team import Team
from trainers.tracking import read_metrics
from trainers.trainer import Progress, Trainer

__all__ = ["LearnsSettings", "main", "run_study", "train_config"]

SYSTEM_PROMPT = "Answer at once."
"""Takes the place of the longer one that the model's template would write."""
CURVE = ("update", "train/success", "eval/success", "eval/team_return", "time/total_s")
"""Metrics of a run that the result keeps."""


@dataclass(frozen=True, slots=True)
class LearnsSettings:
    """What the study does.

    Attributes:
        test_pairs: Pairs of digits that are held out, of 55 for each operation.
        wrong: How often the demonstrating solver says a wrong number. Only the verdict on it is imitated.
        sft_epochs: Passes over the demonstrations.
        sft_learning_rate: Peak rate of the warm start (all weights).
        updates: Updates of training.
        tasks: Tasks of an update.
        samples: Episodes a task.
        rank: Rank of the adapters; alpha is twice that.
        learning_rate: Adam's rate of both adapters, constant after a warm-up.
        temperature: Of training and of sampled evaluation.
        max_tokens: Of an answer.
        curve_every: Updates between two points of the curve.
        curve_samples: Episodes a task at these.
        eval_samples: Episodes a task before and after training.
        seed: Of tasks and sampling.
        model: The model.
        backend: What samples it: ``vllm`` or ``hf``.
    """

    test_pairs: int = 22
    wrong: float = 0.5
    sft_epochs: int = 1
    sft_learning_rate: float = 5e-5
    updates: int = 60
    tasks: int = 8
    samples: int = 8
    rank: int = 16
    learning_rate: float = 2e-4
    temperature: float = 1.0
    max_tokens: int = 16
    curve_every: int = 10
    curve_samples: int = 2
    eval_samples: int = 4
    seed: int = 0
    model: str = "smollm2-135m"
    backend: str = "vllm"

    @property
    def engine(self) -> dict[str, Any]:
        """Options of the back end."""
        return {"max_model_len": 512, "block_size": 32} if self.backend == "vllm" else {}


def train_config(settings: LearnsSettings, model: Path, train: Path, test: Path) -> TrainConfig:
    """The training run.

    Args:
        settings: The study.
        model: What the adapters are put on.
        train: Tasks to train on.
        test: Tasks of the curve.
    """
    policy = {
        "model": str(model),
        "backend": settings.backend,
        "lora": {"rank": settings.rank, "alpha": 2 * settings.rank},
        "learning_rate": settings.learning_rate,
        "warmup_updates": 3,
        "micro_batch_tokens": 2048,
        "sampling": {"temperature": settings.temperature, "max_tokens": settings.max_tokens},
        "engine": settings.engine,
        "system_prompt": SYSTEM_PROMPT,
    }
    return load_config(
        {
            "env": {"id": ENV, "tasks": str(train), "split": None},
            "algorithm": {"preset": "dr_mas"},
            "policies": dict.fromkeys(ROLES, policy),
            "updates": settings.updates,
            "tasks_per_update": settings.tasks,
            "samples_per_task": settings.samples,
            "concurrency": settings.tasks * settings.samples,
            "seed": settings.seed,
            "verify_every": 10,
            "threads": 1,
            "checkpoint": {"every": 5, "keep": 1},
            "evaluation": {
                "every": settings.curve_every,
                "task_set": str(test),
                "split": None,
                "tasks": 1000,
                "samples": settings.curve_samples,
            },
        }
    )


def _evaluate(models: dict[str, Path], tasks: Path, settings: LearnsSettings) -> dict[str, Any]:
    """Play the held-out tasks through vLLM, sampled as in training and greedy.

    Returns:
        By ``sampled`` and ``greedy``: ``per_task`` (mean team reward of each task), ``team_reward`` and its 95 %
        ``interval`` (bootstrap over tasks), ``first_answer`` (share of the solver's first answers that are right),
        ``invalid`` (share of each role's turns), ``approved`` (share of the first verdicts on right and on wrong
        answers that approve), ``episodes``.
    """
    return asyncio.run(_evaluate_async(models, tasks, settings))


async def _evaluate_async(models: dict[str, Path], tasks: Path, settings: LearnsSettings) -> dict[str, Any]:
    env: Any = llm_envs.make(ENV, tasks=str(tasks), order_enforcing=False).unwrapped
    players = {
        str(folder): make_policy(f"{settings.backend}:{folder}", system_prompt=SYSTEM_PROMPT, **settings.engine)
        for folder in set(models.values())
    }
    found: dict[str, Any] = {}
    try:
        for mode, temperature, samples in (
            ("sampled", settings.temperature, settings.eval_samples),
            ("greedy", 0.0, 1),
        ):
            sampling = Sampling(temperature=temperature, max_tokens=settings.max_tokens)
            roles = {role: str(folder) for role, folder in models.items()}
            team = Team(players, roles, dict.fromkeys(players, sampling))
            jobs = make_jobs(range(len(env.tasks)), samples, settings.seed)
            episodes = await collect(env.fork, team, jobs, concurrency=64)
            found[mode] = _summary(episodes, env)
    finally:
        for player in players.values():
            await player.close()
    return found


def _summary(episodes: Sequence[Episode], env: Any) -> dict[str, Any]:
    failed = [episode.error for episode in episodes if episode.error is not None]
    if failed:
        raise RuntimeError(f"{len(failed)} episodes could not be played, the first: {failed[0]}")
    by_task: dict[int, list[float]] = {}
    first: list[bool] = []
    approved: dict[bool, list[bool]] = {True: [], False: []}
    for episode in episodes:
        by_task.setdefault(episode.task_index, []).append(episode.team_return)
        right = rf"\boxed{{{env.tasks[episode.task_index].answer}}}" in episode.turns[0].action
        first.append(right)
        approved[right].append("approve" in episode.turns[1].action and episode.turns[1].invalid is None)
    per_task = [sum(values) / len(values) for _, values in sorted(by_task.items())]
    turns = [turn for episode in episodes for turn in episode.turns]
    return {
        "episodes": len(episodes),
        "per_task": per_task,
        "team_reward": sum(per_task) / len(per_task),
        "interval": list(bootstrap_interval(per_task)),
        "first_answer": sum(first) / len(first),
        "approved": {
            "right": sum(approved[True]) / max(1, len(approved[True])),
            "wrong": sum(approved[False]) / max(1, len(approved[False])),
        },
        "invalid": {
            role: sum(t.invalid is not None for t in turns if t.agent == f"{role}_0")
            / sum(t.agent == f"{role}_0" for t in turns)
            for role in ROLES
        },
    }


def _train(config: TrainConfig, folder: Path, log: Log) -> dict[str, Any]:
    """Train, and return what the run took and its curve."""

    def progress(done: Progress) -> None:
        shown = {name: done.metrics[name] for name in ("train/success", "eval/success") if name in done.metrics}
        log(f"update {done.update}: " + ", ".join(f"{name} {value:.3f}" for name, value in shown.items()))

    trainer = Trainer(config, folder, resume=(folder / CONFIG_FILE).is_file(), on_progress=progress)
    asyncio.run(trainer.run())
    rows = read_metrics(folder)
    return {
        "seconds": sum(row.get("time/total_s", 0.0) for row in rows),
        "tokens": trainer.tokens,
        "curve": [{name: row[name] for name in CURVE if name in row} for row in rows],
    }


def _warm_start(settings: LearnsSettings, tasks: Path, out: Path) -> dict[str, Any]:
    """Let the model imitate a demonstrator, and return what that took."""
    episodes = out.parent / "demonstrations.jsonl"
    demonstrate(tasks, episodes, wrong=settings.wrong, seed=settings.seed)
    clock = time.perf_counter()
    done = sft(
        SFTConfig(
            [episodes],
            settings.model,
            out,
            all_episodes=True,
            epochs=settings.sft_epochs,
            learning_rate=settings.sft_learning_rate,
            batch=8,
            held_out=0.0,
            seed=settings.seed,
            system_prompt=SYSTEM_PROMPT,
            micro_batch_tokens=2048,
            threads=1,
        )
    )
    return {"turns": done.turns, "seconds": time.perf_counter() - clock}


def run_study(settings: LearnsSettings, out: Path, log: Log = lambda line: None) -> Path:
    """Run what is missing of the study.

    Args:
        settings: The study.
        out: Its folder.
        log: Is told what happens.

    Returns:
        The result, ``result.json``.

    Raises:
        ValueError: The folder holds a study of other settings.
    """
    same_study(settings, out)
    files = {}
    for split, rows in one_digit_tasks(settings.test_pairs, settings.seed).items():
        files[split] = out / f"{split}.jsonl"
        files[split].write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    start, run = out / "start", out / "train"
    config = train_config(settings, start, files["train"], files["test"])
    stages = {
        "warm_start": lambda: _warm_start(settings, files["train"], start),
        "before": lambda: _evaluate(dict.fromkeys(ROLES, start), files["test"], settings),
        "training": lambda: _train(config, run, log),
        "after": lambda: _evaluate({role: run / "models" / role for role in ROLES}, files["test"], settings),
    }
    result: dict[str, Any] = {"settings": dataclasses.asdict(settings)}
    for name, work in stages.items():
        file = out / f"{name}.json"
        if not file.is_file():
            log(name)
            write_json(file, work())
        result[name] = json.loads(file.read_text(encoding="utf-8"))
    result["tasks"] = len(result["before"]["sampled"]["per_task"])
    result["difference"] = {mode: _difference(result, mode) for mode in ("sampled", "greedy")}
    result["machine"] = (
        f"Learner and engine took turns, with one thread each ({platform.machine()}), no GPU; "
        f"Python {platform.python_version()}."
    )
    write_json(out / "result.json", result)
    return out / "result.json"


def _difference(result: dict[str, Any], mode: str) -> dict[str, Any]:
    """After minus before on the same tasks: the mean, and its 95 % interval (bootstrap over tasks)."""
    pairs = zip(result["after"][mode]["per_task"], result["before"][mode]["per_task"], strict=True)
    per_task = [after - before for after, before in pairs]
    return {"difference": sum(per_task) / len(per_task), "interval": list(bootstrap_interval(per_task))}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = study_parser("llm_learns", __doc__, seeds=False)
    parser.add_argument("--page", action="store_true", help="write the page in docs/studies from what is in the folder")
    add_settings(parser, LearnsSettings)
    given = parser.parse_args(argv)

    def run(log: Log) -> str:
        result = run_study(read_settings(given, LearnsSettings), given.out, log)
        return f"{write_page(result)}\n" if given.page else result.read_text(encoding="utf-8")

    return run_command(parser, run)


if __name__ == "__main__":
    sys.exit(main())
