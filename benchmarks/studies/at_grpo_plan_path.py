"""Study: does AT-GRPO's gain on plan-path appear at a size that a laptop holds?

AT-GRPO (arXiv 2510.11062, table 1, Qwen3-1.7B) reports plan-path success of 5 % for a single agent, 11 % after
single-agent GRPO, and 96 % and 97 % after AT-GRPO with one policy and with one a role. Here a model of a third of a
million parameters, with words of its own, goes through the same comparison. Its warm start has two halves: it imitates
a walker that finds a shortest way more often than not, and then one that slips at every other step. So it knows more
than it does, as a large model before reinforcement, and what it was before the slips is reported beside the arms.

**It is another model, another size and other texts** (:mod:`benchmarks.studies.short_plan_path`): the scout proposes
cells and a simulator plays them, in the place of a coder whose Python runs in a sandbox. What carries over is the
question, not the numbers.

Arms (:data:`benchmarks.studies.arms.ARMS`): a single agent and a pair, each with the warm start alone; a single agent
with GRPO; the pair with GRPO over whole episodes, with AT-GRPO and one policy, and with AT-GRPO and one policy a role.
Arms that train generate the same number of completion tokens, candidates of trees included. Success is that of plain
episodes on held-out tasks: of a tree, whose path is chosen by reward, none is ever taken.

    python -m benchmarks.studies.at_grpo_plan_path --grid-size 5 --seeds 3 --tokens 500000 --out runs/at_grpo_plan_path

The run can be stopped and started again: what is done is kept, a training run goes on from its newest checkpoint.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import llm_envs
from benchmarks.studies.arms import ARMS, Arm, StudySettings, train_config
from benchmarks.studies.held_out import evaluate
from benchmarks.studies.short_plan_path import PAIR, SOLO, register
from benchmarks.studies.study_folder import same_study, write_json
from benchmarks.studies.study_report import write_report
from benchmarks.studies.walkers import WalkerPolicy
from trainers.env_texts import env_texts
from trainers.models import build_tiny_model
from trainers.policies.base import Sampling
from trainers.quiet import quieten_libraries
from trainers.rollout.episodes import collect, make_jobs
from trainers.run_folder import CONFIG_FILE
from trainers.sft import SFTConfig, sft
from trainers.team import Team
from trainers.tracking import read_metrics
from trainers.trainer import Progress, Trainer

__all__ = ["main", "run_study"]

EARLY = "early"
TOKENIZER_TASKS = 400
Log = Callable[[str], None]


def run_study(
    settings: StudySettings, out: Path, seeds: Sequence[int], arms: Sequence[str], log: Log = lambda line: None
) -> Path:
    """Run what is missing of the study, and write its report.

    Args:
        settings: What is the same in all arms.
        out: The folder.
        seeds: Seeds of training and sampling. There is one warm start, so the arms of all seeds begin alike.
        arms: Names of :data:`benchmarks.studies.arms.ARMS`.
        log: Is told what happens.

    Returns:
        The report, ``report.json``; tables and plots are beside it.

    Raises:
        ValueError: The folder holds a study of other settings.
    """
    register()
    same_study(settings, out)
    models = _warm_start(settings, out, log)
    for seed in seeds:
        for name in arms:
            _run_arm(name, settings, models, out / f"seed{seed}" / name, seed, log)
    return write_report(out, settings)


def _run_arm(name: str, settings: StudySettings, models: dict[str, Path], folder: Path, seed: int, log: Log) -> None:
    """Train an arm, if it trains, and evaluate it; nothing if that is done."""
    done = folder / "result.json"
    if done.is_file():
        log(f"seed {seed}, {name}: done before")
        return
    arm = ARMS[name]
    folder.mkdir(parents=True, exist_ok=True)
    started = dict.fromkeys(("scout", "planner") if arm.per_role else ("*",), models[f"{arm.env} {arm.stage}"])
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


def _evaluate(arm: Arm, settings: StudySettings, players: dict[str, Path], seed: int, log: Log) -> dict[str, Any]:
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
    arm: Arm, settings: StudySettings, models: dict[str, Path], folder: Path, seed: int, log: Log
) -> dict[str, float]:
    """Train through the ordinary trainer; the learning rate follows the tokens spent.

    Models as they were at ``early_tokens`` go to the folder :data:`EARLY` of the run.
    """
    config = train_config(arm, settings, models, seed)

    def progress(done: Progress) -> None:
        if 0 < settings.early_tokens <= trainer.tokens and not (folder / EARLY).is_dir():
            _save_models(trainer, models, folder / EARLY)
        share = min(1.0, trainer.tokens / settings.tokens)
        rate = settings.learning_rate * (1 - (1 - settings.final_learning_rate) * share)
        rate *= min(1.0, (done.update + 1) / (settings.warmup_updates + 1))
        for member in trainer.members.values():
            if member.learner is not None:
                member.learner.config = dataclasses.replace(member.learner.config, lr=rate)
        if done.update % 10 == 0:
            success = next((done.metrics[n] for n in ("train/success", "train/path_success") if n in done.metrics), 0.0)
            kind = "path success" if "train/path_success" in done.metrics else "success"
            log(f"update {done.update}, {trainer.tokens} tokens, {kind} of the batch {success:.3f}")

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


def _warm_start(settings: StudySettings, out: Path, log: Log) -> dict[str, Path]:
    """The models that the arms start from: one for the single agent, one for the pair, its roles learned together.

    Returns:
        Folders by environment and stage, as ``<environment> <stage>``.
    """
    base = out / "models" / "random"
    if not (base / "config.json").is_file():
        texts = [
            text
            for env in (SOLO, PAIR)
            for text in env_texts(env, tasks=TOKENIZER_TASKS, **settings.env_kwargs(env, settings.turns))
        ]
        build_tiny_model(base, texts=texts, hidden_size=settings.hidden, layers=settings.layers, max_length=512)
    models: dict[str, Path] = {}
    good, bad = WalkerPolicy(settings.skill, 0.0), WalkerPolicy(settings.slip_skill, settings.slip_noise)
    for env in (SOLO, PAIR):
        before = base
        for stage, walker, count, turns, rate in (
            ("sighted", good, settings.demo_tasks, settings.demo_turns, settings.sft_learning_rate),
            ("slipping", bad, settings.slip_tasks, settings.turns, settings.slip_learning_rate),
        ):
            folder = models[f"{env} {stage}"] = out / "models" / f"{env}-{stage}"
            if not (folder / "sft.json").is_file():
                shutil.rmtree(folder, ignore_errors=True)  # what an interrupted warm start has left
                file = out / "demonstrations" / f"{env}-{stage}.jsonl"
                clock = time.perf_counter()
                _demonstrate(env, settings.env_kwargs(env, turns), walker, count, file)
                found = sft(
                    SFTConfig(
                        [file],
                        before,
                        folder,
                        all_episodes=True,
                        epochs=1,
                        learning_rate=rate,
                        batch=64,
                        micro_batch_tokens=16384,
                        threads=1,
                    )
                )
                log(
                    f"warm start {env}, {stage}: {found.turns} turns, held-out loss {found.held_out_loss:.3f} nats a "
                    f"token, {time.perf_counter() - clock:.0f} s"
                )
            before = folder
    return models


def _demonstrate(env_id: str, kwargs: dict[str, Any], walker: WalkerPolicy, count: int, file: Path) -> None:
    """Let a walker play the last ``count`` tasks of the training split, and write its episodes down."""
    if file.is_file():
        return
    env: Any = llm_envs.make(env_id, split="train", order_enforcing=False, **kwargs).unwrapped
    tasks = range(len(env.tasks) - count, len(env.tasks))
    episodes = asyncio.run(collect(env.fork, Team.single(walker), make_jobs(tasks, 1, 0), concurrency=16))
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".partial")
    with unfinished.open("w", encoding="utf-8") as sink:
        sink.writelines(episode.to_json(tokens=False, timings=False) + "\n" for episode in episodes)
    unfinished.replace(file)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.at_grpo_plan_path",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("runs/at_grpo_plan_path"), help="folder of the study")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument(
        "--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM", help=", ".join(ARMS)
    )
    for field in dataclasses.fields(StudySettings):
        flag = "--" + field.name.replace("_", "-")
        if field.type == "bool":
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=field.default)
        else:
            kind = {"int": int, "float": float}.get(str(field.type), str)
            parser.add_argument(flag, type=kind, default=field.default, help=f"default: {field.default}")
    given = vars(parser.parse_args(argv))
    settings = StudySettings(**{field.name: given[field.name] for field in dataclasses.fields(StudySettings)})
    quieten_libraries()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    start = time.monotonic()

    def log(line: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - start:7.0f} s] {line}\n")
        sys.stdout.flush()

    seeds = range(given["first_seed"], given["first_seed"] + given["seeds"])
    try:
        report = run_study(settings, given["out"], seeds, given["arms"], log)
    except ValueError as problem:
        sys.stderr.write(f"{parser.prog}: {problem}\n")
        return 2
    sys.stdout.write(report.with_suffix(".md").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
