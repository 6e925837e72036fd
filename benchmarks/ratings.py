r"""Ratings of the players of a tournament: the Bradley–Terry model on the Elo scale, with intervals by deal.

Player i scores against player j with the expectation

.. math:: E_{ij} = \frac{1}{1 + 10^{-(R_i - R_j)/400}}

(Bradley & Terry 1952, "Rank analysis of incomplete block designs I"; the scale is Elo's). A win is one point, a draw
half a point each, so 75 % of the points is a lead of 190.8. The ratings maximise the likelihood (Ford 1957); their mean
is 0, which is the anchor.

Who sits first does not enter the model: in a tournament every deal is played in both seats, so that the seat's
advantage cancels. :func:`share_estimate` measures it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.metrics import BOOTSTRAP_SEED, CONFIDENCE, RESAMPLES

__all__ = [
    "ELO_PER_NAT",
    "VIRTUAL_DRAWS",
    "Estimate",
    "Game",
    "Ratings",
    "bradley_terry",
    "elo_lead",
    "has_finite_maximum",
    "rate",
    "share_estimate",
]

ELO_PER_NAT = 400 / math.log(10)
"""Elo points of one unit of log-odds."""

VIRTUAL_DRAWS = 0.5
"""Draws added to every pairing where the likelihood has no finite maximum."""

_PRIOR_GAMES = 0.5  # won and lost, of Jeffreys' prior, in every pairing of a resample
_TOLERANCE = 1e-10  # of the gradient, in points a game
_MAX_STEPS = 200
_MAX_MOVE = 3.0  # nats a step

Floats = NDArray[np.float64]


class Game(NamedTuple):
    """One game of a tournament.

    Attributes:
        deal: Which deal was played; games of one deal are not taken as independent.
        first: Who sat first.
        second: Who sat second.
        score: Points of ``first``: 1 for a win, 0.5 for a draw, 0 for a loss.
    """

    deal: int
    first: str
    second: str
    score: float


class Estimate(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Ratings:
    """What :func:`rate` finds.

    Attributes:
        elo: Rating of every player, with its interval; the mean of the ratings is 0.
        virtual_draws: Draws that were added to every pairing to keep the ratings finite, or 0.
    """

    elo: dict[str, Estimate]
    virtual_draws: float


def elo_lead(score: float) -> float:
    """Return the lead in Elo at which a player is expected to take this share of the points.

    Example:
        >>> round(elo_lead(0.75), 1)
        190.8
    """
    if not 0 < score < 1:
        raise ValueError(f"Only a share of the points strictly between 0 and 1 has a lead, got {score!r}")
    return ELO_PER_NAT * math.log(score / (1 - score))


def has_finite_maximum(points: ArrayLike) -> bool:
    """Whether the likelihood of these points has a finite maximum, up to a shift of all ratings.

    It has exactly if there is no way to part the players in two groups of which one took no point from the other: if
    the graph with an edge from each player to those it took points from is strongly connected (Ford 1957, "Solution of
    a ranking problem from binary comparisons").

    Args:
        points: ``points[..., i, j]`` are the points of player i against player j, shape (..., players, players).
            Of several tournaments all must have a maximum.
    """
    reach = np.asarray(points) > 0
    players = reach.shape[-1]
    for via in range(players):
        reach = reach | (reach[..., :, [via]] & reach[..., [via], :])
    return bool((reach | np.eye(players, dtype=bool)).all())


def bradley_terry(points: ArrayLike) -> Floats:
    """Return the maximum-likelihood ratings.

    Newton's method with halved steps, on any number of tournaments at once.

    Args:
        points: ``points[..., i, j]`` are the points of player i against player j, not negative, of any real size;
            shape (..., players, players). The diagonal is not read.

    Returns:
        Ratings in Elo with mean 0, shape (..., players).

    Raises:
        ValueError: If the shape is wrong, or there is no finite maximum (see :func:`has_finite_maximum`).

    Example:
        >>> bradley_terry([[0, 15], [5, 0]]).round(1).tolist()
        [95.4, -95.4]
    """
    points = np.array(points, dtype=np.float64)
    if points.ndim < 2 or points.shape[-1] != points.shape[-2] or not (points >= 0).all():
        raise ValueError(f"Need points that are not negative, shape (..., players, players), got shape {points.shape}")
    players = points.shape[-1]
    flat = points.reshape(-1, players, players)
    flat[:, np.arange(players), np.arange(players)] = 0.0
    if not has_finite_maximum(flat):
        raise ValueError("The likelihood of these points has no finite maximum: some players took none from the others")
    theta = np.zeros((len(flat), players))
    games = flat + flat.swapaxes(1, 2)
    total = np.maximum(games.sum(axis=(1, 2)) / 2, 1e-300)
    open_ = np.arange(len(flat))
    for _ in range(_MAX_STEPS):
        gradient, information = _derivatives(flat[open_], games[open_], theta[open_])
        left = np.abs(gradient).max(axis=1) > _TOLERANCE * total[open_]
        open_, gradient, information = open_[left], gradient[left], information[left]
        if not len(open_):
            centred = (theta - theta.mean(axis=1, keepdims=True)) * ELO_PER_NAT
            return centred.reshape(points.shape[:-1])
        # All ratings may be shifted alike: filling that direction in makes the matrix invertible, and changes no step.
        scale = information.trace(axis1=1, axis2=2)[:, None, None] / players**2
        step = np.linalg.solve(information + scale, gradient[..., None])[..., 0]
        step *= np.minimum(1.0, _MAX_MOVE / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300))
        theta[open_] = _climb(flat[open_], theta[open_], step)
    raise ValueError(f"The fit did not converge in {_MAX_STEPS} steps; the points differ by too many orders")


def rate(
    games: Iterable[Game],
    players: Sequence[str],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
) -> Ratings:
    """Rate the players of a tournament.

    Where the likelihood has no finite maximum (someone won everything, say), :data:`VIRTUAL_DRAWS` draws are added to
    every pairing; otherwise nothing is.

    The intervals are percentiles of a Bayesian bootstrap by deal (Rubin 1981, "The Bayesian bootstrap"): each resample
    weighs every deal, with all games that were played of it, by a gamma variate of mean 1 and shape 1 - 2/deals (with
    Rubin's shape of 1 the intervals of few deals are too narrow), and adds to every pairing a Gamma(½) variate of games
    won and one of games lost. Those are Jeffreys' prior of a proportion: they keep an interval from having no width
    where all games of a pairing went the same way, and hardly matter elsewhere.

    Args:
        games: The games, in any order.
        players: Who took part. Their order, too, changes nothing.
        confidence: Coverage of the intervals.
        resamples: Number of resamples.
        seed: Of the resampling; the same games give the same intervals.

    Raises:
        ValueError: If there are not two players, a name comes twice, or a game has a player that is not among them.
    """
    names = sorted(players)
    if len(set(names)) != len(names) or len(names) < 2:
        raise ValueError(f"Need at least two players of different names, got {list(players)}")
    by_deal = _points_by_deal(games, names)
    points = by_deal.sum(axis=0)
    virtual = 0.0 if has_finite_maximum(points) else VIRTUAL_DRAWS
    values = bradley_terry(points + virtual / 2)
    drawn = bradley_terry(_resample(by_deal, resamples, seed))
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], axis=0)
    elo = {name: Estimate(float(values[i]), float(low[i]), float(high[i])) for i, name in enumerate(names)}
    return Ratings({name: elo[name] for name in players}, virtual)


def share_estimate(
    games: Iterable[Game],
    player: str,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
) -> Estimate | None:
    """Return the share of the points that a player took, with an interval as in :func:`rate`; None of no game.

    Of games in which ``player`` is called by its seat it is the advantage of that seat: with every deal in both seats
    the strength of the players cancels, and 0.5 means that the seat does not matter.

    Args:
        games: Games of ``player``, against anyone.
        player: Whose share it is.
        confidence: Coverage of the interval.
        resamples: Number of resamples.
        seed: Of the resampling.
    """
    mine = [
        Game(game.deal, "it", "others", game.score if game.first == player else 1 - game.score)
        for game in games
        if player in (game.first, game.second)
    ]
    if not mine:
        return None
    drawn = _resample(_points_by_deal(mine, ["it", "others"]), resamples, seed)
    shares = drawn[:, 0, 1] / (drawn[:, 0, 1] + drawn[:, 1, 0])
    tail = (1 - confidence) / 2
    low, high = np.quantile(shares, [tail, 1 - tail])
    return Estimate(sum(game.score for game in mine) / len(mine), float(low), float(high))


def _points_by_deal(games: Iterable[Game], names: Sequence[str]) -> Floats:
    """Return ``points[deal, i, j]``; deals in ascending order, one empty one if there is none."""
    games = list(games)
    position = {name: index for index, name in enumerate(names)}
    row = {deal: index for index, deal in enumerate(sorted({game.deal for game in games}))}
    points = np.zeros((max(1, len(row)), len(names), len(names)))
    for game in games:
        for name in (game.first, game.second):
            if name not in position:
                raise ValueError(f"{name!r} played a game but is not among the players {list(names)}")
        first, second = position[game.first], position[game.second]
        points[row[game.deal], first, second] += game.score
        points[row[game.deal], second, first] += 1 - game.score
    return points


def _resample(by_deal: Floats, resamples: int, seed: int) -> Floats:
    """Return the points of ``resamples`` tournaments, shape (resamples, players, players)."""
    generator = np.random.default_rng(seed)
    deals, players, _ = by_deal.shape
    # With this shape the variance of a resampled mean is s²/deals, s² the unbiased variance; it needs three deals.
    shape = max(deals - 2, 1) / max(deals, 3)
    weights = generator.gamma(shape, 1 / shape, size=(resamples, deals))
    drawn = np.tensordot(weights, by_deal, axes=1)
    prior = generator.gamma(_PRIOR_GAMES, size=(resamples, players, players))
    # A variate that is zero in floating point would leave no finite maximum.
    return drawn + np.maximum(prior, 1e-12)


def _derivatives(points: Floats, games: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """Return the gradient (n, players) of the log-likelihood and its negative Hessian (n, players, players)."""
    expected = _logistic(theta[:, :, None] - theta[:, None, :])
    gradient = (points - games * expected).sum(axis=2)
    weights = games * expected * expected.swapaxes(1, 2)
    information = -weights
    diagonal = np.arange(theta.shape[1])
    information[:, diagonal, diagonal] = weights.sum(axis=2) - weights[:, diagonal, diagonal]
    return gradient, information


def _climb(points: Floats, theta: Floats, step: Floats) -> Floats:
    """Return ``theta + step``, with the step halved wherever it would lower the likelihood."""
    before = _log_likelihood(points, theta)
    size = np.ones((len(theta), 1))
    for _ in range(40):
        moved = theta + size * step
        worse = _log_likelihood(points, moved) < before - 1e-12 * np.abs(before)
        if not worse.any():
            return moved
        size[worse] /= 2
    return theta + size * step


def _log_likelihood(points: Floats, theta: Floats) -> Floats:
    lead = theta[:, :, None] - theta[:, None, :]
    return -(points * np.logaddexp(0.0, -lead)).sum(axis=(1, 2))


def _logistic(x: Floats) -> Floats:
    return np.exp(-np.logaddexp(0.0, -x))
