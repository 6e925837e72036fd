"""Two runs on the same tasks: how much they differ, and whether chance alone would do that.

What is compared is one value a task and run, such as the share of a task's samples that solved it. A task that is hard
is hard for both runs, so differences by task vary far less than the values do, and are what the tests look at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.metrics import BOOTSTRAP_SEED, CONFIDENCE, SHARE_RESAMPLES, wilson_interval

__all__ = ["Difference", "SignTest", "holm", "paired_difference", "sign_test"]

_EPSILON = 1e-12  # differences of shares that are equal may differ by rounding


class Difference(NamedTuple):
    """A mean difference over tasks.

    Attributes:
        value: Mean of the first run's values less the second's.
        low: Lower end of the interval.
        high: Upper end.
        p: Two-sided p-value of no difference in the mean.
    """

    value: float
    low: float
    high: float
    p: float


class SignTest(NamedTuple):
    """On how many tasks each run did better.

    Attributes:
        better: Tasks on which the first run scored more.
        worse: Tasks on which the second did.
        p: Two-sided p-value of a fair coin.
    """

    better: int
    worse: int
    p: float


def paired_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = SHARE_RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
    span: float | None = 1.0,
) -> Difference:
    r"""Compare the means of two runs by the paired bootstrap over tasks.

    With :math:`d_i` the difference on task i, tasks are resampled with replacement, and

    .. math:: t^* = |\bar d^* - \bar d| \,/\, (s^* / \sqrt n)

    is set against :math:`t = |\bar d| / (s / \sqrt n)`: the p-value is the share of resamples with :math:`t^* \ge t`
    (both counts raised by one, so that it is never 0), and the interval is :math:`\bar d` give or take the quantile of
    :math:`t^*` times :math:`s/\sqrt n`. So the interval leaves out 0 where p < 1 - confidence. (The symmetric
    bootstrap-t: Efron & Tibshirani 1993, sections 12.5 and 16.4; Hall 1988, "On symmetric bootstrap confidence
    intervals". Without the division by :math:`s^*` it rejects up to twice too often for ten tasks.)

    Where all differences are equal no resample can differ. The p-value is then that of :func:`sign_test`, and the
    interval allows for as many tasks of any other difference as the Wilson interval of "n of n" does.

    Args:
        first: Values of the first run, shape (tasks,).
        second: Values of the second, the same tasks in the same order.
        confidence: Coverage of the interval.
        resamples: Number of resamples.
        seed: Of the resampling; the same values give the same numbers.
        span: The greatest difference that a task can have, to which intervals are cut; None if there is none.

    Raises:
        ValueError: If there is no task, or the runs have not the same number of them.

    Example:
        >>> paired_difference([1, 1, 1, 0], [1, 1, 1, 0])
        Difference(value=0.0, low=-0.4898908..., high=0.4898908..., p=1.0)
    """
    one, two = _pair(first, second)
    differences = np.round(one - two, 12)
    n = differences.size
    value = float(differences.mean())
    distinct, counts = np.unique(differences, return_counts=True)
    if distinct.size == 1:
        other = 1.0 - wilson_interval(n, n, confidence)[0]
        low, high = (value, value) if span is None else (value - other * (span + value), value + other * (span - value))
        return Difference(value, low, high, sign_test(one, two).p)
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    deviations = _studentised(distinct, counts, value, resamples, seed)
    p = (int((deviations >= abs(value) / error - _EPSILON).sum()) + 1) / (resamples + 1)
    reach = float(np.quantile(deviations, confidence, method="higher")) * error
    limit = math.inf if span is None else span
    return Difference(value, max(value - reach, -limit), min(value + reach, limit), p)


def sign_test(first: ArrayLike, second: ArrayLike) -> SignTest:
    r"""Count on how many tasks each run did better, and compare the counts with a fair coin, exactly.

    With b tasks on which the first run scored more and c on which the second did,

    .. math:: p = \min\Bigl(1,\; 2 \cdot 2^{-(b+c)} \sum_{i=0}^{\min(b,c)} \binom{b+c}{i}\Bigr)

    With one sample a task this is McNemar's exact test of two shares (McNemar 1947, "Note on the sampling error of the
    difference between correlated proportions"), with several the sign test over tasks. As b and c are whole numbers, it
    rejects somewhat less often than the rate that one asks for, never more.

    Args:
        first: Values of the first run, shape (tasks,).
        second: Values of the second, the same tasks in the same order.

    Raises:
        ValueError: If there is no task, or the runs have not the same number of them.

    Example:
        >>> sign_test([1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0])
        SignTest(better=5, worse=0, p=0.0625)
    """
    one, two = _pair(first, second)
    better = int((one > two + _EPSILON).sum())
    worse = int((two > one + _EPSILON).sum())
    untied = better + worse
    ways = sum(math.comb(untied, i) for i in range(min(better, worse) + 1))
    return SignTest(better, worse, min(1.0, ways / 2 ** (untied - 1)) if untied else 1.0)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return p-values adjusted for being several, so that any false rejection among them is as rare as stated.

    (Holm 1979, "A simple sequentially rejective multiple test procedure".)

    Example:
        >>> holm({"solver": 0.01, "verifier": 0.04, "critic": 0.03})
        {'solver': 0.03, 'verifier': 0.06, 'critic': 0.06}
    """
    adjusted: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = highest
    return {name: adjusted[name] for name in p_values}


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.ndim != 1 or one.shape != two.shape or one.size == 0:
        raise ValueError(
            f"Need one value a task of both runs, and at least one task; got shapes {one.shape}, {two.shape}"
        )
    return one, two


def _studentised(
    distinct: NDArray[np.float64], counts: NDArray[np.int_], mean: float, resamples: int, seed: int
) -> NDArray[np.float64]:
    """Return |mean* - mean| / (s* / sqrt(n)) of every resample; infinite where a resample has no spread but moved."""
    n = int(counts.sum())
    generator = np.random.default_rng(seed)
    found = np.empty(resamples)
    centred = distinct - mean  # the variance from squares then loses nothing to rounding
    rows = max(1, 2_000_000 // distinct.size)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        drawn = generator.multinomial(n, counts / n, size=stop - start)
        moved = drawn @ centred / n
        variance = np.maximum(drawn @ centred**2 / n - moved**2, 0.0) * n / (n - 1)
        flat = variance <= _EPSILON * float(centred @ centred)
        still = np.abs(moved) <= _EPSILON
        error = np.sqrt(np.where(flat, 1.0, variance) / n)
        found[start:stop] = np.where(flat, np.where(still, 0.0, np.inf), np.abs(moved) / error)
    return found
