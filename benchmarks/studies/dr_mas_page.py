"""The page of the Dr. MAS study, generated from its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.studies.dr_mas_arms import ARMS, REGIMES, SWEEP_ARMS

__all__ = ["page"]

SPIKE = 3.0
"""A spike ratio from which on the page names a regime."""


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
        _setting(report, _differences_seen(regimes)),
        "## What was found",
        *_findings(report),
        f"![Lemma, success and spikes]({plot})",
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


def _findings(report: Mapping[str, Any]) -> Iterable[str]:
    regimes, lemma = report["regimes"], report["lemma"]
    played, dealt = lemma["played"], lemma["dealt"]
    yield (
        f"- **The formula holds where its assumption does.** With outcomes dealt out anew: log-log slope "
        f"{dealt['fit']['all']['slope']:.2f}, R² {dealt['fit']['all']['r2']:.3f}, and {_range(dealt['agent_wise'])} "
        "under `dr_mas` (1 is no inflation). As played, where what is right is what the model is sure of: slope "
        f"{played['fit']['all']['slope']:.2f}, R² {played['fit']['all']['r2']:.3f}, and "
        f"{_range(played['agent_wise'])} under `dr_mas`."
    )
    yield "- **Success.** " + _success_finding(regimes, report["warm_start"]["success"])
    yield "- **Mean or deviation, agent identity or step weighting.** " + _table_finding(regimes)
    yield "- **Spikes.** " + _spike_finding(regimes)
    yield "- **Collapses.** " + _collapse_finding(regimes)


def _success_finding(regimes: Mapping[str, Any], warm: Mapping[str, float]) -> str:
    texts = []
    for arm in ("step_grpo", "agent_std"):
        found = _compared(regimes, arm, "against_dr_mas")
        below = sum(value["mean"] < 0 for value in found.values())
        texts.append(
            f"`{arm}` is below `dr_mas` in {below} of {len(found)} regimes, {_apart(found, 0)}, and ends below the "
            f"warm start in {_list(_below_warm(regimes, arm, warm))}."
        )
    unlearned = _list(_below_warm(regimes, "dr_mas", warm))
    return " ".join(texts) + f" `dr_mas` ends below the warm start in {unlearned}. (That was not among the measures.)"


def _below_warm(regimes: Mapping[str, Any], arm: str, warm: Mapping[str, float]) -> list[str]:
    return [
        name
        for name, regime in regimes.items()
        if arm in regime["arms"] and regime["arms"][arm]["success"]["mean"] < warm["-".join(map(str, regime["links"]))]
    ]


def _table_finding(regimes: Mapping[str, Any]) -> str:
    tables = {name: regime for name, regime in regimes.items() if regime["every_arm"]}
    texts = [
        f"`{arm}` less `dr_mas`: {_span(found)}, {_apart(found, 0)}."
        for arm in ARMS
        if (found := _compared(tables, arm, "against_dr_mas"))
    ]
    return f"In the {len(tables)} regimes with all arms, least and greatest difference in success: " + " ".join(texts)


def _spike_finding(regimes: Mapping[str, Any]) -> str:
    texts = []
    for arm in SWEEP_ARMS:
        found = {name: regime["arms"][arm] for name, regime in regimes.items() if arm in regime["arms"]}
        if not found:
            continue
        above = [name for name, value in found.items() if value["spike"]["mean"] > SPIKE]
        name = max(found, key=lambda name: max(found[name]["spike"]["seeds"]))
        large = max(found, key=lambda name: found[name]["largest_norm"])
        texts.append(
            f"`{arm}`: a mean ratio above {SPIKE:g} in {len(above)} of {len(found)} regimes{_names(above)}; the "
            f"largest ratio of a run is {max(found[name]['spike']['seeds']):.1f} (`{name}`), the largest norm "
            f"{found[large]['largest_norm']:.2f} (`{large}`)."
        )
    for arm in ("step_grpo", "agent_std"):
        found = _compared(regimes, arm, "spike_over_dr_mas")
        if not found:
            continue
        texts.append(f"Ratio of `{arm}` over that of `dr_mas`, paired by seed: {_span(found)}, {_apart(found, 1)}.")
    return " ".join(texts)


def _apart(found: Mapping[str, Any], null: float) -> str:
    """In how many regimes the interval leaves the null out, and on which side."""
    low = [name for name, value in found.items() if value["interval"][1] < null]
    high = [name for name, value in found.items() if value["interval"][0] > null]
    return f"with an interval below {null:g} in {len(low)}{_names(low)} and above {null:g} in {len(high)}{_names(high)}"


def _span(found: Mapping[str, Any]) -> str:
    means = [value["mean"] for value in found.values()]
    return f"{min(means):.3f} to {max(means):.3f}" if means else "–"


def _differences_seen(regimes: Mapping[str, Any]) -> int:
    return sum(arm["against_dr_mas"] is not None for regime in regimes.values() for arm in regime["arms"].values())


def _compared(regimes: Mapping[str, Any], arm: str, what: str) -> dict[str, Any]:
    """What an arm is against ``dr_mas`` in every regime that has an interval."""
    values = {name: regime["arms"].get(arm, {}).get(what) for name, regime in regimes.items()}
    return {name: value for name, value in values.items() if value is not None and value["interval"] is not None}


def _collapse_finding(regimes: Mapping[str, Any]) -> str:
    texts = []
    for arm in SWEEP_ARMS:
        counts = {name: regime["arms"][arm]["collapse"] for name, regime in regimes.items() if arm in regime["arms"]}
        runs, of = (sum(value[key] for value in counts.values()) for key in ("runs", "of"))
        where = [name for name, value in counts.items() if value["runs"]]
        texts.append(f"`{arm}`: {runs} of {of} runs{_names(where)}.")
    stopped = sum(arm["stopped"] for regime in regimes.values() for arm in regime["arms"].values())
    return " ".join(texts) + f" Gradients that are not finite: {stopped}."


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
    return (
        "From GRPO to Dr. MAS in three steps. `grpo` → `grpo_turns`: every turn counts in the statistics, in place of "
        "every episode once (step weighting). `grpo_turns` → `step_grpo`: a turn is scored by the outcome and its own "
        "costs, so that the costs of a role enter statistics that all roles share. `step_grpo` → `dr_mas`: statistics "
        "of one's own (agent identity). `step_grpo` and the cell (μ, σ) are one and the same algorithm, so they are "
        "one arm. A cost of the answerer is part of every episode's return alike: GRPO on episode returns does not "
        f"see it.\n\n{_table(['regime', 'step', 'change of success'], rows)}"
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


def _range(by_role: Mapping[str, Sequence[float]]) -> str:
    values = [value for pair in by_role.values() for value in pair]
    return f"{min(values):.2f} to {max(values):.2f}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) if names else "none"


def _names(names: Sequence[str]) -> str:
    return f" ({_list(names)})" if names else ""


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
