"""The statistics of a benchmark: pass@k, avg@k and their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["avg_at_k", "bootstrap_interval", "pass_at_k", "success_interval", "wilson_interval"]

CONFIDENCE = 0.95
RESAMPLES = 2000
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
    resamples: int = RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean over tasks.

    Tasks are resampled with replacement, each with all of its samples: samples of one task are not independent, so
    resampling them one by one would claim more certainty than there is (Efron & Tibshirani 1993, chapter 13).

    Where all tasks have the same value no resample can differ and the interval would have no width. If they are all 0
    or all 1, the Wilson interval over the number of tasks stands in.

    Args:
        per_task: One value a task, shape (tasks,).
        confidence: Coverage.
        resamples: Number of resamples.
        seed: Of the resampling; the same values give the same interval.

    Raises:
        ValueError: If there is no task.
    """
    values = np.asarray(per_task, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"Need the values of at least one task, got shape {values.shape}")
    n = values.size
    first = float(values[0])
    if first in (0.0, 1.0) and bool((values == first).all()):
        return wilson_interval(n if first else 0, n, confidence)
    generator = np.random.default_rng(seed)
    means = np.empty(resamples)
    rows = max(1, 2_000_000 // n)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        means[start:stop] = values[generator.integers(0, n, size=(stop - start, n))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def success_interval(successes: Sequence[Sequence[bool]]) -> tuple[float, float]:
    """Return the interval of avg@k: Wilson where every task has one sample, bootstrap by task otherwise."""
    means = _task_means(successes)
    if all(len(task) == 1 for task in successes):
        return wilson_interval(int(means.sum()), len(means))
    return bootstrap_interval(means)


def _task_means(successes: Sequence[Sequence[bool]]) -> NDArray[np.float64]:
    if not successes or not all(successes):
        raise ValueError("Need at least one task, and at least one sample of each")
    return np.array([sum(task) / len(task) for task in successes])
