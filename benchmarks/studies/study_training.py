"""Running a study of arms: each is trained from the warm start within the token budget, and evaluated held out."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.studies.held_out import evaluate
from benchmarks.studies.study_arms import Arm, TreeSettings, train_config
from benchmarks.studies.study_cli import Log
from benchmarks.studies.study_folder import write_json
from trainers.policies.base import Sampling
from trainers.run_folder import CONFIG_FILE
from trainers.tracking import read_metrics
from trainers.trainer import Progress, Trainer

__all__ = ["run_arm"]

EARLY = "early"


def run_arm(
    name: str, arm: Arm, settings: TreeSettings, models: Mapping[str, Path], folder: Path, seed: int, log: Log
) -> None:
    """Train an arm, if it trains, and evaluate it; nothing if that is done. Writes ``result.json`` into its folder.

    Args:
        name: Of the arm.
        arm: The arm.
        settings: What is the same in all arms.
        models: The warm start, by environment and stage, as ``<environment> <stage>``.
        folder: Of this arm and seed. A training run that was interrupted goes on from its newest checkpoint.
        seed: Of the training tasks' order and all sampling.
        log: Is told what happens.
    """
    done = folder / "result.json"
    if done.is_file():
        log(f"seed {seed}, {name}: done before")
        return
    folder.mkdir(parents=True, exist_ok=True)
    started = dict.fromkeys(arm.players(), models[f"{arm.env} {arm.stage}"])
    result: dict[str, Any] = {"arm": name, "label": arm.label, "seed": seed, "training": {}, "evaluation": {}}

    def say(line: str) -> None:
        log(f"seed {seed}, {name}: {line}")

    clock = time.perf_counter()
    playing = {"evaluation": started}
    if arm.preset is not None:
        result["training"] = _train(arm, settings, started, folder / "train", seed, say)
        playing = {
            key: {role: folder / "train" / models_folder / role.replace("*", "all") for role in started}
            for key, models_folder in (("evaluation", "models"), ("early", EARLY))
            if (folder / "train" / models_folder).is_dir()
        }
    trained_s = time.perf_counter() - clock
    for key, players in playing.items():
        result[key] = _evaluate(arm, settings, players, seed, say if key == "evaluation" else partial(_early, say))
    result["seconds"] = {"training": trained_s, "evaluation": time.perf_counter() - clock - trained_s}
    write_json(done, result)


def _early(log: Log, line: str) -> None:
    log(f"early: {line}")


def _evaluate(arm: Arm, settings: TreeSettings, players: dict[str, Path], seed: int, log: Log) -> dict[str, Any]:
    """Held-out success, greedy and sampled, in a single turn and within several."""
    result = {}
    for turns in sorted({1, settings.turns}):
        for mode, temperature in (("greedy", 0.0), ("sampled", 1.0)):
            found = asyncio.run(
                evaluate(
                    arm.env,
                    settings.env_kwargs(arm.env, turns),
                    players,
                    Sampling(temperature=temperature, max_tokens=settings.max_tokens),
                    tasks=settings.eval_tasks,
                    seed=seed,
                )
            )
            result[f"{mode}/{turns}"] = found
            low, high = found["interval"]
            log(f"{mode}, {turns} turns: {found['success']:.3f} [{low:.3f}, {high:.3f}]")
    return result


def _train(
    arm: Arm, settings: TreeSettings, models: dict[str, Path], folder: Path, seed: int, log: Log
) -> dict[str, float]:
    """Train through the ordinary trainer; the learning rate follows the tokens spent.

    Models as they were at ``early_tokens`` go to the folder :data:`EARLY` of the run.
    """
    from trainers.learner import Learner

    config = train_config(arm, settings, models, seed)

    def progress(done: Progress) -> None:
        if 0 < settings.early_tokens <= trainer.tokens and not (folder / EARLY).is_dir():
            _save_models(trainer, models, folder / EARLY)
        share = min(1.0, trainer.tokens / settings.tokens)
        rate = settings.learning_rate * (1 - (1 - settings.final_learning_rate) * share)
        rate *= min(1.0, (done.update + 1) / (settings.warmup_updates + 1))
        for member in trainer.members.values():
            if not isinstance(member.learner, Learner):
                raise RuntimeError(f"a study sets the rate of learners in its own process, got {member.learner!r}")
            member.learner.config = dataclasses.replace(member.learner.config, lr=rate)
        for name, kind in (("train/success", "success"), ("train/path_success", "path success")):
            if done.update % 10 == 0 and name in done.metrics:
                found = f"{kind} of the batch {done.metrics[name]:.3f}"
                log(f"update {done.update}, {trainer.tokens} tokens, {found}")

    trainer = Trainer(config, folder, resume=(folder / CONFIG_FILE).is_file(), on_progress=progress)
    asyncio.run(trainer.run())
    rows = read_metrics(folder)
    return {
        "updates": float(trainer.update),
        "tokens": float(trainer.tokens),
        "seconds": sum(row.get("time/total_s", 0.0) for row in rows),
        "rollout_seconds": sum(row.get("time/rollout_s", 0.0) for row in rows),
    }


def _save_models(trainer: Trainer, started: dict[str, Path], folder: Path) -> None:
    """Write what the learners hold, with the tokenizers of the models they started from; all of it or nothing."""
    unfinished = folder.with_suffix(".partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    for role, source in started.items():
        name = role.replace("*", "all")
        learner = trainer.members[name].learner
        if learner is None:
            raise RuntimeError(f"policy {name!r} has no learner, but all policies of an arm are trained")
        learner.save_pretrained(unfinished / name)
        for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            shutil.copy(source / file, unfinished / name / file)
    unfinished.replace(folder)
