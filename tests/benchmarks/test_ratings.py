"""Ratings against hand-computed cases, two other ways of fitting, and games of players whose strength is known."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.ratings import (
    ELO_PER_NAT,
    VIRTUAL_DRAWS,
    Game,
    bradley_terry,
    elo_lead,
    has_finite_maximum,
    rate,
    share_estimate,
)


def lead(points: list[list[float]]) -> float:
    first, second = bradley_terry(points)
    return float(first - second)


def test_two_players_by_hand() -> None:
    assert lead([[0, 15], [5, 0]]) == pytest.approx(190.848, abs=1e-3)  # 75 %: 400 log10(3)
    assert lead([[0, 10], [10, 0]]) == pytest.approx(0.0, abs=1e-9)
    assert lead([[0, 10], [1, 0]]) == pytest.approx(400.0, abs=1e-6)
    assert elo_lead(0.25) == pytest.approx(-190.848, abs=1e-3)
    assert elo_lead(10 / 11) == pytest.approx(400.0)
    for score in (0.0, 1.0):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            elo_lead(score)


def test_three_players_by_hand() -> None:
    # 3:1 between neighbours and 9:1 across is consistent with equal steps of 400 log10(3), so it is fitted exactly.
    points = [[0, 3, 9], [1, 0, 3], [1, 1, 0]]
    step = 400 * math.log10(3)
    assert bradley_terry(points) == pytest.approx([step, 0.0, -step], abs=1e-6)


def minorize_maximize(points: np.ndarray, rounds: int = 20_000) -> np.ndarray:
    """Hunter 2004, "MM algorithms for generalized Bradley–Terry models", equation 3: slow, and nothing like Newton."""
    count = len(points)
    strength = np.ones(count)
    for _ in range(rounds):
        fresh = np.array([
            sum(points[i]) / sum((points[i, j] + points[j, i]) / (strength[i] + strength[j])
                                 for j in range(count) if j != i)
            for i in range(count)
        ])  # fmt: skip
        fresh /= np.exp(np.log(fresh).mean())
        if np.abs(fresh / strength - 1).max() < 1e-13:
            break
        strength = fresh
    return ELO_PER_NAT * np.log(strength)


def random_points(seed: int, count: int) -> np.ndarray:
    points = np.random.default_rng(seed).integers(1, 12, size=(count, count)) / 2
    np.fill_diagonal(points, 0)
    return points


@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_minorize_maximize(seed: int) -> None:
    points = random_points(seed, 3 + seed % 3)
    assert has_finite_maximum(points)
    assert bradley_terry(points) == pytest.approx(minorize_maximize(points), abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_logistic_regression(seed: int) -> None:
    optimize = pytest.importorskip("scipy.optimize")
    points = random_points(100 + seed, 5)
    rows = [(i, j, points[i, j]) for i in range(5) for j in range(5) if points[i, j]]
    design = np.zeros((len(rows), 5))
    for row, (i, j, _) in enumerate(rows):
        design[row, i], design[row, j] = 1.0, -1.0
    weights = np.array([weight for _, _, weight in rows])

    def loss(free: np.ndarray) -> float:
        return float(weights @ np.logaddexp(0, -design[:, 1:] @ free))

    found = optimize.minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-10})
    theta = np.concatenate([[0.0], found.x])
    assert bradley_terry(points) == pytest.approx(ELO_PER_NAT * (theta - theta.mean()), abs=1e-2)


@given(st.integers(0, 2**32), st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_laws_of_the_fit(seed: int, count: int) -> None:
    points = np.random.default_rng(seed).gamma(0.4, 5.0, size=(count, count)) + 1e-6
    np.fill_diagonal(points, 0)
    ratings = bradley_terry(points)
    assert ratings.mean() == pytest.approx(0, abs=1e-8)
    # At the maximum everyone took as many points as expected (up to rounding that grows with the leads).
    games = points + points.T
    expected = games / (1 + 10 ** ((ratings[None, :] - ratings[:, None]) / 400))
    assert expected.sum(axis=1) == pytest.approx(points.sum(axis=1), rel=1e-6, abs=1e-6 * games.sum())
    order = np.random.default_rng(seed).permutation(count)
    assert bradley_terry(points[np.ix_(order, order)]) == pytest.approx(ratings[order], abs=1e-3)
    assert bradley_terry(points.T) == pytest.approx(-ratings, abs=1e-3)
    assert bradley_terry(np.stack([points, points.T]))[1] == pytest.approx(-ratings, abs=1e-3)


def test_where_there_is_a_finite_maximum() -> None:
    assert has_finite_maximum([[0, 1], [1, 0]])
    assert not has_finite_maximum([[0, 1], [0, 0]])
    assert has_finite_maximum([[0, 1, 0], [0, 0, 1], [1, 0, 0]])  # a circle
    assert not has_finite_maximum([[0, 1, 9], [1, 0, 9], [0, 0, 0]])  # the third took nothing
    assert not has_finite_maximum([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])  # two groups never met
    with pytest.raises(ValueError, match="no finite maximum"):
        bradley_terry([[0, 1], [0, 0]])
    with pytest.raises(ValueError, match="shape"):
        bradley_terry([1, 2, 3])
    with pytest.raises(ValueError, match="not negative"):
        bradley_terry([[0, -1], [1, 0]])


def both_seats(deals: int, first: str, second: str, score: float) -> list[Game]:
    """``first`` takes ``score`` in either seat."""
    return [
        game
        for deal in range(deals)
        for game in (Game(deal, first, second, score), Game(deal, second, first, 1 - score))
    ]


def test_a_perfect_score_is_kept_finite_by_half_a_draw() -> None:
    ratings = rate(both_seats(10, "a", "b", 1.0), ["a", "b"])
    assert ratings.virtual_draws == VIRTUAL_DRAWS == 0.5
    value, low, high = ratings.elo["a"]
    assert value == pytest.approx(elo_lead(20.25 / 20.5) / 2)  # half of the lead: the mean of the two is 0
    # The interval says what 20 wins of 20 say: not nothing, and not everything (Jeffreys: a share of .88 or more).
    assert 120 < low < 200 < value < high < 2000
    assert rate(both_seats(10, "a", "b", 0.75), ["a", "b"]).virtual_draws == 0.0


def test_draws_only() -> None:
    value, low, high = rate(both_seats(10, "a", "b", 0.5), ["a", "b"]).elo["a"]
    assert value == pytest.approx(0, abs=1e-9)
    assert -40 < low < -5
    assert 5 < high < 40


def test_no_games_and_wrong_games() -> None:
    value, low, high = rate([], ["a", "b"]).elo["a"]
    assert value == 0
    assert low < -500
    assert high > 500
    with pytest.raises(ValueError, match="'c' played a game"):
        rate([Game(0, "a", "c", 1.0)], ["a", "b"])
    for players in (["a"], ["a", "a"]):
        with pytest.raises(ValueError, match="two players of different names"):
            rate([], players)


STRENGTH = {"strong": 200.0, "middle": 0.0, "weak": -200.0}


def simulate(generator: random.Random, deals: int, draws: float) -> list[Game]:
    """Return games of players of known strength; ``draws`` in [0, 1] turns wins and losses into draws, equally."""
    games = []
    for deal in range(deals):
        for first, mine in STRENGTH.items():
            for second, theirs in STRENGTH.items():
                if first != second:
                    win = 1 / (1 + 10 ** ((theirs - mine) / 400))
                    drawn = draws * 2 * min(win, 1 - win)
                    u = generator.random()
                    score = 0.5 if u < drawn else float(u < win + drawn / 2)
                    games.append(Game(deal, first, second, score))
    return games


@pytest.mark.parametrize("draws", [0.0, 0.8])
def test_intervals_cover_the_true_ratings(draws: float) -> None:
    generator = random.Random(3)
    tournaments, inside, width = 200, 0, 0.0
    for _ in range(tournaments):
        for name, (_, low, high) in rate(simulate(generator, 20, draws), list(STRENGTH), resamples=400).elo.items():
            inside += low <= STRENGTH[name] <= high
            width += high - low
    coverage = inside / (3 * tournaments)
    assert 0.91 <= coverage <= 0.98  # 600 intervals, in threes: a standard error of about 1.5 %
    if draws:
        assert width / (3 * tournaments) < 130  # draws say more than a coin: they must not count as two half games


def test_intervals_cover_where_deals_decide() -> None:
    """A deal that decides all its games is one observation, however many games there are of it."""
    generator = random.Random(4)
    inside = 0
    for _ in range(200):
        games = []
        for deal in range(20):
            score = float(generator.random() < 0.5)
            games += [Game(deal, "a", "b", score), Game(deal, "b", "a", 1 - score), Game(deal, "a", "b", score)]
        inside += (estimate := rate(games, ["a", "b"], resamples=400).elo["a"]).low <= 0 <= estimate.high
    assert 0.89 <= inside / 200 <= 0.985


def test_order_changes_nothing() -> None:
    games = simulate(random.Random(5), 8, 0.3)
    ratings = rate(games, list(STRENGTH), resamples=200)
    assert list(ratings.elo) == list(STRENGTH)
    shuffled = random.Random(6).sample(games, len(games))
    again = rate(shuffled, list(reversed(STRENGTH)), resamples=200)
    assert again.elo == ratings.elo
    assert share_estimate(shuffled, "strong") == share_estimate(games, "strong")


def seats(games: list[Game]) -> list[Game]:
    return [Game(game.deal, "first", "second", game.score) for game in games]


def test_the_first_seat_and_the_share_of_a_player() -> None:
    assert share_estimate([], "a") is None
    always_first = [Game(deal, *pair, 1.0) for deal in range(10) for pair in (("a", "b"), ("b", "a"))]
    value, low, high = share_estimate(seats(always_first), "first")  # type: ignore[misc]
    assert value == 1.0
    assert 0.75 < low < 0.95 < high < 1.0
    assert rate(always_first, ["a", "b"]).elo["a"].value == pytest.approx(0, abs=1e-9)  # nobody is stronger
    assert share_estimate(always_first, "b").value == 0.5  # type: ignore[union-attr]
    value, low, high = share_estimate(seats(both_seats(10, "a", "b", 1.0)), "first")  # type: ignore[misc]
    assert value == 0.5
    assert low < 0.5 < high
    assert share_estimate(both_seats(10, "a", "b", 1.0), "b").value == 0.0  # type: ignore[union-attr]
