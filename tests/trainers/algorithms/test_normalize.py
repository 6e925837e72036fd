"""Group normalisation: hand-computed cases, and the laws it must keep."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.algorithms.advantages import normalize
from trainers.algorithms.scores import ScoreError

GROUPS = st.lists(
    st.tuples(st.floats(-10, 10, allow_subnormal=False).map(lambda x: round(x, 3)), st.integers(0, 3)),
    min_size=1,
    max_size=24,
)


def test_two_groups_by_hand() -> None:
    # a: mean 2, deviations -1 0 1, ddof 1 -> std 1. b: mean 5, std sqrt(2).
    out = normalize([1, 2, 3, 4, 6], mean_by=list("aaabb"), std_by=list("aaabb"), eps=0)
    np.testing.assert_allclose(out, [-1, 0, 1, -1 / math.sqrt(2), 1 / math.sqrt(2)], rtol=1e-15)


def test_ddof_zero_is_the_population_deviation() -> None:
    out = normalize([0, 2], mean_by=[0, 0], std_by=[0, 0], eps=0, ddof=0)
    np.testing.assert_allclose(out, [-1, 1])


def test_eps_is_added_to_the_deviation() -> None:
    out = normalize([0, 2], mean_by=[0, 0], std_by=[0, 0], eps=1.0, ddof=0)
    np.testing.assert_allclose(out, [-0.5, 0.5])


def test_mean_and_deviation_of_different_groups_use_true_global_statistics() -> None:
    # Agent a: 0, 2 (mean 1). Agent b: 4, 6 (mean 5). All: mean 3, squares 9+1+1+9 = 20, ddof 1 -> var 20/3.
    agents = list("aabb")
    spread = math.sqrt(20 / 3)
    out = normalize([0, 2, 4, 6], mean_by=agents, std_by=[0] * 4, eps=0)
    np.testing.assert_allclose(out, np.array([-1, 1, -1, 1]) / spread)
    out = normalize([0, 2, 4, 6], mean_by=[0] * 4, std_by=agents, eps=0)
    np.testing.assert_allclose(out, np.array([-3, -1, 1, 3]) / math.sqrt(2))


def test_no_mean_and_no_deviation_leave_the_scores() -> None:
    np.testing.assert_array_equal(normalize([3, 4], mean_by=None, std_by=None), [3, 4])


def test_leave_one_out_is_the_mean_of_the_others() -> None:
    r = np.array([1.0, 5.0, 3.0])
    out = normalize(r, mean_by=[0] * 3, std_by=None, leave_one_out=True)
    np.testing.assert_allclose(out, [1 - 4, 5 - 2, 3 - 3])


@pytest.mark.parametrize("std_by", [None, list("abb")])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_singleton_is_zero_not_its_raw_score(std_by: list[str] | None, leave_one_out: bool) -> None:
    out = normalize([7, 1, 2], mean_by=list("abb"), std_by=std_by, leave_one_out=leave_one_out)
    assert out[0] == 0.0
    assert out[1] < 0 < out[2]


def test_singleton_without_a_mean_group_is_zero_through_its_deviation() -> None:
    np.testing.assert_array_equal(normalize([7], mean_by=None, std_by=["a"]), [0])


def test_zero_variance_is_exactly_zero_even_with_rounding_and_without_eps() -> None:
    for scores in ([0.1] * 7, [0.1 + 0.2, 0.3, 0.3]):
        out = normalize(scores, mean_by=[0] * len(scores), std_by=[0] * len(scores), eps=0)
        assert out.tolist() == [0.0] * len(scores)


def test_a_finer_deviation_group_without_variance_does_not_blow_up() -> None:
    # Agent a always scores 1 in a task whose mean is 1.5: (1 - 1.5) / eps would be -500,000.
    out = normalize([1, 1, 1, 3], mean_by=[0] * 4, std_by=list("aabb"))
    assert out[:2].tolist() == [0.0, 0.0]
    assert out[2] < 0 < out[3]


def test_small_but_real_differences_are_not_called_zero_variance() -> None:
    out = normalize([1.0, 1.0 + 1e-9], mean_by=[0, 0], std_by=[0, 0], eps=0)
    np.testing.assert_allclose(np.abs(out), [1 / math.sqrt(2)] * 2, rtol=1e-5)


def test_frequency_weights_count_items_several_times_or_not_at_all() -> None:
    # Statistics of (0, 0, 3): mean 1, std sqrt(3). The third item counts not at all and is still compared.
    out = normalize([0, 3, 5], mean_by=[0] * 3, std_by=[0] * 3, weight=[2, 1, 0], eps=0)
    np.testing.assert_allclose(out, np.array([-1, 2, 4]) / math.sqrt(3))


def test_a_group_in_which_nothing_counts_is_degenerate() -> None:
    np.testing.assert_array_equal(normalize([1, 2], mean_by=[0, 0], std_by=None, weight=[0, 0]), [0, 0])


def test_a_group_that_counts_as_one_item_is_a_singleton() -> None:
    np.testing.assert_array_equal(normalize([1, 2], mean_by=[0, 0], std_by=[0, 0], weight=[0.5, 0.5]), [0, 0])
    np.testing.assert_array_equal(normalize([1, 2], mean_by=[0, 0], std_by=None, weight=[1, 0], ddof=0), [0, 0])


@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_a_missing_score_is_an_error_that_names_the_item(bad: float | None) -> None:
    with pytest.raises(ScoreError, match="item 1 is"):
        normalize([0.0, bad, 1.0], mean_by=[0] * 3, std_by=None)  # type: ignore[list-item]
    with pytest.raises(ScoreError, match="the verifier"):
        normalize([0.0, bad], mean_by=[0] * 2, std_by=None, names=["x", "the verifier"])  # type: ignore[list-item]


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="mean_by has 1 labels for 2 scores"):
        normalize([0, 1], mean_by=[0], std_by=None)
    with pytest.raises(ValueError, match="not negative"):
        normalize([0, 1], mean_by=[0, 0], std_by=None, weight=[1, -1])
    with pytest.raises(ValueError, match="shape"):
        normalize([[0, 1]], mean_by=[0], std_by=None)
    with pytest.raises(ValueError, match="not a number"):
        normalize([0, 1], mean_by=[math.nan, math.nan], std_by=None)
    with pytest.raises(ValueError, match="leave_one_out"):
        normalize([0, 1], mean_by=None, std_by=None, leave_one_out=True)


@given(GROUPS, st.randoms(use_true_random=False))
def test_law_permutation(items: list[tuple[float, int]], random: object) -> None:
    order = list(range(len(items)))
    random.shuffle(order)  # type: ignore[attr-defined]
    scores, labels = zip(*items, strict=True)
    out = normalize(scores, mean_by=labels, std_by=labels)
    moved = normalize([scores[i] for i in order], mean_by=[labels[i] for i in order], std_by=[labels[i] for i in order])
    np.testing.assert_allclose(moved, out[order], atol=1e-9)


@given(GROUPS, st.booleans())
def test_law_sums_to_zero_in_every_group(items: list[tuple[float, int]], leave_one_out: bool) -> None:
    scores, labels = zip(*items, strict=True)
    out = normalize(scores, mean_by=labels, std_by=labels, leave_one_out=leave_one_out)
    for label in set(labels):
        assert abs(sum(a for a, other in zip(out, labels, strict=True) if other == label)) < 1e-8


@given(GROUPS, st.floats(0.01, 100), st.floats(-50, 50))
def test_law_affine_invariance_without_eps(items: list[tuple[float, int]], scale: float, shift: float) -> None:
    scores, labels = np.array([s for s, _ in items]), [label for _, label in items]
    out = normalize(scores, mean_by=labels, std_by=labels, eps=0)
    np.testing.assert_allclose(normalize(scale * scores + shift, mean_by=labels, std_by=labels, eps=0), out, atol=1e-6)


@given(GROUPS, st.floats(0.01, 100), st.floats(-50, 50))
def test_law_without_deviation_shift_invariant_and_scale_equivariant(
    items: list[tuple[float, int]], scale: float, shift: float
) -> None:
    scores, labels = np.array([s for s, _ in items]), [label for _, label in items]
    out = normalize(scores, mean_by=labels, std_by=None)
    np.testing.assert_allclose(normalize(scale * scores + shift, mean_by=labels, std_by=None), scale * out, atol=1e-8)


@given(GROUPS)
def test_law_unit_variance_without_eps(items: list[tuple[float, int]]) -> None:
    scores, labels = np.array([s for s, _ in items]), np.array([label for _, label in items])
    out = normalize(scores, mean_by=labels.tolist(), std_by=labels.tolist(), eps=0)
    for label in set(labels.tolist()):
        group = out[labels == label]
        assert (group == 0).all() or abs(group.std(ddof=1) - 1) < 1e-6


@given(GROUPS)
def test_law_groups_do_not_see_each_other(items: list[tuple[float, int]]) -> None:
    scores, labels = np.array([s for s, _ in items]), np.array([label for _, label in items])
    out = normalize(scores, mean_by=labels.tolist(), std_by=labels.tolist())
    for label in set(labels.tolist()):
        own = labels == label
        alone = normalize(scores[own], mean_by=[0] * own.sum(), std_by=[0] * own.sum())
        np.testing.assert_allclose(out[own], alone, atol=1e-9)


@settings(max_examples=50)
@given(GROUPS)
def test_law_weight_two_is_a_copy(items: list[tuple[float, int]]) -> None:
    scores, labels = (list(x) for x in zip(*items, strict=True))
    out = normalize(scores, mean_by=labels, std_by=labels, weight=[2.0] + [1.0] * (len(scores) - 1))
    copied = normalize([scores[0], *scores], mean_by=[labels[0], *labels], std_by=[labels[0], *labels])
    np.testing.assert_allclose(out, copied[1:], atol=1e-9)
