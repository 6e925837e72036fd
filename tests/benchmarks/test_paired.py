"""Paired tests: by hand, against independent formulas, by law, and how often they reject where nothing differs."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benchmarks.metrics import bootstrap_interval, resampled_means, student_quantile, wilson_interval
from benchmarks.paired import holm, paired_difference, sign_test

DRAWS = 2000
NEAR_95 = 0.015
BITS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40)
SHARES = st.lists(st.tuples(*[st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])] * 2), min_size=2, max_size=30)


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (5, 0, 0.0625), (6, 0, 0.03125), (0, 6, 0.03125), (3, 3, 1.0), (8, 2, 112 / 1024)],
)
def test_mcnemar_by_hand(better: int, worse: int, p: float) -> None:
    # 8 against 2: 2 (1 + 10 + 45) / 2^10.
    first = [1.0] * better + [0.0] * worse + [1.0, 0.0]
    second = [0.0] * better + [1.0] * worse + [1.0, 0.0]
    assert sign_test(first, second) == (better, worse, pytest.approx(p, rel=1e-12))


@given(BITS)
def test_mcnemar_is_the_exact_binomial_test(pairs: list[tuple[bool, bool]]) -> None:
    first, second = np.array(pairs, dtype=float).T
    found = sign_test(first, second)
    untied = found.better + found.worse
    expected = stats.binomtest(found.better, untied).pvalue if untied else 1.0
    assert found.p == pytest.approx(expected, rel=1e-9)
    assert sign_test(second, first) == (found.worse, found.better, found.p)


def test_mcnemar_of_many_tasks() -> None:
    first, second = np.ones(3000), np.zeros(3000)
    second[:1400] = 1
    first[:1400] = 0
    assert sign_test(first, second).p == pytest.approx(stats.binomtest(1400, 3000).pvalue, rel=1e-9)


def test_holm_by_hand() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}) == pytest.approx(
        {"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02}
    )
    assert holm({"a": 0.7, "b": 0.6}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=8))
def test_holm_laws(values: dict[str, float]) -> None:
    adjusted = holm(values)
    assert list(adjusted) == list(values)
    for name, p in values.items():
        assert p <= adjusted[name] <= min(1.0, len(values) * p) + 1e-12
        assert all(adjusted[name] <= adjusted[other] for other, q in values.items() if p < q)


def every_resample(differences: list[float]) -> float:
    """Return the p-value of the symmetric bootstrap-t by going through all n^n resamples."""
    n = len(differences)
    mean, spread = np.mean(differences), np.std(differences, ddof=1)
    hits = 0
    for chosen in product(differences, repeat=n):
        moved, s = abs(np.mean(chosen) - mean), np.std(chosen, ddof=1)
        t = math.inf if s < 1e-9 and moved > 1e-9 else 0.0 if s < 1e-9 else moved / s
        hits += t >= abs(mean) / spread - 1e-12
    return hits / n**n


@pytest.mark.parametrize("differences", [[1.0, 1.0, 0.0, 0.0, -0.5], [1, 1, 1, 0, 1], [0.25, -0.5, 0.75, 0.5, 0.0]])
def test_bootstrap_p_against_all_resamples(differences: list[float]) -> None:
    found = paired_difference(differences, [0.0] * len(differences), resamples=40_000)
    expected = every_resample(differences)
    assert found.p == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 40_000))


@settings(max_examples=60)
@given(SHARES)
def test_difference_laws(pairs: list[tuple[float, float]]) -> None:
    first, second = np.array(pairs).T
    found = paired_difference(first, second, resamples=400)
    assert found.value == pytest.approx(first.mean() - second.mean())
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert 0 < found.p <= 1
    other = paired_difference(second, first, resamples=400)
    assert other.value == pytest.approx(-found.value)
    order = np.random.default_rng(0).permutation(len(first))
    assert paired_difference(first[order], second[order], resamples=400) == pytest.approx(found)
    if len(set(np.round(first - second, 9))) > 1:  # the interval and the test say the same thing
        assert (found.p < 0.05 - 0.01) <= (not found.low <= 0 <= found.high)
        assert (not found.low <= 1e-9 and found.high >= -1e-9) <= (found.p < 0.05 + 0.01)


def test_equal_differences_have_an_interval_and_no_false_certainty() -> None:
    share = wilson_interval(20, 20)[0]
    same = paired_difference([1, 0] * 10, [1, 0] * 10)
    assert same == (0.0, pytest.approx(share - 1), pytest.approx(1 - share), 1.0)
    always = paired_difference([1.0] * 4, [0.0] * 4)
    assert always.p == sign_test([1.0] * 4, [0.0] * 4).p == 0.125  # four tasks cannot say more
    assert always.high == 1.0
    assert always.low == pytest.approx(2 * wilson_interval(4, 4)[0] - 1)
    assert paired_difference([3.0] * 4, [1.0] * 4, span=None)[:3] == (2.0, 2.0, 2.0)
    assert paired_difference([1.0], [0.0]).p == 1.0


def test_large_numbers_lose_nothing_to_rounding() -> None:
    generator = np.random.default_rng(3)
    first, second = generator.normal(0, 1, 30), generator.normal(0, 1, 30)
    small = paired_difference(first, second, span=None)
    large = paired_difference(1e6 + first, 1e6 + second, span=None)
    assert large == pytest.approx(small, abs=1e-6)


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [1.0, 0.0]), ([[1.0]], [[1.0]])])
def test_what_cannot_be_paired(first: list[float], second: list[float]) -> None:
    for test in (paired_difference, sign_test):
        with pytest.raises(ValueError, match="one value a task of both runs"):
            test(first, second)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 30, 1000])
@pytest.mark.parametrize("probability", [0.9, 0.975, 0.995])
def test_students_quantile(freedom: int, probability: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=0.03)
    if freedom > 3:
        assert student_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=0.006)


def test_resampled_means_are_those_of_resampled_tasks() -> None:
    values = np.array([0.0, 0.0, 0.25, 1.0, 1.0, 0.5])
    means = resampled_means(values, resamples=40_000)
    chosen = np.random.default_rng(5).integers(0, 6, size=(40_000, 6))
    plain = values[chosen].mean(axis=1)
    assert stats.ks_2samp(means, plain).statistic < 0.015
    assert means.mean() == pytest.approx(values.mean(), abs=0.005)
    assert means.std() == pytest.approx(values.std() / math.sqrt(6), rel=0.02)


@given(st.integers(1, 40), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_equal_tasks_allow_for_others(n: int, value: float) -> None:
    low, high = bootstrap_interval([value] * n)
    wilson = Fraction(wilson_interval(n, n)[0])
    assert low == pytest.approx(float(wilson * Fraction(value)))
    assert high == pytest.approx(float(wilson * Fraction(value) + (1 - wilson)))
    assert bootstrap_interval([value] * n, bounds=None) == (value, value)


def draw(generator: np.random.Generator, tasks: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the solved share by task of two runs that are equally good at every task."""
    difficulty = generator.beta(0.7, 0.7, size=tasks)
    one, two = (generator.random((2, tasks, samples)) < difficulty[:, None]).mean(axis=2)
    return one, two


