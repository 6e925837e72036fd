"""Study: does AT-GRPO's gain on sudoku appear at a size that a laptop holds?

AT-GRPO (arXiv 2510.11062, table 1, Qwen3-1.7B) reports sudoku success of 7 % for a single agent, 29 % after
single-agent GRPO, and 99 % after AT-GRPO. Here a model of a third of a million parameters, with words of its own, goes
through the same comparison on 4×4 puzzles. Its warm start imitates a player who fills cells in any order with values
that are legal most of the time, and who never looks ahead: what reinforcement may add is to slip less, and to choose.

**It is another model, another size and other texts** (:mod:`benchmarks.studies.short_sudoku`): the proposer proposes
fills and a checker of the rules judges them, in the place of a coder whose Python runs in a sandbox. What carries over
is the question, not the numbers.

Arms (:data:`benchmarks.studies.sudoku_arms.ARMS`): a single agent and a pair, each with the warm start alone; a single
agent with GRPO; the pair with GRPO over whole episodes, with AT-GRPO and one policy, and with AT-GRPO and one policy a
role. Arms that train generate the same number of completion tokens, candidates of trees included. Success is that of
plain episodes on held-out puzzles: of a tree, whose path is chosen by reward, none is ever taken.

    python -m benchmarks.studies.at_grpo_sudoku --out runs/at_grpo_sudoku

The run can be stopped and started again: what is done is kept, a training run goes on from its newest checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.short_sudoku import PAIR, SOLO, register, vocabulary
from benchmarks.studies.study_cli import Log, add_choice, add_settings, read_settings, run_command, study_parser
from benchmarks.studies.study_folder import same_study
from benchmarks.studies.study_report import write_report
from benchmarks.studies.study_training import run_arm
from benchmarks.studies.sudoku_arms import ARMS, COMPARISONS, SudokuSettings
from benchmarks.studies.sudoku_filler import FillerPolicy
from benchmarks.studies.warm_start import imitate, random_model

__all__ = ["main", "run_study"]

TOKENIZER_TASKS = 40


def run_study(
    settings: SudokuSettings, out: Path, seeds: Sequence[int], arms: Sequence[str], log: Log = lambda line: None
) -> Path:
    """Run what is missing of the study, and write its report.

    Args:
        settings: What is the same in all arms.
        out: The folder.
        seeds: Seeds of training and sampling. There is one warm start, so the arms of all seeds begin alike.
        arms: Names of :data:`benchmarks.studies.sudoku_arms.ARMS`.
        log: Is told what happens.

    Returns:
        The report, ``report.json``; tables and plots are beside it.

    Raises:
        ValueError: The folder holds a study of other settings.
    """
    register()
    same_study(settings, out)
    kwargs = {env: settings.env_kwargs(env, settings.turns) for env in (SOLO, PAIR)}
    base = random_model(
        out / "models" / "random",
        kwargs,
        tasks=TOKENIZER_TASKS,
        hidden=settings.hidden,
        layers=settings.layers,
        init_std=settings.init_std,
        words=vocabulary(4),
    )
    warm = imitate(
        {env: settings.env_kwargs(env, settings.demo_turns) for env in (SOLO, PAIR)},
        FillerPolicy(settings.skill),
        tasks=settings.demo_tasks,
        learning_rate=settings.sft_learning_rate,
        batch=settings.sft_batch,
        before=base,
        folder=out / "models" / "warm",
        log=log,
    )
    models = {f"{env} warm": warm for env in (SOLO, PAIR)}
    for seed in seeds:
        for name in arms:
            run_arm(name, ARMS[name], settings, models, out / f"seed{seed}" / name, seed, log)
    return write_report(out, settings, ARMS, COMPARISONS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = study_parser("at_grpo_sudoku", __doc__)
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: 0)")
    add_choice(parser, "--arms", ARMS)
    add_settings(parser, SudokuSettings)
    given = parser.parse_args(argv)

    def run(log: Log) -> str:
        settings = read_settings(given, SudokuSettings)
        report = run_study(
            settings, given.out, range(given.first_seed, given.first_seed + given.seeds), given.arms, log
        )
        return report.with_suffix(".md").read_text(encoding="utf-8")

    return run_command(parser, run)


if __name__ == "__main__":
    sys.exit(main())
