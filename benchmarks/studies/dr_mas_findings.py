"""What the Dr. MAS study has found, in sentences and a table that follow from its report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.studies.dr_mas_arms import ARMS, SWEEP_ARMS

__all__ = ["AXES", "apart", "axis_rows", "differences_seen", "findings", "span"]

SPIKE = 3.0
"""A spike ratio from which on the page names a regime."""
AXES: Mapping[str, Sequence[str]] = {
    "cost of the rare role: .05, 2, 8": ("mild", "shift", "shift_8"),
    "the same, shared policy: .05, 2": ("mild_shared", "shift_shared"),
    "who bears a cost of 2: answerer, searcher; answerer, with the other sign": ("shift", "search_cost", "shift_up"),
    "cost of a wrong answer: 2, 8": ("wrong_2", "wrong_8"),
    "learning rate at cost 2: × 1, 4, 16": ("shift", "rate_4", "rate_16"),
    "steps an update at cost 2: 1, 8": ("shift", "steps_8"),
    "updates at cost 2: 20, 60": ("shift", "long"),
    "links at cost 2: 2 to 4, 5 to 6": ("shift", "sparse"),
    "cost 8, rate × 4 and 8 steps: one policy a role, shared": ("harsh", "harsh_shared"),
}
"""The grid along each of its axes."""


def axis_rows(regimes: Mapping[str, Any]) -> Iterable[list[str]]:
    """Yield a row an axis: what each of two arms loses against ``dr_mas`` along it, and how many runs collapsed.

    A difference whose interval leaves out 0 is bold.
    """
    for axis, names in AXES.items():
        found = [regimes[name]["arms"] for name in names if name in regimes]
        differences = [
            ", ".join(_mean(arms.get(arm, {}).get("against_dr_mas")) for arms in found)
            for arm in ("step_grpo", "agent_std")
        ]
        collapses = [
            ", ".join(str(arms[arm]["collapse"]["runs"]) if arm in arms else "–" for arms in found)
            for arm in SWEEP_ARMS
        ]
        yield [axis, *differences, *collapses]


def _mean(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "–"
    text, interval = f"{value['mean']:+.3f}", value["interval"]
    return f"**{text}**" if interval is not None and (interval[1] < 0 or interval[0] > 0) else text


def findings(report: Mapping[str, Any]) -> Iterable[str]:
    """Yield what was found, an item of a list each."""
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
            f"`{arm}` is below `dr_mas` in {below} of {len(found)} regimes, {apart(found, 0)}, and ends below the "
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
        f"`{arm}` less `dr_mas`: {span(found)}, {apart(found, 0)}."
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
        texts.append(f"Ratio of `{arm}` over that of `dr_mas`, paired by seed: {span(found)}, {apart(found, 1)}.")
    return " ".join(texts)


def apart(found: Mapping[str, Any], null: float) -> str:
    """In how many regimes the interval leaves the null out, and on which side."""
    low = [name for name, value in found.items() if value["interval"][1] < null]
    high = [name for name, value in found.items() if value["interval"][0] > null]
    return f"with an interval below {null:g} in {len(low)}{_names(low)} and above {null:g} in {len(high)}{_names(high)}"


def span(found: Mapping[str, Any]) -> str:
    """The least and the greatest mean."""
    means = [value["mean"] for value in found.values()]
    return f"{min(means):.3f} to {max(means):.3f}" if means else "–"


def differences_seen(regimes: Mapping[str, Any]) -> int:
    """How many differences from ``dr_mas`` the report holds."""
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


def _range(by_role: Mapping[str, Sequence[float]]) -> str:
    values = [value for pair in by_role.values() for value in pair]
    return f"{min(values):.2f} to {max(values):.2f}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) if names else "none"


def _names(names: Sequence[str]) -> str:
    return f" ({_list(names)})" if names else ""
