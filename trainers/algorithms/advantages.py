"""From scores to advantages: group normalisation by named keys.

Advantage = (score − mean of its mean group) / (standard deviation of its std group + eps). Everything in
:mod:`trainers.algorithms.presets` is this one function with other keys. Pure numpy, float64.

**Degenerate groups.** A group whose statistics rest on a single item, or whose items all have the same score, says
nothing about any of them. The advantage of a turn is 0 as soon as *either* of its groups is degenerate:

* its mean group: there is nothing to compare the turn with. (Other libraries return the raw score of a singleton.)
* its std group: without a spread there is no scale; the quotient would be (score − mean)/eps, a million times too
  large. This matters when the std group is finer than the mean group: an agent whose scores are all equal, in a task
  where the agents differ.

"Same score" allows for rounding (8 ulp of the largest), so that 0.1 + 0.2 and 0.3 are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainers.algorithms.baselines import MovingAverages
from trainers.algorithms.groups import GroupStatistics, Labels
from trainers.algorithms.scores import SCORES, FloatArray, ScoreError, TurnBatch
from trainers.algorithms.shaping import TurnFacts, may_train, penalties

if TYPE_CHECKING:
    from trainers.algorithms.algorithm import Algorithm, Term
    from trainers.rollout.records import Episode


def normalize(
    scores: ArrayLike,
    *,
    mean_by: Labels | None,
    std_by: Labels | None,
    weight: ArrayLike | None = None,
    std_weight: ArrayLike | None = None,
    eps: float = 1e-6,
    ddof: int = 1,
    leave_one_out: bool = False,
    center_first: bool = False,
    names: Sequence[str] | None = None,
) -> FloatArray:
    """Normalise scores within groups.

    The mean group and the std group of an item may differ. The standard deviation is that of the std group about its
    *own* mean: with ``mean_by=(task, agent)`` and ``std_by=task`` it is the true spread of all scores of the task.

    Args:
        scores: N scores.
        mean_by: N hashable group labels for the mean; None subtracts nothing.
        std_by: N hashable group labels for the standard deviation; None divides by nothing.
        weight: N frequency weights ≥ 0 for the statistics: an item of weight 2 counts as two items, one of weight 0
            counts not at all but still receives an advantage. Default: 1 for all.
        std_weight: The same for the std groups. Default: ``weight``.
        eps: Added to the standard deviation.
        ddof: Variance = Σ w (r−m)² / (Σ w − ddof).
        leave_one_out: Multiply by n/(n−1), n = Σ w of the mean group. For items of weight 1 this equals subtracting
            the mean of the *others* (RLOO, arXiv 2402.14740).
        center_first: Take the standard deviation of the scores less their mean, in place of that of the scores.
        names: N names for error messages. Default: ``item <i>``.

    Returns:
        N advantages. 0 wherever the mean group or the std group is degenerate (see the module's text).

    Raises:
        ScoreError: If a score is missing or not finite.
        ValueError: If lengths differ, a weight is negative or not finite, or there is a label that is NaN.

    Example:
        >>> normalize([1.0, 0.0, 1.0, 5.0], mean_by=["a", "a", "a", "b"], std_by=None).round(3).tolist()
        [0.333, -0.667, 0.333, 0.0]
    """
    r = _scores(scores, names)
    w = _weights(weight, len(r), "weight")
    ws = w if std_weight is None else _weights(std_weight, len(r), "std_weight")
    if leave_one_out and mean_by is None:
        raise ValueError("leave_one_out needs a group to leave one out of: give mean_by")
    out, degenerate = r.copy(), np.zeros(len(r), dtype=bool)
    if mean_by is not None:
        groups = GroupStatistics(mean_by, r, w, ddof, "mean_by")
        degenerate = groups.degenerate[groups.of]
        out -= groups.mean[groups.of]
        out[degenerate] = 0.0  # exactly, so that rounding is not taken for a spread below
        if leave_one_out:
            n = groups.total[groups.of]
            out *= np.divide(n, n - 1, out=np.zeros_like(n), where=~degenerate)
    if std_by is not None:
        groups = GroupStatistics(std_by, out if center_first else r, ws, ddof, "std_by")
        degenerate = degenerate | groups.degenerate[groups.of]
        out = np.divide(out, groups.std[groups.of] + eps, out=np.zeros_like(out), where=~degenerate)
    out[degenerate] = 0.0
    return out


def compute_advantages(
    episodes: Sequence[Episode],
    algorithm: Algorithm,
    *,
    baseline: MovingAverages | None = None,
    facts: TurnFacts | None = None,
) -> FloatArray:
    """Return the advantage of every turn of every episode.

    Call it once, on everything that was collected, before anything is padded, filtered, repeated or split.

    Args:
        episodes: The episodes, each once.
        algorithm: How to score, group and scale.
        baseline: The moving averages of an algorithm that has them (:func:`make_baseline`); they move on.
        facts: What the algorithm needs to know beyond the records: values, divergences, token limits.

    Returns:
        Float64 array aligned with ``[turn for episode in episodes for turn in episode.turns]``. Masked turns and the
        turns of failed episodes take no part in any statistic and have 0, as do turns that a critic should judge and
        has no value for. Cut answers under ``overlong="mask"`` take part, and have 0.

    Raises:
        ScoreError: If a turn appears twice, or a reward is missing or not finite.
        ValueError: If the algorithm needs a baseline and there is none (or the other way round), or a fact is missing.
    """
    return advantages_of(TurnBatch.of(episodes, facts), algorithm, baseline=baseline)


def advantages_of(batch: TurnBatch, algorithm: Algorithm, *, baseline: MovingAverages | None = None) -> FloatArray:
    """Do what :func:`compute_advantages` does, for a batch that is already lined up."""
    if (algorithm.baseline is None) != (baseline is None):
        raise ValueError(
            f"Algorithm {algorithm.name!r} {'has no' if algorithm.baseline is None else 'needs its'} baseline; pass "
            "baseline=make_baseline(algorithm) and keep it for the whole run"
        )
    _check_facts(batch, algorithm)
    advantages = np.zeros(len(batch))
    active = np.flatnonzero(_judged(batch, algorithm))
    if active.size == 0:
        return advantages
    for i, term in enumerate(algorithm.terms):
        scores = score_turns(batch, algorithm, term)
        if baseline is not None and i == 0:
            before = baseline.read(batch)
            baseline.update(batch, scores)
            scores = scores - before
        if algorithm.critic is not None and batch.facts.values is not None and i == 0:
            scores = scores - batch.facts.values
        advantages[active] += term.coefficient * _normalize_term(batch, algorithm, term, scores, active)
    if not algorithm.fold_penalties:
        advantages[active] += algorithm.penalty_scale * penalties(batch, algorithm)[active]
    advantages[~may_train(batch, algorithm)] = 0.0
    return advantages


def has_signal(batch: TurnBatch, algorithm: Algorithm) -> NDArray[np.bool_]:
    """Return, for every turn, whether it has something to teach: dynamic sampling keeps these.

    That is a turn whose groups are not degenerate in some term of the advantage, or one with a penalty that is added
    after normalisation. Scores without any group (an algorithm with a baseline or a critic) always have signal. Facts
    that are not known yet, as a divergence or a length penalty, make none. Shape [N]; False for turns that are not
    trained on.
    """
    signal = np.zeros(len(batch), dtype=bool)
    active = np.flatnonzero(batch.active)
    if active.size == 0:
        return signal
    if not algorithm.fold_penalties and algorithm.penalty_scale:
        signal[active] = penalties(batch, algorithm)[active] != 0
    for term in algorithm.terms:
        if term.mean_by is None and term.std_by is None:
            signal[active] = True
        elif algorithm.critic is not None and batch.facts.values is None:
            signal[active] = True  # no value, no score: nothing can be ruled out
        else:
            signal[active] |= ~_degenerate(batch, algorithm, term, score_turns(batch, algorithm, term)[active], active)
    return signal & may_train(batch, algorithm)


def make_baseline(algorithm: Algorithm) -> MovingAverages | None:
    """Return fresh moving averages for an algorithm that has a baseline, else None."""
    return None if algorithm.baseline is None else MovingAverages(algorithm.baseline)


def score_turns(batch: TurnBatch, algorithm: Algorithm, term: Term | None = None) -> FloatArray:
    """Return the scores of one term (the main one by default), shape [N]; entries of inactive turns mean nothing.

    Raises:
        ScoreError: If the score function returns something that is not one number a turn.
    """
    term = algorithm.terms[0] if term is None else term
    scores = np.asarray(SCORES[term.score](batch, algorithm), dtype=np.float64)
    if scores.shape != (len(batch),):
        raise ScoreError(f"Score {term.score!r} returned shape {scores.shape} for {len(batch)} turns")
    return scores


def statistic_weights(batch: TurnBatch, term: Term, labels: Labels, active: NDArray[np.intp]) -> FloatArray:
    """Return the frequency weights of the active turns: all 1, or 1 for an episode's first turn in each group.

    Args:
        batch: The batch.
        term: Its ``weight`` decides.
        labels: Group label of each active turn.
        active: Indices of the active turns.
    """
    if term.weight == "turn":
        return np.ones(active.size)
    units = batch.units()
    seen: set[Hashable] = set()
    weights = np.zeros(active.size)
    for j, i in enumerate(active):
        unit = (labels[j], units[i])
        if unit not in seen:
            seen.add(unit)
            weights[j] = 1.0
    return weights


def _normalize_term(
    batch: TurnBatch, algorithm: Algorithm, term: Term, scores: FloatArray, active: NDArray[np.intp]
) -> FloatArray:
    if term.weight == "episode":
        _check_constant(batch, term, scores, active)
    labels, weights = _groups(batch, term, active)
    return normalize(
        scores[active],
        mean_by=labels[0],
        std_by=labels[1],
        weight=weights[0],
        std_weight=weights[1],
        eps=algorithm.eps,
        ddof=algorithm.ddof,
        leave_one_out=term.leave_one_out,
        center_first=term.center_first,
        names=[batch.name(i) for i in active],
    )


def _groups(
    batch: TurnBatch, term: Term, active: NDArray[np.intp]
) -> tuple[list[Labels | None], list[FloatArray | None]]:
    """Labels and frequency weights of the active turns, for the mean and the deviation; None where there is none."""
    labels: list[Labels | None] = []
    weights: list[FloatArray | None] = []
    for keys in (term.mean_by, term.std_by):
        every = None if keys is None else batch.keys(keys)
        chosen = None if every is None else [every[i] for i in active]
        labels.append(chosen)
        weights.append(None if chosen is None else statistic_weights(batch, term, chosen, active))
    return labels, weights


def _degenerate(
    batch: TurnBatch, algorithm: Algorithm, term: Term, scores: FloatArray, active: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Return whether either group of each active turn says nothing about it."""
    found = np.zeros(active.size, dtype=bool)
    for labels, weight in zip(*_groups(batch, term, active), strict=True):
        if labels is not None and weight is not None:
            groups = GroupStatistics(labels, scores, weight, algorithm.ddof)
            found |= groups.degenerate[groups.of]
            if term.center_first:  # of the deviation, which comes second
                scores = np.where(groups.degenerate[groups.of], 0.0, scores - groups.mean[groups.of])
    return found


def _judged(batch: TurnBatch, algorithm: Algorithm) -> NDArray[np.bool_]:
    """Return which turns receive an advantage: those that count and, where there is a critic, have a value."""
    if algorithm.critic is None or batch.facts.values is None:
        return batch.active
    return batch.active & np.isfinite(batch.facts.values)


def _check_facts(batch: TurnBatch, algorithm: Algorithm) -> None:
    facts = batch.facts
    for needed, known, what in (
        (algorithm.critic is not None, facts.values, "values (it has a critic)"),
        (algorithm.kl_in_reward > 0, facts.kl, "kl (it has kl_in_reward)"),
        (algorithm.overlong == "soft", facts.max_tokens, "max_tokens (it has overlong='soft')"),
    ):
        if needed and known is None:
            raise ValueError(f"Algorithm {algorithm.name!r} needs {what}: pass facts=TurnFacts({what.split()[0]}=…)")


def _check_constant(batch: TurnBatch, term: Term, scores: FloatArray, active: NDArray[np.intp]) -> None:
    """An episode can only count once if it has one score."""
    first: dict[Hashable, float] = {}
    units = batch.units()
    for i in active:
        if first.setdefault(units[i], scores[i]) != scores[i]:
            raise ScoreError(
                f"weight='episode' counts an episode once, but score {term.score!r} gives its turns different values "
                f"({first[units[i]]} and {scores[i]} at {batch.name(i)}). Use weight='turn'"
            )


def _scores(scores: ArrayLike, names: Sequence[str] | None) -> FloatArray:
    r = np.asarray(scores, dtype=np.float64)
    if r.ndim != 1:
        raise ValueError(f"Scores have shape {r.shape}; one number an item is needed, shape [N]")
    bad = np.flatnonzero(~np.isfinite(r))
    if bad.size:
        first = int(bad[0])
        name = f"item {first}" if names is None else names[first]
        raise ScoreError(
            f"The score of {name} is {r[first]} ({bad.size} of {r.size} are not finite). A missing score is not 0: "
            "leave the item out"
        )
    return r


def _weights(weight: ArrayLike | None, n: int, what: str) -> FloatArray:
    if weight is None:
        return np.ones(n)
    w = np.asarray(weight, dtype=np.float64)
    if w.shape != (n,):
        raise ValueError(f"{what} has shape {w.shape} for {n} scores")
    if not (np.isfinite(w) & (w >= 0)).all():
        raise ValueError(f"{what} must be finite and not negative, not {w[~(np.isfinite(w) & (w >= 0))][0]}")
    return w
