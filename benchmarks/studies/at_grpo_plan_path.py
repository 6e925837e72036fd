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

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.studies.arms import ARMS, COMPARISONS, StudySettings
from benchmarks.studies.short_plan_path import PAIR, SOLO, register
from benchmarks.studies.study_cli import Log, add_choice, add_settings, read_settings, run_command, study_parser
from benchmarks.studies.study_folder import same_study
from benchmarks.studies.study_report import write_report
from benchmarks.studies.study_training import run_arm
from benchmarks.studies.walkers import WalkerPolicy
from benchmarks.studies.warm_start import imitate, random_model

__all__ = ["main", "run_study"]

TOKENIZER_TASKS = 400


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
    models = _warm_start(settings, {ARMS[name].env: None for name in arms}, out, log)
    for seed in seeds:
        for name in arms:
            run_arm(name, ARMS[name], settings, models, out / f"seed{seed}" / name, seed, log)
    return write_report(out, settings, ARMS, COMPARISONS)


def _warm_start(settings: StudySettings, envs: Iterable[str], out: Path, log: Log) -> dict[str, Path]:
    """The models that arms start from: one for the single agent, one for the pair, its roles learned together.

    Both read the same words, whichever of the environments are asked for.

    Returns:
        Folders by environment and stage, as ``<environment> <stage>``.
    """
    base = random_model(
        out / "models" / "random",
        {env: settings.env_kwargs(env, settings.turns) for env in (SOLO, PAIR)},
        tasks=TOKENIZER_TASKS,
        hidden=settings.hidden,
        layers=settings.layers,
        max_length=settings.max_length,
    )
    models: dict[str, Path] = {}
    good, bad = WalkerPolicy(settings.skill, 0.0), WalkerPolicy(settings.slip_skill, settings.slip_noise)
    for env in envs:
        before = base
        for stage, walker, count, turns, rate in (
            ("sighted", good, settings.demo_tasks, settings.demo_turns, settings.sft_learning_rate),
            ("slipping", bad, settings.slip_tasks, settings.turns, settings.slip_learning_rate),
        ):
            before = models[f"{env} {stage}"] = imitate(
                {env: settings.env_kwargs(env, turns)},
                walker,
                tasks=count,
                learning_rate=rate,
                before=before,
                folder=out / "models" / f"{env}-{stage}",
                log=log,
            )
    return models


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = study_parser("at_grpo_plan_path", __doc__)
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: 0)")
    add_choice(parser, "--arms", ARMS)
    add_settings(parser, StudySettings)
    given = parser.parse_args(argv)
    seeds = range(given.first_seed, given.first_seed + given.seeds)

    def run(log: Log) -> str:
        report = run_study(read_settings(given, StudySettings), given.out, seeds, given.arms, log)
        return report.with_suffix(".md").read_text(encoding="utf-8")

    return run_command(parser, run)


if __name__ == "__main__":
    sys.exit(main())
