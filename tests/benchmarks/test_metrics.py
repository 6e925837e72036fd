"""pass@k against its definition, and intervals against simulation."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.metrics import avg_at_k, bootstrap_interval, pass_at_k, success_interval, wilson_interval


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (1, 0, 1, 0.0),
        (1, 1, 1, 1.0),
        (2, 1, 1, 0.5),
        (2, 1, 2, 1.0),
        (4, 1, 2, 0.5),  # of the 6 pairs, 3 hold the one success
        (4, 2, 2, 5 / 6),  # of the 6 pairs, 1 holds none
        (5, 2, 3, 0.9),  # of the 10 triples, 1 holds none
        (10, 3, 1, 0.3),
        (16, 0, 16, 0.0),
        (16, 1, 16, 1.0),
        (200, 10, 100, 1 - comb(190, 100) / comb(200, 100)),
    ],
)
def test_pass_at_k_hand_cases(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, rel=1e-12)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_success(case: tuple[int, int, int]) -> None:
    n, c, k = case
    subsets = list(combinations(range(n), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(min(chosen) < c for chosen in subsets) / len(subsets))


@given(st.integers(2, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n - 1))))
def test_pass_at_k_laws(case: tuple[int, int, int]) -> None:
    n, c, k = case
    value = pass_at_k(n, c, k)
    assert 0.0 <= value <= 1.0
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)
    assert pass_at_k(n, c, k + 1) >= value - 1e-12
    if c < n:
        assert pass_at_k(n, c + 1, k) >= value - 1e-12


def test_pass_at_k_is_unbiased() -> None:
    p, n, k = 0.3, 6, 3
    mean = sum(comb(n, c) * p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1))
    assert mean == pytest.approx(1 - (1 - p) ** k)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, -1, 1), (3, 1, 4), (3, 1, 0), (0, 0, 1)])
def test_pass_at_k_refuses(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="must be between"):
        pass_at_k(n, c, k)


def test_avg_at_k_weighs_tasks_equally() -> None:
    assert avg_at_k([[True, False], [True], [False, False, False]]) == pytest.approx((0.5 + 1 + 0) / 3)
    with pytest.raises(ValueError, match="at least one"):
        avg_at_k([])
    with pytest.raises(ValueError, match="at least one"):
        avg_at_k([[True], []])


def test_wilson_known_values() -> None:
    # Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
    for successes, n, low, high in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]:  # fmt: skip # noqa: E501
        assert wilson_interval(successes, n) == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(20, 20)[1] == 1.0
    with pytest.raises(ValueError):
        wilson_interval(0, 0)
    with pytest.raises(ValueError):
        wilson_interval(3, 2)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_proportion(case: tuple[int, int]) -> None:
    successes, n = case
    low, high = wilson_interval(successes, n)
    assert 0.0 <= low <= successes / n <= high <= 1.0
    assert wilson_interval(n - successes, n) == pytest.approx((1 - high, 1 - low))


def test_wilson_coverage() -> None:
    generator = np.random.default_rng(0)
    truths = generator.uniform(
        0.02, 0.98, size=2000
    )  # at one fixed p it swings around 95 %, as counts are whole numbers
    intervals = [wilson_interval(int(generator.binomial(100, p)), 100) for p in truths]
    covered = np.mean([low <= p <= high for p, (low, high) in zip(truths, intervals, strict=True)])
    assert 0.935 <= covered <= 0.965


@pytest.mark.parametrize("tasks", [20, 80])
def test_bootstrap_by_task_coverage_where_samples_depend_on_their_task(tasks: int) -> None:
    generator = np.random.default_rng(1)
    samples, runs = 4, 2000
    by_task = by_sample = 0
    for seed in range(runs):
        difficulty = generator.beta(0.5, 0.5, size=tasks)  # mean 0.5
        solved = generator.random((tasks, samples)) < difficulty[:, None]
        low, high = bootstrap_interval(solved.mean(axis=1), resamples=1000, seed=seed)
        by_task += low <= 0.5 <= high
        low, high = wilson_interval(int(solved.sum()), solved.size)
        by_sample += low <= 0.5 <= high
    assert 0.935 <= by_task / runs <= 0.965
    assert by_sample / runs < 0.85  # what resampling samples one by one would do: far too sure


def test_bootstrap_is_seeded_and_has_width() -> None:
    values = [0.0, 0.5, 1.0, 0.25]
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval(values) != bootstrap_interval(values, seed=1, resamples=50)
    assert bootstrap_interval([1.0] * 5) == wilson_interval(5, 5)
    assert bootstrap_interval([0.0] * 5) == wilson_interval(0, 5)
    with pytest.raises(ValueError, match="at least one task"):
        bootstrap_interval([])


def test_success_interval_chooses_by_design() -> None:
    assert success_interval([[True], [False], [True]]) == wilson_interval(2, 3)
    assert success_interval([[True, False], [False, False]]) == bootstrap_interval([0.5, 0.0])
