"""The page of the plan-path study, generated from the reports of two runs of it.

    python -m benchmarks.studies.plan_path_page runs/at_grpo_plan_path runs/at_grpo_plan_path_long --variants runs/other

The first folder compares all arms after few tokens, the second says how far the arms in it come with many, the variants
are the first one with some arms and other settings, and ``--larger`` are runs on larger maps. Writes
``docs/studies/at_grpo_plan_path.{json,md,png}``.
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
    success_cell,
    times,
    variants_table,
    where_clear,
)

__all__ = ["gather", "main", "page"]

NAME = "at_grpo_plan_path"


def gather(
    comparison: Path, reach: Path, variants: Sequence[Path], machine: str, larger: Sequence[Path] = ()
) -> dict[str, Any]:
    """Read all reports.

    Raises:
        ValueError: A folder holds no report.
    """
    return {
        "machine": machine,
        "comparison": read_report(comparison, NAME),
        "reach": read_report(reach, NAME),
        "variants": [read_report(folder, NAME) for folder in variants],
        "larger": [read_report(folder, NAME) for folder in larger],
    }


def page(report: Mapping[str, Any]) -> str:
    """The documentation page."""
    comparison, reach = report["comparison"], report["reach"]
    parts = [
        "# Study: AT-GRPO on plan-path",
        f"*Generated from `{NAME}.json` by `python -m benchmarks.studies.plan_path_page`.*",
        _CLAIM,
        _in_short(report),
        _setting(comparison["settings"]),
        f"## {comparison['settings']['tokens']:,} training tokens an arm",
        arms_table(comparison),
        f"![Held-out success of the arms]({NAME}.png)",
        "Differences on the same tasks: mean, 95 % interval over tasks, and the difference in each seed.",
        differences_table(comparison),
        *where_clear(comparison),
        *_variants(comparison, report["variants"]),
        f"## {reach['settings']['tokens']:,} training tokens",
        _changed(comparison["settings"], reach["settings"]),
        arms_table(reach),
        times(reach),
        *([_LARGER] if report.get("larger") else []),
        *(part for found in report.get("larger", ()) for part in _larger(comparison["settings"], found)),
        _DIFFERENCES,
        _repeat(report),
    ]
    return "\n\n".join(parts) + "\n"


_CLAIM = """## What the paper claims

AT-GRPO (arXiv 2510.11062) samples a tree: several candidates a turn, each scored by one step, the episode going on from
one of them. Candidates of one turn of one agent are a group. With Qwen3-1.7B it reports success on plan-path of 5 % for
a single agent, 11 % after GRPO on it, and 96 % (one policy) and 97 % (one a role) for two agents after AT-GRPO; the
coder of the two runs its code."""

_LARGER = """## Larger maps

Each run has a warm start of its own, and one seed. How far training comes depends on what the warm start has taught:
see the rows before the slips. Early in training plans become short, since what follows an illegal move is not played;
longer ones come back later, if at all."""

_DIFFERENCES = """## What differs from the paper

- The model has a third of a million parameters and words of its own, and reads maps as lists of walls
  (`benchmarks/studies/short_plan_path.py`). It is taught what it knows by imitation, and then to slip: the weak start
  is made, and the table says what the model could do before. A part of what reinforcement does is to stop the slips.
- The scout proposes cells that a simulator plays, in the place of a coder whose Python runs.
- Success is that of plain episodes on held-out tasks. A tree's own path is chosen by reward among several candidates;
  its success is no policy's and appears nowhere here.
- There is one warm start, shared by all arms and seeds: seeds vary the training tasks' order and all sampling."""


def _setting(settings: Mapping[str, Any]) -> str:
    return (
        "## What was measured\n\n"
        f"Maps of {settings['grid_size']}×{settings['grid_size']} cells, {100 * settings['wall_ratio']:.0f} % walls, a "
        f"shortest way of at least {settings['min_length']} moves. A Llama of {settings['layers']} layers and width "
        f"{settings['hidden']}. Warm start: one pass over {settings['demo_tasks']:,} tasks of which a walker "
        f"demonstrates up to {settings['demo_turns']} turns, {100 * settings['skill']:.0f} % of its answers shortest "
        f"ways and the rest blind to walls; then one over {settings['slip_tasks']:,} tasks of a walker that sees walls "
        f"in {100 * settings['slip_skill']:.0f} % of its answers and goes elsewhere at "
        f"{100 * settings['slip_noise']:.0f} % of its steps. Training: K = {settings['candidates']}, "
        f"{settings['solo_tasks']} tasks an update for one agent and half as many for two, Adam's rate "
        f"{settings['learning_rate']:g} with a warm-up and a linear fall, "
        f"entropy bonus {settings['entropy_coef']:g}, groups without signal replaced up to {settings['refills']} times."
        " All arms that train generate the same number of completion tokens, candidates of trees included. "
        f"{settings['eval_tasks']:,} held-out tasks; `greedy/1` is greedy in a single turn of the planner, `sampled/4` "
        "at temperature 1 within four. Means over seeds with 95 % intervals over tasks (bootstrap), and the least and "
        "greatest seed in brackets."
    )


