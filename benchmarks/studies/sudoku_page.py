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
        _setting(comparison["settings"]),
        _CHOSEN,
        f"## {comparison['settings']['tokens']:,} training tokens an arm",
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

_CHOSEN = ""

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

_REPEAT = f"""## Repeat it

<!-- no-run: takes half an hour -->
```console
$ python -m benchmarks.studies.{NAME} --out runs/{NAME}
$ python -m benchmarks.studies.sudoku_page runs/{NAME}
```"""


def _setting(settings: Mapping[str, Any]) -> str:
    turns = settings["turns"]
    return f"""## What was measured

Puzzles of 4×4 with {settings["min_clues"]} to {settings["max_clues"]} clues and one solution, in environments of few
words: a planner alone, and a pair of proposer and planner with a checker. `greedy/1` is held-out success with greedy
decoding in a single turn of the planner, `sampled/{turns}` that at temperature 1 within {turns}; in every turn of a
pair the proposer speaks first. {settings["eval_tasks"]:,} held-out puzzles, plain episodes; means over seeds with 95 %
intervals over puzzles (bootstrap), and the least and greatest seed in brackets.

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


def _variants(comparison: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> list[str]:
    if not variants:
        return []
    return ["With other settings, one seed:", variants_table(comparison, variants)]


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
