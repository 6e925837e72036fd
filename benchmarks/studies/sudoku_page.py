"""The page of the sudoku study, generated from the report of a run of it.

    python -m benchmarks.studies.sudoku_page runs/at_grpo_sudoku

Writes ``docs/studies/at_grpo_sudoku.{json,md,png}``. Variants are runs of some arms with other settings.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies.study_page import (
    DOCS,
    arms_table,
    differences_table,
    publish,
    read_report,
    times,
    variants_table,
    where_clear,
)

__all__ = ["gather", "main", "page"]

NAME = "at_grpo_sudoku"
_MODES = ("greedy", "sampled")


def gather(folder: Path, variants: Sequence[Path], machine: str) -> dict[str, Any]:
    """Read all reports.

    Raises:
        ValueError: A folder holds no report.
    """
    return {
        "machine": machine,
        "comparison": read_report(folder, NAME),
        "variants": [read_report(one, NAME) for one in variants],
    }


def page(report: Mapping[str, Any]) -> str:
    """The documentation page."""
    comparison = report["comparison"]
    parts = [
        "# Study: AT-GRPO on sudoku",
        f"*Generated from `{NAME}.json` by `python -m benchmarks.studies.sudoku_page`.*",
        _CLAIM,
        _setting(comparison),
        _CHOSEN,
        f"## {comparison['settings']['tokens']:,} training tokens an arm",
        _summary(comparison),
        _verdict(comparison),
        arms_table(comparison),
        f"![Held-out success of the arms]({NAME}.png)",
        "Differences on the same puzzles: mean, 95 % interval over puzzles, and the difference in each seed.",
        differences_table(comparison),
        *where_clear(comparison),
        *_variants(comparison, report["variants"]),
        times(comparison),
        _LIMITS,
        _REPEAT,
        report["machine"],
    ]
    return "\n\n".join(parts).rstrip() + "\n"


_CLAIM = """## What the paper claims

AT-GRPO (arXiv 2510.11062) samples a tree: several candidates a turn, each scored by one step, the episode going on from
one of them. Candidates of one turn of one agent are a group. With Qwen3-1.7B it reports success on sudoku of 7 % for a
single agent, 29 % after GRPO on it, and 99 % for two agents after AT-GRPO; the coder of the two runs its code."""

_CHOSEN = """## How the settings were chosen

- Puzzles with 4 to 8 clues, the environment's own range, were tried first: taught by 8,000 of them, a model of this
  size solved none of 200 in a single turn, greedy or sampled. So there are more clues.
- The player fills in reading order: of one that fills in random order the same model learned less from 12,000 puzzles
  (3 of 200 greedy, against 26). It thinks of the rules at 90 % of the cells, and so solves about 55 % of the puzzles in
  a single turn itself.
- The learning rate is the one of two that raised sampled success more in a pilot of AT-GRPO with one policy (seed 99,
  200 puzzles, below), by less than its interval, and with less greedy success; it is the same for all arms, and no
  other arm was in the pilot.
- A run of 200,000 tokens an arm was given up before any arm that trains was evaluated, as the machine was too busy for
  it; this one, of half as many, then began anew. The number of held-out puzzles and that there are two turns and not
  four were set by the time that there was, too. All else is as in the study of plan-path."""

_LIMITS = """## What differs from the paper

- The model has a third of a million parameters and words of its own, and reads a grid as a list of its values
  (`benchmarks/studies/short_sudoku.py`). What it knows it was taught by imitation of a player who breaks the rules now
  and then: a part of what reinforcement does is to stop that.
- The proposer proposes fills that a checker of the rules judges, in the place of a coder whose Python runs. The checker
  does not know the solution; but a puzzle has one, so that it can say of a whole proposal whether it is right.
- There are 288 solved grids of 4×4, and they are the same in training and evaluation: the puzzles that are held out are
  other ones, not of another kind.
- Success is that of plain episodes on held-out puzzles. A tree's own path is chosen by reward among several candidates;
  its success is no policy's and appears nowhere here.
- There is one warm start, shared by all arms and seeds: seeds vary the training puzzles' order and all sampling."""

_OTHERS = "Runs with other settings, one seed each (those on 200 puzzles are the pilot):"

_REPEAT = f"""## Repeat it

<!-- no-run: takes half an hour -->
```console
$ python -m benchmarks.studies.{NAME} --out runs/{NAME}
$ python -m benchmarks.studies.{NAME} --out runs/{NAME}_long --seeds 1 --tokens 200000 \\
    --arms solo-grpo pair-grpo at-grpo-shared
$ python -m benchmarks.studies.sudoku_page runs/{NAME} --variants runs/{NAME}_long
```"""


