"""The numbers of the Kuhn poker study: its runs gathered over seeds, with intervals; their table, plot and page."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks.metrics import student_quantile
from benchmarks.studies.kuhn_strategies import UNIFORM, exploitability, value_against_equilibrium
from llm_envs.games import kuhn_poker

__all__ = ["gather", "page", "plot", "table"]

REACH = 3.0
"""The fall of exploitability that the study looks for."""


def gather(
    settings: Mapping[str, Any], runs: Mapping[str, Sequence[Mapping[str, Any]]], warm_s: Sequence[float]
) -> dict[str, Any]:
    """Put the runs together.

    A fall is the exploitability at the start over that at the end, where the start is that of the run's own warm start
    or of moves at random, whichever is *less*. Its mean and interval are those of logarithms.

    Args:
        settings: The study's.
        runs: The runs of each arm, by its label.
        warm_s: Processor seconds of the warm start of each seed.
    """
    random = exploitability(UNIFORM)
    arms = {}
    for label, found in runs.items():
        start = [min(random, run["start"]["exploitability"]) for run in found]
        summary: dict[str, Any] = {"start": _mean([run["start"]["exploitability"] for run in found])}
        for which in ("last", "average"):
            ends = [run[which]["exploitability"] for run in found]
            summary[which] = _mean(ends)
            summary[f"{which}_value"] = _mean([run[which]["value"] for run in found])
            summary[f"{which}_fall"] = _ratio([before / after for before, after in zip(start, ends, strict=True)])
        summary["start_value"] = _mean([run["start"]["value"] for run in found])
        summary["played"] = [_mean([run["played"][at] for run in found]) for at in (0, -1)]
        summary["unusable"] = max(run["last"]["unusable"] for run in found)
        arms[label] = {"runs": [_rounded(run) for run in found], "summary": summary}
    seconds = sum(warm_s) + sum(run["seconds"] for found in runs.values() for run in found)
    return {
        "settings": dict(settings),
        "random": {"exploitability": random, "value": value_against_equilibrium(UNIFORM)},
        "processor_minutes": round(seconds / 60, 1),
        "machine": f"One thread of a processor ({platform.machine()}), no GPU; Python {platform.python_version()}.",
        "arms": arms,
    }


def table(report: Mapping[str, Any]) -> str:
    """The results as a Markdown table: mean over seeds, 95 % interval (Student's t), each seed."""
    columns = ["arm", "policy", "exploitability", "fall", "chips a hand against the equilibrium"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    random = report["random"]
    lines.append(f"| moves at random |  | {random['exploitability']:.3f} |  | {random['value']:+.3f} |")
    first = next(iter(report["arms"].values()))["summary"]  # the arms of a seed begin alike
    lines.append(f"| all | warm start | {_cell(first['start'])} |  | {_cell(first['start_value'], sign=True)} |")
    for label, arm in report["arms"].items():
        found = arm["summary"]
        for which, name in (("last", "last iterate"), ("average", "average of the second half")):
            cells = [
                _cell(found[which]),
                _cell(found[f"{which}_fall"], digits=1, unit="×"),
                _cell(found[f"{which}_value"], sign=True),
            ]
            lines.append(f"| {label} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def plot(report: Mapping[str, Any], path: Path) -> None:
    """Draw exploitability and value against the equilibrium over updates, a line a seed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    names = (("exploitability", "exploitability, chips a hand"), ("value", "chips a hand against the equilibrium"))
    for axis, (key, label) in zip(axes, names, strict=True):
        for number, (arm, found) in enumerate(report["arms"].items()):
            for place, run in enumerate(found["runs"]):
                points = [(point["update"], point[key]) for point in run["curve"]]
                axis.plot(*zip(*points, strict=True), color=f"C{number}", linewidth=1, label=None if place else arm)
        axis.axhline(report["random"][key], color="gray", linestyle=":", linewidth=1, label="moves at random")
        axis.set(xlabel="update", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].set_ylim(bottom=0)
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def page(report: Mapping[str, Any]) -> str:
    """The documentation page."""
    parts = [
        "# Study: self-play in Kuhn poker",
        "*Generated from `self_play_kuhn.json` by `python -m benchmarks.studies.self_play_kuhn --page`.*",
        _CLAIM,
        _setting(report),
        "## What was found",
        table(report).rstrip(),
        _findings(report),
        "![Exploitability and value over updates](self_play_kuhn.png)",
        _strategies(report),
        _DIFFERENCES,
        (
            "## Repeat it\n\n<!-- no-run: takes minutes -->\n```console\n"
            "$ python -m benchmarks.studies.self_play_kuhn --out runs/self_play_kuhn\n```\n\n"
            f"{report['processor_minutes']:g} minutes of processor time in all. {report['machine']}"
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _setting(report: Mapping[str, Any]) -> str:
    settings = report["settings"]
    seeds = len(next(iter(report["arms"].values()))["runs"])
    return (
        "## What was measured\n\n"
        f"A Llama of {settings['layers']} layers and width {settings['hidden']}, whose tokens are the words of the "
        "game, plays both seats of [`kuhn-poker`](../environments/kuhn-poker.md), a hand an episode, in texts such as "
        f"`K. [bet]`, through the ordinary trainer with the preset `rae`: {settings['updates']} updates of "
        f"{settings['games']} hands, AdamW at {settings['learning_rate']:g} falling to 0, one optimiser step an "
        f"update. It begins with a warm start on {settings['hands']} hands in which a beginner names its card and then "
        "moves *at random*: it learns the form, and to look at the card, and nothing of how to play. Arms: `rae` with "
        f"AdamW (first moment 0.9, second {settings['second_moment']:g}); with a KL term of weight {settings['kl']:g} "
        "(k2 in the loss) that pulls towards the warm start, which between legal moves is an entropy bonus; without "
        "momentum (first moment 0); and with both changes.\n\n"
        "After every update the exact probabilities of the model's answers at the twelve decisions, each read as the "
        "game reads it, give its strategy (unusable texts left out), that strategy's exploitability (OpenSpiel's "
        "`exploitability`, chips a hand, 0 in an equilibrium) and its value against the equilibrium (0 at most on "
        "average over both seats). A fall is taken from the warm "
        f"start or from moves at random ({report['random']['exploitability']:.3f}), whichever is less. The average is "
        "the policy that draws an iterate of the second half anew for each hand. No iterate was chosen by its result. "
        f"{settings['eval_hands']} hands in each seat are also played against the equilibrium "
        "(`evaluation.opponent: oracle`). "
        f"{seeds} seeds, which differ in weights, warm start, deals and draws; 95 % intervals by Student's t (falls: "
        "of logarithms); each seed in brackets."
    )


_CLAIM = (
    "## What the paper claims\n\n"
    "SPIRAL (arXiv 2506.24119) lets one language model play both roles of zero-sum games against itself (tic-tac-toe, "
    "Kuhn poker, a negotiation) and subtracts from a role's return that role's own moving average: role-conditioned "
    "advantage estimation, `rae` here. It states that this keeps training stable where a common baseline lets "
    "reasoning collapse, that a policy which trains against itself goes on improving where fixed opponents are "
    "exploited, and that what is learned carries over to reasoning benchmarks. "
    "This study looks at something else: how far the policy is from an equilibrium, which in Kuhn poker can be "
    "computed."
)

_DIFFERENCES = (
    "## What differs from the paper\n\n"
    "- Another model, of about 0.1 million parameters with random weights and a short warm start, in the place of "
    "Qwen3-4B-Base; nothing is said here on reasoning benchmarks, on collapse of reasoning, or on fixed opponents in "
    "training.\n"
    "- One game and one hand an episode, in the place of games that are mixed.\n"
    "- An answer is a card and a move, without reasoning.\n"
    "- The KL term and the step without momentum are not theirs. What they are for is known of two-player zero-sum "
    "games: a pull towards a reference makes gradient play converge (magnetic mirror descent, arXiv 2206.05825), and "
    "momentum drives it in circles (arXiv 1807.04740).\n"
    "- The settings are ours. KL weight, learning rate and momentum were chosen in trial runs from another warm start "
    "of seed 0, and the passes over the demonstrations after one of seed 1 had not learned the form. The arms share "
    "all of them; none was tuned for itself."
)


def _findings(report: Mapping[str, Any]) -> str:
    lines = []
    for label, arm in report["arms"].items():
        found = arm["summary"]
        lines.append(
            f"- **{label}**: {_fall(found['last_fall'])} by the last iterate, {_fall(found['average_fall'])} by the "
            f"average. Hands played against the equilibrium: {_cell(found['played'][0], sign=True)} chips a hand at "
            f"the start, {_cell(found['played'][1], sign=True)} at the end. Unusable texts at the end: "
            f"{100 * found['unusable']:.2g} % at the worst decision of any seed."
        )
    return "\n".join(lines)


def _fall(fall: Mapping[str, Any]) -> str:
    reached = sum(seed >= REACH for seed in fall["seeds"])
    low = fall["interval"][0] if fall["interval"] else None
    side = "" if low is None else f", and the interval {'lies' if low >= REACH else 'does not lie'} above {REACH:g}"
    return f"{fall['mean']:.1f} times less exploitable ({reached} of {len(fall['seeds'])} seeds reach {REACH:g}{side})"


def _strategies(report: Mapping[str, Any]) -> str:
    """The last strategies beside the equilibrium's."""
    arms = report["arms"]
    lines = [
        "## What is played",
        "",
        (
            "Probability of betting or calling at the end, mean over the seeds, beside the equilibria. Those of the "
            "first player are a family (α, from 0 to 1/3, is the share of jacks that it bets)."
        ),
        "",
        f"| card | moves so far | {' | '.join(arms)} | equilibria |",
        "|---" * (len(arms) + 3) + "|",
    ]
    low, high = (kuhn_poker.equilibrium(alpha) for alpha in (Fraction(0), Fraction(1, 3)))
    words = {"": "–", "k": "check", "b": "bet", "kb": "check, bet"}
    for line in kuhn_poker.LINES:
        for card, name in enumerate(kuhn_poker.CARDS):
            means = [fmean(run["strategy"][f"{card}{line}"] for run in arm["runs"]) for arm in arms.values()]
            ends = sorted({f"{float(found[card, line]):.2f}" for found in (low, high)})
            cells = [name, words[line], *(f"{mean:.2f}" for mean in means), "–".join(ends)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> dict[str, Any]:
    """Mean over the seeds, its 95 % interval (None for one seed), and each seed."""
    return {"mean": fmean(values), "interval": _interval(values), "seeds": list(values)}


def _ratio(values: Sequence[float]) -> dict[str, Any]:
    """The same of logarithms."""
    logs = [math.log(value) for value in values]
    interval = _interval(logs)
    back: Callable[[float], float] = math.exp
    return {
        "mean": back(fmean(logs)),
        "interval": None if interval is None else [back(end) for end in interval],
        "seeds": list(values),
    }


def _interval(values: Sequence[float]) -> list[float] | None:
    if len(values) < 2:
        return None
    reach = student_quantile(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return [fmean(values) - reach, fmean(values) + reach]


def _cell(value: Mapping[str, Any], *, digits: int = 3, sign: bool = False, unit: str = "") -> str:
    form = f"{'+' if sign else ''}.{digits}f"
    text = f"{value['mean']:{form}}{unit}"
    if value["interval"] is None:
        return text
    low, high = (f"{end:{form}}" for end in value["interval"])
    return f"{text} [{low}, {high}] ({', '.join(f'{seed:{form}}' for seed in value['seeds'])})"


def _rounded(value: Any) -> Any:
    """Numbers to five digits, which is what a curve needs."""
    if isinstance(value, float):
        return round(value, 5)
    if isinstance(value, Mapping):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list) else value