@pytest.mark.parametrize(("tasks", "samples"), [(100, 1), (60, 4)])
def test_paired_tests_reject_at_the_stated_rate(tasks: int, samples: int) -> None:
    generator = np.random.default_rng(17 * tasks)
    rejected = covered = by_signs = 0
    stated = []
    for seed in range(DRAWS):
        one, two = draw(generator, tasks, samples)
        found, signs = paired_difference(one, two, resamples=1000, seed=seed), sign_test(one, two)
        rejected += found.p <= 0.05
        covered += found.low <= 0 <= found.high
        by_signs += signs.p <= 0.05
        untied = signs.better + signs.worse
        ways = stats.binom.pmf(np.arange(untied + 1), untied, 0.5)
        tail = np.minimum(1, 2 * np.minimum(np.cumsum(ways), np.cumsum(ways[::-1])[::-1]))
        stated.append(ways[tail <= 0.05 + 1e-12].sum())
    assert rejected / DRAWS == pytest.approx(0.05, abs=NEAR_95)
    assert covered / DRAWS == pytest.approx(0.95, abs=NEAR_95)
    # The exact test rejects as often as so many coins can, which is at most 5 %.
    assert by_signs / DRAWS == pytest.approx(np.mean(stated), abs=NEAR_95)
    assert np.mean(stated) <= 0.05


def test_few_tasks_are_not_taken_for_many() -> None:
    generator = np.random.default_rng(4)
    rejected = 0
    for seed in range(1000):
        one, two = draw(generator, 10, 4)
        rejected += paired_difference(one, two, resamples=500, seed=seed).p <= 0.05
    assert rejected / 1000 <= 0.055


def test_a_real_difference_is_found_and_pairing_is_what_finds_it() -> None:
    generator = np.random.default_rng(9)
    paired = unpaired = 0
    for seed in range(200):
        difficulty = generator.beta(0.3, 0.3, size=80)
        one = (generator.random((80, 4)) < np.minimum(difficulty + 0.08, 1)[:, None]).mean(axis=1)
        two = (generator.random((80, 4)) < difficulty[:, None]).mean(axis=1)
        paired += paired_difference(one, two, resamples=500, seed=seed).p < 0.05
        unpaired += stats.ttest_ind(one, two).pvalue < 0.05
    assert paired > 110
    assert unpaired < 60
