"""What looks wrong in a run, in plain words, with the update where it began.

An alarm is a rule over the logged numbers. It says where to look; whether it is a fault is for the reader. Each rule
and its bound is in the table of ``docs/training.md`` (Report).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trainers.run_report_data import Points, RunData

SPIKE = 5.0
"""A gradient norm is a spike from this multiple of its running median on."""
SAMPLER_DIFFERENCE = 0.05
"""Mean |log-prob of the learner − log-prob of the sampler| (nats a token) above which the two disagree."""
STRETCH = 3
"""Updates in a row without signal, or with low entropy, that make a stretch."""
RISE = 0.15
"""By how much the share of truncated or invalid answers has to rise above where it started."""
LOW_ENTROPY = 0.1
"""Entropy below this share of what it was at the start has collapsed."""
FALL = 0.5
"""Success below this share of its best has fallen."""
LEAST_SUCCESS = 0.1
"""Best success below which a fall says nothing."""
FAILED = 0.1
"""Share of an update's episodes that failed."""
WINDOW = 5
"""Most updates in the means that start, end and trends are read from."""

CHECKED = (
    "stops", "numbers that are not finite", "gradient spikes", "stale weights and samplers that disagree",
    "stretches without signal", "rising truncation and invalid answers", "entropy collapse", "falling success",
    "failed episodes",
)  # fmt: skip
"""What is looked for."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something to look at.

    Attributes:
        update: The update where it began.
        title: What happened, in a few words.
        detail: The numbers, and what it may mean.
        metrics: The metrics that it was read from.
        stop: Whether the run stopped over it.
    """

    update: int
    title: str
    detail: str
    metrics: tuple[str, ...] = ()
    stop: bool = False


def find_alarms(run: RunData) -> list[Alarm]:
    """Return the alarms of a run, the earliest first; of one update those that stopped the run first."""
    found = [alarm for rule in _RULES for alarm in rule(run)]
    return sorted(found, key=lambda alarm: (alarm.update, not alarm.stop))


def _stops(run: RunData) -> Iterator[Alarm]:
    if run.stopped is None:
        return
    what = {
        "NonFiniteGradient": "A gradient was not a number, and the run stopped",
        "GradientSpike": "A gradient spiked beyond the bound, and the run stopped",
        "WeightSyncError": "A sampler did not hold the learner's weights, and the run stopped",
    }.get(str(run.stopped.get("error")), "The run stopped")
    update = run.stopped.get("update")
    yield Alarm(
        update if isinstance(update, int) else run.updates + 1, what, str(run.stopped.get("message", "")), stop=True
    )


def _not_finite(run: RunData) -> Iterator[Alarm]:
    began = {name: updates[0] for name in run.names if (updates := run.not_finite(name))}
    for update in sorted(set(began.values())):
        names = [name for name, first in began.items() if first == update]
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        yield Alarm(
            update,
            "Numbers that are not finite (NaN or infinite)",
            f"{shown}. Look at the log-probs and rewards of this update, or lower the learning rate.",
            tuple(names),
        )


def _spikes(run: RunData) -> Iterator[Alarm]:
    for agent in run.agents:
        name = f"agent/{agent}/spike_ratio"
        high = [(update, value) for update, value in run.series(name) if value >= SPIKE]
        if high:
            peak, most = max(high, key=lambda point: point[1])
            again = f", in {len(high)} updates" if len(high) > 1 else ""
            yield Alarm(
                high[0][0],
                f"The gradient of {agent} spiked",
                f"Up to {most:.3g} times its running median (update {peak}){again}; from {SPIKE:g} on it counts as a "
                "spike. Look at the agent's inflation factor and rewards, or lower its learning rate.",
                (name, f"agent/{agent}/grad_norm"),
            )


def _stale(run: RunData) -> Iterator[Alarm]:
    allowed = (run.config or {}).get("max_staleness", 0)
    for agent in run.agents:
        name = f"agent/{agent}/version_lag_max"
        late = [(update, value) for update, value in run.series(name) if value > allowed]
        if late:
            yield Alarm(
                late[0][0],
                f"{agent} was sampled with stale weights",
                f"In {len(late)} updates; up to {max(value for _, value in late):g} versions behind the learner. "
                "Its turns are off-policy: importance weights have to correct for it.",
                (name, f"agent/{agent}/version_lag"),
            )
        name = f"agent/{agent}/sampler_diff"
        apart = [(update, value) for update, value in run.series(name) if value > SAMPLER_DIFFERENCE]
        if apart:
            yield Alarm(
                apart[0][0],
                f"Sampler and learner disagree on {agent}",
                f"Log-probs differ by up to {max(value for _, value in apart):.3g} on average (in {len(apart)} "
                f"updates; above {SAMPLER_DIFFERENCE:g} counts). The sampler may hold old weights, or compute in "
                "another precision or at another temperature.",
                (name,),
            )


