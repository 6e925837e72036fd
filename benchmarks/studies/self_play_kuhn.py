"""Study: does self-play with role-conditioned advantages come near an equilibrium of Kuhn poker?

SPIRAL (arXiv 2506.24119) trains one language model on both seats of zero-sum games with a moving average of each seat's
return as its baseline (the preset ``rae``). Here a model of about 0.1 million parameters plays Kuhn poker, whose
equilibrium is known, in the texts of ``kuhn-poker`` and through the ordinary trainer. It starts from a warm start that
can read its card and moves at random (:mod:`trainers.scripts.tiny_kuhn_player`).

Arms: ``rae`` with AdamW as usual; with a KL term that pulls towards the warm start (an entropy bonus on legal moves);
without momentum; and with both changes.

After every update the model's exact probability of each move at the twelve decisions gives its exploitability
(OpenSpiel's) and its value against the equilibrium. Both are reported for the last iterate and for the average of the
iterates of the second half; no iterate is chosen by its result.

    python -m benchmarks.studies.self_play_kuhn --out runs/self_play_kuhn
    python -m benchmarks.studies.self_play_kuhn --out runs/self_play_kuhn --page      (writes docs/studies too)

The study can be stopped and started again: a run that is done is kept.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import llm_envs
from benchmarks.studies.kuhn_strategies import average, exploitability, value_against_equilibrium
from benchmarks.studies.self_play_kuhn_report import gather, page, plot, table
from benchmarks.studies.study_cli import Log, add_choice, add_settings, read_settings, run_command, study_parser
from benchmarks.studies.study_folder import same_study, write_json
from trainers.config import TrainConfig, load_config
from trainers.scripts.tiny_kuhn_player import MAX_TOKENS, decisions, read_strategy, warm_start
from trainers.tracking import read_metrics
from trainers.trainer import Progress, Trainer

__all__ = ["ARMS", "StudySettings", "main", "run_study", "train_config"]

DOCS = Path(__file__).parents[2] / "docs" / "studies"


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """What differs between the runs of a seed.

    Attributes:
        label: What tables call it.
        kl: Whether the KL term pulls towards the warm start.
        momentum: Whether AdamW's first moment remembers earlier gradients (with its usual 0.9).
    """

    label: str
    kl: bool
    momentum: bool


ARMS: Mapping[str, Arm] = {
    "rae": Arm("rae", kl=False, momentum=True),
    "rae-kl": Arm("rae, KL", kl=True, momentum=True),
    "rae-still": Arm("rae, no momentum", kl=False, momentum=False),
    "rae-kl-still": Arm("rae, KL, no momentum", kl=True, momentum=False),
}


@dataclasses.dataclass(frozen=True, slots=True)
class StudySettings:
    """What is the same in all runs. Everything here is part of a result's identity.

    Attributes:
        updates: Weight updates of a run.
        games: Hands an update.
        learning_rate: AdamW's, after the warm-up; it falls to 0 linearly.
        warmup_updates: Updates in which it rises.
        kl: Weight of the KL term in the arms that have one.
        second_moment: Decay of AdamW's second moment.
        hidden: Width of the model.
        layers: Its layers.
        hands: Hands of the beginner that the warm start imitates.
        epochs: Passes over them.
        eval_hands: Hands against the equilibrium in each seat, played before the first and after the last update.
    """

    updates: int = 60
    games: int = 512
    learning_rate: float = 1e-3
    warmup_updates: int = 5
    kl: float = 0.1
    second_moment: float = 0.99
    hidden: int = 64
    layers: int = 2
    hands: int = 1000
    epochs: int = 5
    eval_hands: int = 500


def train_config(arm: str, settings: StudySettings, model: Path, seed: int) -> TrainConfig:
    """The training run of an arm."""
    kl = {"kl_coef": settings.kl, "kl_estimator": "k2"} if ARMS[arm].kl else {}
    return load_config(
        {
            "env": {"id": "kuhn-poker", "split": None, "kwargs": {"task_options": {"size": 100_000}}},
            "algorithm": {"preset": "rae", "loss": {"norm_length": 1, **kl}},
            "policies": {
                "player": {
                    "model": str(model),
                    "backend": "hf",
                    "learning_rate": settings.learning_rate,
                    "schedule": "linear",
                    "betas": [0.9 if ARMS[arm].momentum else 0.0, settings.second_moment],
                    "warmup_updates": settings.warmup_updates,
                    "micro_batch_tokens": 16384,
                    "sampling": {"temperature": 1.0, "max_tokens": MAX_TOKENS},
                }
            },
            "updates": settings.updates,
            "tasks_per_update": settings.games,
            "samples_per_task": 1,
            "concurrency": settings.games,
            "seed": seed,
            "verify_every": settings.updates,
            "threads": 1,
            "checkpoint": {"every": settings.updates, "keep": 1},
            "evaluation": {"every": settings.updates, "tasks": settings.eval_hands, "opponent": "oracle"},
        }
    )


def run_study(
    settings: StudySettings, out: Path, seeds: Sequence[int], arms: Sequence[str], log: Log = lambda line: None
) -> dict[str, Any]:
    """Run what is missing of the study, and put its runs together.

    Args:
        settings: What is the same in all runs.
        out: The folder.
        seeds: Seeds of weights, warm start, deals and every draw.
        arms: Names of :data:`ARMS`.
        log: Is told what happens.

    Returns:
        What is also written to ``self_play_kuhn.json``; its table and plot are beside it.

    Raises:
        ValueError: The folder holds a study of other settings.
    """
    same_study(settings, out)
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in arms}
    warm_s = []
    for seed in seeds:
        warm, seconds = _warm_start(settings, out / f"seed{seed}", seed, log)
        warm_s.append(seconds)
        for arm in arms:
            runs[arm].append(_run(arm, settings, warm, out / f"seed{seed}" / arm, seed, log))
    report = gather(dataclasses.asdict(settings), {ARMS[arm].label: found for arm, found in runs.items()}, warm_s)
    write_json(out / "self_play_kuhn.json", report)
    (out / "self_play_kuhn.md").write_text(table(report), encoding="utf-8")
    plot(report, out / "self_play_kuhn.png")
    return report


def _warm_start(settings: StudySettings, folder: Path, seed: int, log: Log) -> tuple[Path, float]:
    """The model that the arms of a seed start from, and the processor time that it took."""
    note = folder / "warm.json"
    if not note.is_file():
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted warm start has left
        folder.mkdir(parents=True)
        clock = time.process_time()
        shape = {"hidden": settings.hidden, "layers": settings.layers}
        asyncio.run(warm_start(folder, seed, hands=settings.hands, epochs=settings.epochs, **shape))
        write_json(note, {"seconds": time.process_time() - clock})
        log(f"seed {seed}: warm start")
    return folder / "warm", float(json.loads(note.read_text(encoding="utf-8"))["seconds"])


def _run(arm: str, settings: StudySettings, warm: Path, folder: Path, seed: int, log: Log) -> dict[str, Any]:
    """Train an arm from one seed, and follow its strategy; what was done before is read."""
    done = folder.with_suffix(".json")
    if done.is_file():
        log(f"seed {seed}, {arm}: done before")
        found: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        return found
    shutil.rmtree(folder, ignore_errors=True)
    prompts = decisions(llm_envs.make("kuhn-poker").unwrapped)
    strategies: list[dict[tuple[int, str], float]] = []
    curve: list[dict[str, float]] = []

    def progress(step: Progress) -> None:
        player: Any = trainer.members["player"]
        strategy, unusable = read_strategy(player.learner.model, player.policy.tokenizer, prompts)
        strategies.append(strategy)
        curve.append(
            {
                "update": step.update,
                "exploitability": exploitability(strategy),
                "value": value_against_equilibrium(strategy),
                "unusable": unusable,
            }
        )
        if step.update % 10 == 0:
            last = curve[-1]
            log(
                f"seed {seed}, {arm}: update {step.update}, exploitability {last['exploitability']:.3f}, "
                f"against the equilibrium {last['value']:+.3f}, unusable {last['unusable']:.4f}"
            )

    clock = time.process_time()
    trainer = Trainer(train_config(arm, settings, warm, seed), folder, on_progress=progress)
    asyncio.run(trainer.run())
    mean = average(strategies[len(strategies) // 2 :])
    rows = read_metrics(folder)
    result = {
        "seed": seed,
        "seconds": time.process_time() - clock,
        "curve": curve,
        "start": curve[0],
        "last": curve[-1],
        "average": {"exploitability": exploitability(mean), "value": value_against_equilibrium(mean)},
        "strategy": {f"{card}{line}": chance for (card, line), chance in strategies[-1].items()},
        # Rewards are chips over 2.
        "played": [2 * row["eval/return"] for row in rows if row.get("eval/return") is not None],
    }
    write_json(done, result)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = study_parser("self_play_kuhn", __doc__)
    add_choice(parser, "--arms", ARMS)
    parser.add_argument("--page", action="store_true", help="write the documentation page, its data and its plot too")
    add_settings(parser, StudySettings)
    given = parser.parse_args(argv)

    def run(log: Log) -> str:
        report = run_study(read_settings(given, StudySettings), given.out, range(given.seeds), given.arms, log)
        if given.page:
            DOCS.mkdir(parents=True, exist_ok=True)
            write_json(DOCS / "self_play_kuhn.json", report)
            shutil.copyfile(given.out / "self_play_kuhn.png", DOCS / "self_play_kuhn.png")
            (DOCS / "self_play_kuhn.md").write_text(page(report), encoding="utf-8")
        return table(report)

    return run_command(parser, run)


if __name__ == "__main__":
    sys.exit(main())