def _in_short(report: Mapping[str, Any]) -> str:
    """Success of the two agents in the last way of playing (sampled, all turns), a row a run."""
    names = ("pair", "pair-grpo", "at-grpo-shared", "at-grpo-roles")
    mode = list(report["comparison"]["arms"]["pair"]["evaluation"])[-1]
    lines = [
        f"Held-out success of two agents, `{mode}`, with 95 % intervals, by the tasks that the warm start was shown:",
        "",
        "| maps | tasks shown | tokens | warm start only | GRPO over episodes | AT-GRPO | AT-GRPO, one a role |",
        "|---|---|---|---|---|---|---|",
    ]
    for found in (report["comparison"], report["reach"], *report.get("larger", ())):
        settings, arms = found["settings"], found["arms"]
        cells = [success_cell(arms[name]["evaluation"][mode]) if name in arms else "" for name in names]
        size, shown = settings["grid_size"], settings["demo_tasks"]
        lines.append(f"| {size}×{size} | {shown:,} | {settings['tokens']:,} | {' | '.join(cells)} |")
    return "## In short\n\n" + "\n".join(lines)


def _variants(comparison: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Arms again with other settings: whether an arm is behind only because the settings do not suit it."""
    if not variants:
        return []
    return [
        (
            "The settings were chosen on AT-GRPO. Whole episodes take more tokens an update, so that their arms make "
            "fewer updates of the same tokens. With other settings, one seed:"
        ),
        variants_table(comparison, variants),
    ]


def _changed(comparison: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    changed = [
        f"`{key}` {other[key]:,}" if isinstance(other[key], int) else f"`{key}` {other[key]}"
        for key in other
        if other[key] != comparison.get(key)
    ]
    start = "A warm start of the same settings goes further." if other["grid_size"] == comparison["grid_size"] else ""
    return f"{start} Settings that are others than above: {', '.join(changed)}.".strip()


def _larger(comparison: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """A run on larger maps, with a warm start of its own."""
    settings = found["settings"]
    return [
        f"### {settings['grid_size']}×{settings['grid_size']}, {settings['tokens']:,} training tokens",
        _changed(comparison, settings),
        arms_table(found),
        differences_table(found),
        *where_clear(found),
        times(found),
    ]


def _repeat(report: Mapping[str, Any]) -> str:
    """The commands of all runs on the page, and of the page."""
    settings = report["comparison"]["settings"]
    variants = {f"{NAME}_variant{number}": found for number, found in enumerate(report["variants"], 1)}
    larger: dict[str, Mapping[str, Any]] = {}
    for found in report.get("larger", ()):
        folder = f"{NAME}_{found['settings']['grid_size']}"
        larger[f"{folder}_more" if folder in larger else folder] = found
    lines = [f"$ python -m benchmarks.studies.{NAME} --out runs/{NAME}"]
    for folder, found in {f"{NAME}_long": report["reach"], **variants, **larger}.items():
        changed = {key: value for key, value in found["settings"].items() if settings.get(key) != value}
        flags = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in changed.items())
        lines += [
            f"$ python -m benchmarks.studies.{NAME} --out runs/{folder} --seeds 1 --arms {' '.join(found['arms'])} \\",
            f"    {flags}",
        ]
    lines.append(f"$ python -m benchmarks.studies.plan_path_page runs/{NAME} runs/{NAME}_long")
    for flag, folders in (("variants", variants), ("larger", larger)):
        if folders:
            lines[-1] += " \\"
            lines.append(f"    --{flag} {' '.join(f'runs/{folder}' for folder in folders)}")
    commands = "\n".join(lines)
    return f"## Repeat it\n\n<!-- no-run: takes hours -->\n```console\n{commands}\n```\n\n{report['machine']}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.studies.plan_path_page", description=__doc__)
    parser.add_argument("comparison", type=Path, help="folder of the study with all arms")
    parser.add_argument("reach", type=Path, help="folder of the study with more tokens")
    parser.add_argument("--variants", type=Path, nargs="*", default=[], help="folders of arms with other settings")
    parser.add_argument(
        "--larger", type=Path, nargs="*", default=[], help="folders of runs on larger maps, longer ones last"
    )
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write (default: docs/studies)")
    parser.add_argument("--machine", default="", help="a sentence on the machine, for the page")
    given = parser.parse_args(argv)
    try:
        report = gather(given.comparison, given.reach, given.variants, given.machine, given.larger)
    except ValueError as problem:
        sys.stderr.write(f"{parser.prog}: {problem}\n")
        return 2
    publish(given.docs, NAME, report, page(report), given.comparison / "report.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
