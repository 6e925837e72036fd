"""The statistics of a benchmark: pass@k, avg@k and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "avg_at_k",
    "bootstrap_interval",
    "counted_interval",
    "pass_at_k",
    "resampled_means",
    "student_quantile",
    "success_interval",
    "wilson_interval",
]

CONFIDENCE = 0.95
RESAMPLES = 2000
"""Resamples where each costs a fit or a pass over all tasks."""
SHARE_RESAMPLES = 10_000
"""Resamples of shares, of which a task has few distinct values."""
BOOTSTRAP_SEED = 0


def pass_at_k(n: int, c: int, k: int) -> float:
    r"""Return the unbiased estimate of the probability that at least one of ``k`` samples solves a task.

    .. math::
        \text{pass@}k = 1 - \binom{n-c}{k} \Big/ \binom{n}{k} = 1 - \prod_{i=n-c+1}^{n} \Bigl(1 - \frac{k}{i}\Bigr)

    (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, equation 1; the product is
    their numerically stable form, figure 3.) Averaged over tasks it is the benchmark's pass@k.

    Args:
        n: Samples drawn of the task.
        c: How many of them solved it.
        k: Samples one may choose from, at most ``n``.

    Returns:
        A probability in [0, 1].

    Raises:
        ValueError: If not ``0 <= c <= n`` or not ``1 <= k <= n``.

    Example:
        >>> pass_at_k(n=4, c=1, k=2)
        0.5
    """
    if not 0 <= c <= n:
        raise ValueError(f"c must be between 0 and n = {n}, got {c}")
    if not 1 <= k <= n:
        raise ValueError(f"k must be between 1 and n = {n}, got {k}")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod((i - k) / i for i in range(n - c + 1, n + 1))


def avg_at_k(successes: Sequence[Sequence[bool]]) -> float:
    """Return the mean over tasks of the share of a task's samples that solved it.

    Args:
        successes: For each task, whether each sample solved it; no task without a sample.

    Raises:
        ValueError: If there is no task, or one without samples.
    """
    return float(np.mean(_task_means(successes)))


def wilson_interval(successes: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    r"""Return the Wilson score interval of a proportion of independent trials.

    .. math:: \frac{p + z^2/2n \pm z \sqrt{p(1-p)/n + z^2/4n^2}}{1 + z^2/n}

    (Wilson 1927, "Probable inference, the law of succession, and statistical inference".)

    Raises:
        ValueError: If ``n`` is 0 or not ``0 <= successes <= n``.

    Example:
        >>> low, high = wilson_interval(5, 10)
        >>> round(low, 3), round(high, 3)
        (0.237, 0.763)
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"A proportion needs n >= 1 and 0 <= successes <= n, got {successes} of {n}")
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    p = successes / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At p = 0 and p = 1 one end is exact; do not let rounding push it outside.
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return low, high


def bootstrap_interval(
    per_task: ArrayLike,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = SHARE_RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
    bounds: tuple[float, float] | None = (0.0, 1.0),
) -> tuple[float, float]:
    """Return the expanded percentile bootstrap interval of a mean over tasks.

    Tasks are resampled with replacement, each with all of its samples: samples of one task are not independent, so
    resampling them one by one would claim more certainty than there is (Efron & Tibshirani 1993, chapter 13).

    The plain percentiles are too narrow for few tasks: a resample spreads by the factor sqrt((n-1)/n) too little, and
    the normal tails of its mean stand in for Student's. The tails are therefore taken further out, by both factors
    (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 5.3).

    Where all tasks have the same value no resample can differ and the interval would have no width. Then it allows for
    as many tasks of another value as the Wilson interval of "n of n" does, all of them at one of the bounds: where all
    tasks score 0, or all 1, it is the Wilson interval over the number of tasks.

    Args:
        per_task: One value a task, shape (tasks,).
        confidence: Coverage.
        resamples: Number of resamples.
        seed: Of the resampling; the same values give the same interval.
        bounds: The least and the greatest value that a task can have; None if there are none, and then the interval of
            equal values has no width.

    Raises:
        ValueError: If there is no task.
    """
    values = _values(per_task)
    n = values.size
    first = float(values[0])
    if bool((values == first).all()):
        if bounds is None:
            return first, first
        share = wilson_interval(n, n, confidence)[0]
        return share * first + (1 - share) * bounds[0], share * first + (1 - share) * bounds[1]
    means = resampled_means(values, resamples=resamples, seed=seed)
    tail = _expanded_tail((1 - confidence) / 2, n)
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def resampled_means(
    per_task: ArrayLike, *, resamples: int = SHARE_RESAMPLES, seed: int = BOOTSTRAP_SEED
) -> NDArray[np.float64]:
    """Return the means of resamples of the tasks with replacement, shape (resamples,).

    How often each distinct value is drawn is multinomial, which takes no longer for ten thousand tasks than for ten.

    Args:
        per_task: One value a task, shape (tasks,).
        resamples: Number of resamples.
        seed: Of the resampling.

    Raises:
        ValueError: If there is no task.
    """
    values = _values(per_task)
    distinct, counts = np.unique(values, return_counts=True)
    generator = np.random.default_rng(seed)
    means = np.empty(resamples)
    rows = max(1, 2_000_000 // distinct.size)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        drawn = generator.multinomial(values.size, counts / values.size, size=stop - start)
        means[start:stop] = drawn @ distinct / values.size
    return means


def success_interval(successes: Sequence[Sequence[bool]]) -> tuple[float, float]:
    """Return the interval of avg@k: Wilson where every task has one sample, bootstrap by task otherwise."""
    _task_means(successes)  # refuses what has none
    return counted_interval([sum(task) for task in successes], [len(task) for task in successes])


def counted_interval(solved: ArrayLike, tried: ArrayLike) -> tuple[float, float]:
    """Return the interval of avg@k (see :func:`success_interval`) of counts by task, shape (tasks,), of 1 or more."""
    won, samples = np.asarray(solved), np.asarray(tried)
    if bool((samples == 1).all()):
        return wilson_interval(int(won.sum()), len(won))
    return bootstrap_interval(won / samples)


def _task_means(successes: Sequence[Sequence[bool]]) -> NDArray[np.float64]:
    if not successes or not all(successes):
        raise ValueError("Need at least one task, and at least one sample of each")
    return np.array([sum(task) / len(task) for task in successes])


def _values(per_task: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(per_task, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"Need the values of at least one task, got shape {values.shape}")
    return values


def _expanded_tail(tail: float, n: int) -> float:
    """Return the tail whose normal quantile is Student's of ``tail``, widened by sqrt(n / (n-1))."""
    return NormalDist().cdf(-math.sqrt(n / (n - 1)) * student_quantile(1 - tail, n - 1))


def student_quantile(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t (Abramowitz & Stegun 26.7.5; the closed forms of 1 and 2 degrees of freedom)."""
    if freedom == 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        share = 2 * probability - 1
        return share * math.sqrt(2 / (1 - share * share))
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
