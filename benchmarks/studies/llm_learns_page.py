"""The documentation page of :mod:`benchmarks.studies.llm_learns`, from its ``result.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["page", "plot", "write_page"]

NAME = "llm_learns"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "studies"


def write_page(result: Path, docs: Path = DOCS) -> Path:
    """Copy a result beside the documentation, and write page and plot from it.

    Args:
        result: ``result.json`` of a study.
        docs: The folder.

    Returns:
        The page.
    """
    text = result.read_text(encoding="utf-8")
    report = json.loads(text)
    (docs / f"{NAME}.json").write_text(text, encoding="utf-8")
    plot(report, docs / f"{NAME}.png")
    path = docs / f"{NAME}.md"
    path.write_text(page(report), encoding="utf-8")
    return path


def plot(report: Mapping[str, Any], path: Path) -> None:
    """Draw held-out team reward over updates, and the training batches behind it."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
    rows = report["training"]["curve"]
    batches = [(row["update"], row["train/success"]) for row in rows if "train/success" in row]
    axis.plot(*zip(*batches, strict=True), color="C0", alpha=0.35, linewidth=1, label="batches of training")
    points = [(row["update"], row["eval/team_return"]) for row in rows if "eval/team_return" in row]
    axis.plot(*zip(*points, strict=True), color="C0", marker="o", label="held-out tasks")
    for stage, update in (("before", points[0][0]), ("after", points[-1][0])):
        found = report[stage]["sampled"]
        low, high = found["interval"]
        mean = found["team_reward"]
        axis.errorbar(
            [update], [mean], [[mean - low], [high - mean]], color="C3", marker="s", capsize=4,
            label="before and after, 95 %" if stage == "before" else None,
        )  # fmt: skip
    axis.set(xlabel="update", ylabel="team reward", ylim=(0, 1))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def page(report: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    minutes = report["training"]["seconds"] / 60
    parts = [
        "# Study: a real language model learns as a team",
        f"*Generated from `{NAME}.json` by `python -m benchmarks.studies.{NAME} --page`.*",
        (
            "SmolLM2-135M-Instruct plays [`math-2agent`](../environments/math-2agent.md) on sums and differences of "
            "one digit: a solver answers, a verifier approves or sends back for a second answer. Each role is a LoRA "
            "adapter on one base; one vLLM engine samples both; Dr. MAS trains them, on two cores and no GPU."
        ),
        "## What was found",
        _table(report),
        _finding(report, minutes),
        _verifier(report),
        f"![Held-out team reward over updates]({NAME}.png)",
        "## How",
        _how(report),
        (
            "## Repeat it\n\n<!-- no-run: takes more than an hour -->\n```console\n"
            f"$ python -m benchmarks.studies.{NAME} --out runs/{NAME}\n```\n\n{report['machine']}"
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _table(report: Mapping[str, Any]) -> str:
    columns = (
        "", "team reward, sampled", "greedy", "first answer right", "right answers approved", "wrong ones approved",
        "unusable texts, solver and verifier",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for stage in ("before", "after"):
        sampled, greedy = report[stage]["sampled"], report[stage]["greedy"]
        cells = [
            stage,
            _interval(sampled["team_reward"], sampled["interval"]),
            _interval(greedy["team_reward"], greedy["interval"]),
            _percent(sampled["first_answer"]),
            _percent(sampled["approved"]["right"]),
            _percent(sampled["approved"]["wrong"]),
            ", ".join(_percent(sampled["invalid"][role]) for role in ("solver", "verifier")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _finding(report: Mapping[str, Any], minutes: float) -> str:
    found = report["difference"]
    said = []
    for mode in ("sampled", "greedy"):
        low, high = found[mode]["interval"]
        verdict = "the interval does not hold 0" if low > 0 or high < 0 else "the interval holds 0"
        said.append(f"{mode} {found[mode]['difference']:+.3f} [{low:+.3f}, {high:+.3f}] ({verdict})")
    return (
        f"Difference on the same {report['tasks']} held-out tasks, with its 95 % interval over tasks (paired "
        f"bootstrap): {'; '.join(said)}. Training took {minutes:.0f} minutes in all, the points of the curve among "
        f"them, and {report['training']['tokens']:,.0f} generated tokens. One seed."
    )


def _verifier(report: Mapping[str, Any]) -> str:
    after = report["after"]["sampled"]["approved"]
    learned = after["right"] - after["wrong"] > 0.1
    return (
        f"At the end the verifier approves {_percent(after['right'])} of the right first answers and "
        f"{_percent(after['wrong'])} of the wrong ones: it "
        + (
            "tells them apart, and its part of the gain is not separated from the solver's here."
            if learned
            else "does not tell them apart, and what the team has gained is the solver's."
        )
    )


def _how(report: Mapping[str, Any]) -> str:
    settings = report["settings"]
    passes = "one pass" if settings["sft_epochs"] == 1 else f"{settings['sft_epochs']} passes"
    return "\n".join(
        (
            (
                f"- **Tasks**: {report['tasks']} of 155 questions are held out, chosen by their unordered pair of "
                "digits, so that 3 + 5 is not trained on where 5 + 3 is held out."
            ),
            (
                "- **Warm start**, because the model seldom finds the form of an answer: "
                f"{passes} over {report['warm_start']['turns']} turns on tasks of training, all "
                f"weights, AdamW at {settings['sft_learning_rate']:g}. Demonstrated are right answers (half of the "
                "demonstrator's answers are wrong, and not imitated) and right verdicts on both. It teaches the form, "
                "and sums of training too; *before* in the table is measured after it."
            ),
            (
                f"- **Training**: preset `dr_mas`, {settings['updates']} updates of {settings['tasks']} tasks × "
                f"{settings['samples']} episodes, rank {settings['rank']}, Adam at {settings['learning_rate']:g}, "
                f"temperature {settings['temperature']:g}, answers of at most {settings['max_tokens']} tokens. "
                "Weights in the engine are compared with the learner's every ten updates."
            ),
            (
                f"- **Evaluation**: every held-out task, {settings['eval_samples']} times at the temperature of "
                "training and once greedy, through vLLM, by the model as it is saved. No point of the curve was chosen "
                f"by its result; the curve has {settings['curve_samples']} episodes a task."
            ),
            (
                "- **Settings** of training are first guesses, not searched. Two other warm starts were given up "
                "before any training: by mistake, neither held answers of the solver (team reward 0.00 and 0.01)."
            ),
        )
    )


def _interval(value: float, interval: Sequence[float]) -> str:
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