def _setting(comparison: Mapping[str, Any]) -> str:
    settings = comparison["settings"]
    turns = settings["turns"]
    seeds = sorted({seed for arm in comparison["arms"].values() for seed in arm["seeds"]})
    return f"""## What was measured

Puzzles of 4×4 with {settings["min_clues"]} to {settings["max_clues"]} clues and one solution, in environments of few
words: a planner alone, and a pair of proposer and planner with a checker. `greedy/1` is held-out success with greedy
decoding in a single turn of the planner, `sampled/{turns}` that at temperature 1 within {turns}; in every turn of a
pair the proposer speaks first. {settings["eval_tasks"]:,} held-out puzzles, plain episodes; means over the seeds
{", ".join(map(str, seeds))} with 95 % intervals over puzzles (bootstrap), and the least and greatest seed in brackets.

A Llama of {settings["layers"]} layers and width {settings["hidden"]}. Its warm start is one pass over
{settings["demo_tasks"]:,} puzzles of each environment, of which a player demonstrates up to {settings["demo_turns"]}
turns: it fills the blank cells in reading order, {100 * settings["skill"]:.0f} % of them with any legal value and the
rest with any value, ends with the first illegal fill, and never looks ahead. One model is taught both environments and
starts all arms.

Training: K = {settings["candidates"]}; {settings["solo_tasks"]} puzzles an update for one agent and half as many for
two; up to {turns} turns of the planner; the tree goes on with the `{settings["choose"]}` candidate; Adam's rate
{settings["learning_rate"]:g}, with a warm-up of {settings["warmup_updates"]} updates and a linear fall to
{100 * settings["final_learning_rate"]:.0f} % of it; {settings["minibatches"]} steps an update; entropy bonus
{settings["entropy_coef"]:g}; groups without signal replaced up to {settings["refills"]} times. All arms that train
generate the same number of completion tokens, candidates of trees included."""


def _summary(comparison: Mapping[str, Any]) -> str:
    """The paper's three steps, in the ways of playing that they were measured in here."""
    arms, turns = comparison["arms"], comparison["settings"]["turns"]
    modes = " | ".join(f"`{mode}/{turns}`" for mode in _MODES)
    lines = [f"| | paper | {modes} |", "|---|---|---|---|"]
    for label, paper, name in (
        ("single agent", 7, "solo"),
        ("single agent, GRPO", 29, "solo-grpo"),
        ("two agents, AT-GRPO, one policy", 99, "at-grpo-shared"),
        ("two agents, no training", None, "pair"),
        ("two agents, GRPO over episodes", None, "pair-grpo"),
    ):
        if name in arms:
            found = [f"{100 * arms[name]['evaluation'][f'{mode}/{turns}']['success']:.0f} %" for mode in _MODES]
            lines.append(f"| {label} | {'–' if paper is None else f'{paper} %'} | {' | '.join(found)} |")
    return "Beside the paper's numbers, which are another model's on its own puzzles:\n\n" + "\n".join(lines)


def _verdict(comparison: Mapping[str, Any]) -> str:
    """Whether the paper's steps are found: in the mean with its interval, and in every seed."""
    mode = f"sampled/{comparison['settings']['turns']}"
    rows = {(row["arm"], row["against"]): row["evaluation"][mode] for row in comparison["differences"]}
    lines = []
    for label, pair in (
        ("GRPO raises the single agent", ("solo-grpo", "solo")),
        ("two agents with AT-GRPO are ahead of the single agent with GRPO", ("at-grpo-shared", "solo-grpo")),
        ("AT-GRPO is ahead of GRPO over whole episodes", ("at-grpo-shared", "pair-grpo")),
        ("one policy a role is ahead of one policy", ("at-grpo-roles", "at-grpo-shared")),
        ("two agents are ahead of one before any training", ("pair", "solo")),
    ):
        if pair in rows:
            gap = rows[pair]
            signed = [gap["interval"][0], *gap["seeds"]], [-gap["interval"][1], *(-seed for seed in gap["seeds"])]
            found = "yes" if min(signed[0]) > 0 else "the reverse" if min(signed[1]) > 0 else "not found"
            low, high = gap["interval"]
            lines.append(f"- {label}: **{found}** ({gap['difference']:+.3f} [{low:+.3f}, {high:+.3f}]).")
    return (
        f"In `{mode}`, where a yes wants the interval and every seed on one side of 0 (the interval is over puzzles "
        "and does not know how much seeds differ):\n\n" + "\n".join(lines)
    )


def _variants(comparison: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> list[str]:
    if not variants:
        return []
    return [_OTHERS, variants_table(comparison, variants)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.sudoku_page", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the study")
    parser.add_argument("--variants", type=Path, nargs="*", default=[], help="folders of arms with other settings")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write (default: docs/studies)")
    parser.add_argument("--machine", default="", help="a sentence on the machine, for the page")
    given = parser.parse_args(argv)
    try:
        report = gather(given.folder, given.variants, given.machine)
    except ValueError as problem:
        sys.stderr.write(f"{parser.prog}: {problem}\n")
        return 2
    publish(given.docs, NAME, report, page(report), given.folder / "report.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
