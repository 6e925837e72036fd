"""The page of the Dr. MAS study, generated from its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.studies.dr_mas_arms import ARMS, REGIMES, SWEEP_ARMS
from benchmarks.studies.dr_mas_findings import apart, axis_rows, differences_seen, findings, span

__all__ = ["page"]


def page(report: Mapping[str, Any], plot: str) -> str:
    """Return the page as Markdown.

    Args:
        report: What :func:`benchmarks.studies.dr_mas_report.gather` returns.
        plot: File name of the plot.
    """
    regimes = report["regimes"]
    parts = [
        "# Study: the statistics of Dr. MAS",
        "*Generated from `dr_mas_cells.json` by `python -m benchmarks.studies.dr_mas_cells --page`.*",
        _claims(),
        _setting(report, differences_seen(regimes)),
        "## What was found",
        *findings(report),
        f"![Lemma, success and spikes]({plot})",
        "### Where it begins",
        _axes(regimes),
        "## Lemma 4.2",
        _lemma(report["lemma"]),
        "## The search for spikes and collapses",
        "Every regime of the grid, in the order of the list; what a regime does not name is as in `mild`.",
        *_not_run(regimes),
        _sweep(regimes),
        "## All arms",
        *(_all_arms(name, regime) for name, regime in regimes.items() if regime["every_arm"]),
        "## Agent identity or step weighting?",
        _controls(regimes),
        "## What differs from the paper",
        _differences(),
        "## Repeat it",
        (
            "<!-- no-run: takes an hour -->\n```console\n"
            "$ python -m benchmarks.studies.dr_mas_cells --out runs/dr_mas_cells\n```"
        ),
        f"{report['processor_minutes']:g} minutes of one processor core in all runs. {report['machine']}".strip(),
    ]
    return "\n\n".join(parts) + "\n"


def _not_run(regimes: Mapping[str, Any]) -> Iterable[str]:
    """What of the grid the report does not hold."""
    missing = [f"`{name}` ({REGIMES[name].label})" for name in sorted(set(REGIMES) - set(regimes))]
    if missing:
        yield f"**The grid is not complete.** Not run: {'; '.join(missing)}. What is said below is of the others."


def _claims() -> str:
    return (
        "## What the paper claims\n\n"
        "Dr. MAS (arXiv 2602.08847) trains teams of language models with GRPO and normalises the rewards of every "
        "agent by its own mean and deviation (μ_k, σ_k) in place of those of all agents (μ, σ). It states\n\n"
        "- Lemma 4.2: under (μ, σ) the second moment of agent k's gradient is multiplied by (σ_k² + (μ_k − μ)²)/σ²;\n"
        "- that this shows as spikes of the gradient norm (above 80 in search, then NaN), which (μ_k, σ_k) removes;\n"
        "- relative gains of 5.6 % (avg@16, math) and 15.2 % (avg@16, search) over GRPO, means over settings of "
        "single runs with Qwen3-4B/8B and Qwen2.5-3B/7B."
    )


def _setting(report: Mapping[str, Any], differences: int) -> str:
    settings, warm = report["settings"], report["warm_start"]
    share = report["regimes"]["mild"]["arms"]["dr_mas"]["rare_share"] if "mild" in report["regimes"] else None
    rare = "" if share is None else f" ({100 * share:.0f} % of the turns in `mild`)"
    before = ", ".join(f"{value:.3f} with {links} links" for links, value in warm["success"].items())
    return (
        "## What was measured\n\n"
        f"A Llama of {settings['layers']} layers and width {settings['hidden']} with words of its own follows links "
        "between words: a verifier routes, a searcher looks up, an answerer answers "
        "(`benchmarks/studies/dr_mas_search.py`, the order of `search-3agent`). The answerer is called once an "
        f"episode{rare}, the others in every round. What a call of a role costs shifts its rewards without a word on "
        f"what to do. Warm start on {warm['turns']} turns of a crew that does the right thing "
        f"{100 * settings['skill']:.0f} % of the time; held-out success, sampled, before RL: {before}. "
        f"{settings['tasks']} tasks × {settings['samples']} episodes an update, through the ordinary trainer; one loss "
        "for all arms (token mean, clip .2, dual clip 3, norm clipped to 1, no KL, no entropy).\n\n"
        "Fixed before the runs: grid, arms, three paired seeds, and\n\n"
        f"- **success** of the final policies, sampled, one episode on each of {settings['eval_tasks']} held-out "
        "tasks;\n"
        "- **spike ratio** of a run: the largest, over its agents, of max/median of the gradient norm before "
        "clipping;\n"
        "- **collapse**: the gradient is not finite, or the success at the end is below half of the best mean over "
        "five updates of training.\n\n"
        "Intervals are of 95 %: Student's t over seeds (of logarithms for ratios; differences are paired by seed), "
        f"Wilson's for collapses. Three seeds make wide intervals; of {differences} differences in success, "
        f"{0.05 * differences:.0f} would leave out 0 by chance."
    )


def _axes(regimes: Mapping[str, Any]) -> str:
    columns = ["along", "`step_grpo` less `dr_mas`", "`agent_std` less `dr_mas`", *(f"`{arm}`" for arm in SWEEP_ARMS)]
    return (
        "Difference of held-out success from `dr_mas` along each axis of the grid, bold where the 95 % interval leaves "
        "out 0, and in the last three columns how many of three runs collapsed.\n\n"
        f"{_table(columns, axis_rows(regimes))}"
    )


def _lemma(lemma: Mapping[str, Any]) -> str:
    rows = []
    for kind, what in (("played", "as played"), ("dealt", "dealt out anew")):
        for role, fit in lemma[kind]["fit"].items():
            own = lemma[kind]["agent_wise"].get(role)
            cells = [what, role, f"{fit['slope']:.3f}", f"{fit['r2']:.3f}", "–" if own is None else f"{own[0]:.2f}"]
            rows.append(cells)
    shifts = sorted({point["shift"] for point in lemma["points"]})
    table = _table(["outcomes", "role", "log-log slope", "R²", "E‖g‖² under dr_mas / E‖∇ log π‖²"], rows)
    return (
        f"The warm start plays {lemma['tasks']} held-out tasks {lemma['samples']} times, once for each of "
        f"{len(shifts)} costs of an answer ({', '.join(f'{shift:g}' for shift in shifts)}). Half of the episodes "
        "predict the factor of every role, from scores alone; on the other half every turn's gradient is taken by "
        "itself through the learner. `dr_mas` does not see a shift, so its column is the same for all of them.\n\n"
        f"{table}\n\n"
        "The lemma takes a turn's score and the length of its gradient to be uncorrelated. In play they are not: a "
        "right answer is one that the model is sure of, and its gradient is short. Then the rare role's second moment "
        "grows by more than the lemma says once a shift dominates its scores. Dealing the outcomes of a task's "
        "episodes out anew leaves scores and gradients as they are and removes the correlation."
    )


def _sweep(regimes: Mapping[str, Any]) -> str:
    rows = []
    for name, regime in regimes.items():
        for arm in SWEEP_ARMS:
            if arm in regime["arms"]:
                rows.append([f"`{name}`: {regime['label']}", *_cells(arm, regime["arms"][arm])])
    return _table(["regime", *_COLUMNS], rows)


def _all_arms(name: str, regime: Mapping[str, Any]) -> str:
    rows = [_cells(arm, found) for arm, found in regime["arms"].items()]
    return f"### `{name}`: {regime['label']}\n\n{_table(_COLUMNS, rows)}"


_COLUMNS = (
    "arm",
    "success",
    "less `dr_mas`",
    "spike ratio",
    "over `dr_mas`",
    "largest norm",
    "collapses",
    "factor of the rare role",
)


def _cells(arm: str, found: Mapping[str, Any]) -> list[str]:
    collapse, factor = found["collapse"], found["rare_inflation"]
    low, high = collapse["interval"]
    return [
        ARMS[arm].label,
        _value(found["success"], 3, (0, 1)),
        "–" if found["against_dr_mas"] is None else _value(found["against_dr_mas"], 3, (-1, 1), sign="+"),
        _value(found["spike"], 2),
        "–" if found["spike_over_dr_mas"] is None else _value(found["spike_over_dr_mas"], 2),
        f"{found['largest_norm']:.2f}",
        f"{collapse['runs']} of {collapse['of']} [{low:.2f}, {high:.2f}]",
        "–" if factor is None else f"{factor:.2f}",
    ]


def _controls(regimes: Mapping[str, Any]) -> str:
    rows = [
        [f"`{name}`", f"`{control['second']}` → `{control['first']}`", _value(control, 3, (-1, 1), sign="+")]
        for name, regime in regimes.items()
        for control in regime["controls"]
        if regime["every_arm"]
    ]
    steps: dict[tuple[str, str], dict[str, Any]] = {}
    for name, regime in regimes.items():
        for control in regime["controls"] if regime["every_arm"] else ():
            if control["interval"] is not None:
                steps.setdefault((control["second"], control["first"]), {})[name] = control
    summary = " ".join(
        f"`{before}` → `{after}`: {span(found)}, {apart(found, 0)}." for (before, after), found in steps.items()
    )
    return (
        "From GRPO to Dr. MAS in three steps. `grpo` → `grpo_turns`: every turn counts in the statistics, in place of "
        "every episode once (step weighting). `grpo_turns` → `step_grpo`: a turn is scored by the outcome and its own "
        "costs, so that the costs of a role enter statistics that all roles share. `step_grpo` → `dr_mas`: statistics "
        "of one's own (agent identity). `step_grpo` and the cell (μ, σ) are one and the same algorithm, so they are "
        "one arm. A cost of the answerer is part of every episode's return alike: GRPO on episode returns does not "
        f"see it.\n\n{summary}\n\n{_table(['regime', 'step', 'change of success'], rows)}"
    )


def _differences() -> str:
    return (
        "- The model has a tenth of a million parameters and answers in one word; the paper's write thousands of "
        "tokens. Lengths, a vocabulary of a hundred thousand and half precision, each a source of extreme gradients, "
        "are not here.\n"
        "- Full fine-tuning with AdamW, whose steps do not depend on the scale of a gradient that is always inflated "
        "alike; the learning rates are far above the paper's 1e-6.\n"
        "- The paper's rewards differ between roles by an invalid-format penalty; here by a cost that is set.\n"
        "- Penalties for unusable text are added after normalisation in all arms.\n"
        "- A group in which all scores of a role are equal gives it no gradient in `dr_mas`; a shift makes such a "
        "group look informative under (μ, σ), and all of what it then teaches is noise."
    )


def _value(found: Mapping[str, Any], digits: int, bounds: tuple[float, float] | None = None, sign: str = "") -> str:
    mean = f"{found['mean']:{sign}.{digits}f}"
    if found["interval"] is None:
        return mean
    low, high = found["interval"]
    if bounds is not None:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return f"{mean} [{low:{sign}.{digits}f}, {high:{sign}.{digits}f}]"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