def _no_signal(run: RunData) -> Iterator[Alarm]:
    everyone = _stretch(run.series("train/zero_variance"), lambda value: value >= 1, STRETCH)
    if everyone:
        yield Alarm(
            everyone[0][0],
            "Nothing to learn from",
            f"{_span(everyone)} no group had scores that differ, so all advantages were 0. The tasks are all "
            "solved, or all failed: change their difficulty, sample more, or play further tasks (dynamic_sampling).",
            ("train/zero_variance",),
        )
    for agent in run.agents:
        name = f"agent/{agent}/zero_variance"
        stretch = _stretch(run.series(name), lambda value: value >= 1, STRETCH)
        if stretch and not (everyone and stretch[0][0] >= everyone[0][0]):
            yield Alarm(
                stretch[0][0],
                f"{agent} had nothing to learn from",
                f"{_span(stretch)} none of its groups had scores that differ, so its advantages were 0.",
                (name,),
            )


def _rising(run: RunData) -> Iterator[Alarm]:
    for agent in run.agents:
        for name, what, hint in (
            ("truncated", "cut off at the token limit", "It may be rambling, or need a larger max_tokens."),
            ("invalid", "refused by the environment as unusable", "Look at its answers and the penalty for them."),
        ):
            points = run.series(f"agent/{agent}/{name}")
            window = _window(points)
            if len(points) < 2 * window:
                continue
            start = _mean(points[:window])
            means = [_mean(points[i - window + 1 : i + 1]) for i in range(window - 1, len(points))]
            crossed = next((i for i, value in enumerate(means) if value >= start + RISE), None)
            if crossed is None:
                continue
            first = next(update for update, value in points[crossed : crossed + window] if value >= start + RISE)
            yield Alarm(
                first,
                f"More and more answers of {agent} are {what}",
                f"{start:.0%} at the start, {_mean(points[-window:]):.0%} at the end, {max(means):.0%} at most. {hint}",
                (f"agent/{agent}/{name}",),
            )


def _entropy(run: RunData) -> Iterator[Alarm]:
    for agent in run.agents:
        name = f"agent/{agent}/entropy"
        points = run.series(name)
        start = _mean(points[: _window(points)]) if points else 0.0
        if start <= 0:
            continue
        stretch = _stretch(points, lambda value, bound=LOW_ENTROPY * start: value < bound, STRETCH)  # type: ignore[misc]
        if stretch:
            success = dict(run.series("train/success")).get(stretch[0][0])
            sure = success is not None and success >= 0.9
            yield Alarm(
                stretch[0][0],
                f"The entropy of {agent} collapsed",
                f"{_span(stretch)} it was below {LOW_ENTROPY:.0%} of what it was at the start ({start:.3g}), down to "
                f"{min(value for _, value in stretch):.3g} nats a token. "
                + (
                    f"Success was {success:.0%} there: it may just be sure of right answers."
                    if sure
                    else "It hardly explores any more: raise entropy_coef or the temperature, lower the learning rate."
                ),
                (name,),
            )


def _falling(run: RunData) -> Iterator[Alarm]:
    for name, what in (
        ("eval/success", "Held-out success"),
        ("eval/win", "The share of games won against the opponent"),
        ("train/success", "Success in training"),
    ):
        points = run.series(name)
        window = _window(points)
        if len(points) < 2 * window:
            continue
        means = [_mean(points[i - window + 1 : i + 1]) for i in range(window - 1, len(points))]
        best = max(means)
        if best < LEAST_SUCCESS or means[-1] >= FALL * best:
            continue
        low = next(i for i in range(len(means)) if all(value < FALL * best for value in means[i:]))
        yield Alarm(
            points[low + window - 1][0],
            f"{what} fell",
            f"From {best:.0%} at its best to {means[-1]:.0%} at the end (means of {window} measurements).",
            (name,),
        )


def _failed(run: RunData) -> Iterator[Alarm]:
    episodes = dict(run.series("train/episodes"))
    bad = [
        (update, value / episodes[update])
        for update, value in run.series("train/failed_episodes")
        if episodes.get(update) and value >= FAILED * episodes[update]
    ]
    if bad:
        yield Alarm(
            bad[0][0],
            "Episodes failed",
            f"In {len(bad)} updates, up to {max(share for _, share in bad):.0%} of them. They are not trained on; the "
            "log of the run says why they failed.",
            ("train/failed_episodes",),
        )


_RULES: tuple[Callable[[RunData], Iterator[Alarm]], ...] = (
    _stops, _not_finite, _spikes, _stale, _no_signal, _rising, _entropy, _falling, _failed,
)  # fmt: skip


def _window(points: Sequence[tuple[int, float]]) -> int:
    return max(1, min(WINDOW, len(points) // 4))


def _mean(points: Sequence[tuple[int, float]]) -> float:
    return sum(value for _, value in points) / len(points)


def _stretch(points: Points, says: Callable[[float], bool], least: int) -> Points:
    """Return the first stretch of at least so many points in a row, or an empty list."""
    stretch: Points = []
    for point in points:
        if says(point[1]):
            stretch.append(point)
            continue
        if len(stretch) >= least:
            break
        stretch = []
    return stretch if len(stretch) >= least else []


def _span(stretch: Points) -> str:
    return f"From update {stretch[0][0]} to {stretch[-1][0]}"
