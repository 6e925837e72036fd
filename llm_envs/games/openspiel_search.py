"""A sensible move in any OpenSpiel game, for the oracle of the environment: exact where that is cheap, else by search.

===========================================================  ==========================================================
two players, zero-sum, turns, no chance, nothing hidden, and  alpha-beta to the end: a move of the best value
a game tree of about ``SMALL_TREE`` leaves or fewer
turns, nothing hidden, paid at the end                        Monte Carlo tree search (OpenSpiel's own, which also
                                                              proves wins), ``PLIES`` random plies of it
anything else                                                 a legal move drawn at random
===========================================================  ==========================================================

In the last two cases the move is not claimed to be the best one. All three depend on the position and ``seed`` only.
"""

from __future__ import annotations

import math
import random

import pyspiel

from llm_envs.games.openspiel_match import Match

SMALL_TREE = 300_000
"""Estimated number of leaves up to which a game is solved."""

MAX_NODES = 60_000
"""Nodes after which solving is given up: the estimate was too low."""

PLIES = 10_000
"""Length of all random playouts of one tree search together."""

MEMORY = 64
"""Megabytes that one tree search may use."""

SIMULATIONS = (8, 200)
"""Least and greatest number of simulations of one tree search."""


class _TooLarge(Exception):
    """The tree has more than ``MAX_NODES`` nodes."""


def best_move(match: Match, player: int, seed: int) -> int | None:
    """A move of ``player`` by the table above; None if it is not to move.

    Args:
        match: The match; it is not changed.
        player: Whose move is asked for.
        seed: Decides between moves where chance does.
    """
    legal = match.legal(player)
    if len(legal) < 2:
        return legal[0] if legal else None
    if not match.rules.open or match.rules.simultaneous or match.rules.stepwise or match.rules.sampled:
        return random.Random(seed).choice(legal)
    plies, leaves = _probe(match.state, seed)
    if match.rules.zero_sum and match.rules.players == 2 and not match.rules.chance and leaves <= SMALL_TREE:
        try:
            return _Solver().best(match.state, legal)
        except _TooLarge:
            pass
    least, most = SIMULATIONS
    simulations = max(least, min(most, PLIES // max(plies, 1)))
    seed %= 2**31
    playouts = pyspiel.RandomRolloutEvaluator(1, seed)
    bot = pyspiel.MCTSBot(match.game, playouts, math.sqrt(2), simulations, MEMORY, True, seed, False)
    return bot.step(match.state)


def _probe(state: pyspiel.State, seed: int) -> tuple[int, float]:
    """Length of one random playout from ``state``, and the number of leaves if all playouts branched like it."""
    rng, state = random.Random(seed), state.clone()
    plies, leaves = 0, 1.0
    while not state.is_terminal():
        if state.is_chance_node():
            moves, weights = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(rng.choices(moves, weights)[0])
            continue
        legal = state.legal_actions()
        plies, leaves = plies + 1, leaves * len(legal)
        state.apply_action(rng.choice(legal))
    return plies, leaves


class _Solver:
    """Alpha-beta over the whole tree below a position of a two-player zero-sum game."""

    def __init__(self) -> None:
        self.nodes = 0

    def best(self, state: pyspiel.State, legal: list[int]) -> int:
        """The first of the moves of the best value."""
        player = state.current_player()
        best, value = legal[0], -math.inf
        for move in legal:
            child = self._value(state.child(move), player, value, math.inf)
            if child > value:
                best, value = move, child
        return best

    def _value(self, state: pyspiel.State, player: int, alpha: float, beta: float) -> float:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _TooLarge
        if state.is_terminal():
            return float(state.player_return(player))
        mine = state.current_player() == player
        value = -math.inf if mine else math.inf
        for move in state.legal_actions():
            child = self._value(state.child(move), player, alpha, beta)
            if mine:
                value = max(value, child)
                alpha = max(alpha, value)
            else:
                value = min(value, child)
                beta = min(beta, value)
            if alpha >= beta:
                break
        return value
