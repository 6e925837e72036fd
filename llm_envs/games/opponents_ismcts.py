"""Information-set Monte Carlo tree search: one tree over what the players know, over worlds that could be the true one.

Cowling, Powley & Whitehouse 2012, "Information set Monte Carlo tree search", algorithm MO-ISMCTS with one statistic a
move and information set. OpenSpiel's own bot does the same, but its move differs from call to call with one seed.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyspiel

_Node = dict[int, list[float]]  # visits and total return by move


def resampled(state: pyspiel.State, player: int, rng: random.Random) -> pyspiel.State:
    """Return a state that ``player`` cannot tell from ``state``, drawn at random.

    Raises:
        pyspiel.SpielError: OpenSpiel cannot do that for this game.
    """
    return state.resample_from_infostate(player, rng.random)


def search(state: pyspiel.State, *, sims: int, uct_c: float, rollouts: int, rng: random.Random) -> int:
    """Return the move that was visited most; of equals the one that paid best.

    Args:
        state: The position, of a player who is to move. Only what that player knows of it is used.
        sims: Worlds that are imagined, each with one path down the tree.
        uct_c: Exploration constant, in units of the utilities.
        rollouts: Random play-outs a path.
        rng: All randomness.

    Raises:
        pyspiel.SpielError: OpenSpiel cannot imagine other worlds in this game.
    """
    player = state.current_player()
    tree: dict[str, _Node] = {}
    root = state.information_state_string(player)
    for _ in range(sims):
        _simulate(resampled(state, player, rng), tree, uct_c, rollouts, rng)
    node = tree[root]
    return max(sorted(node), key=lambda move: (node[move][0], _mean(node[move])))


def _simulate(world: pyspiel.State, tree: dict[str, _Node], uct_c: float, rollouts: int, rng: random.Random) -> None:
    path: list[tuple[int, list[float]]] = []
    grown = False
    while not world.is_terminal() and not grown:
        if world.is_chance_node():
            world.apply_action(_chance(world, rng))
            continue
        player = world.current_player()
        key = world.information_state_string(player)
        node = tree.get(key)
        if node is None:
            node, grown = {}, True
            tree[key] = node
        move = _select(node, world.legal_actions(), uct_c, rng)
        path.append((player, node.setdefault(move, [0.0, 0.0])))
        world.apply_action(move)
    returns = _play_out(world, rollouts, rng)
    for player, entry in path:
        entry[0] += 1.0
        entry[1] += returns[player]


def _select(node: _Node, legal: list[int], uct_c: float, rng: random.Random) -> int:
    fresh = [move for move in legal if move not in node]
    if fresh:
        return rng.choice(fresh)
    total = math.log(sum(node[move][0] for move in legal))
    return max(legal, key=lambda move: _mean(node[move]) + uct_c * math.sqrt(total / node[move][0]))


def _mean(entry: list[float]) -> float:
    return entry[1] / entry[0]


def _play_out(world: pyspiel.State, rollouts: int, rng: random.Random) -> list[float]:
    if world.is_terminal():
        return list(world.returns())
    totals = [0.0] * world.num_players()
    for _ in range(rollouts):
        end = world.clone()
        while not end.is_terminal():
            end.apply_action(_chance(end, rng) if end.is_chance_node() else rng.choice(end.legal_actions()))
        totals = [total + value for total, value in zip(totals, end.returns(), strict=True)]
    return [total / rollouts for total in totals]


def _chance(state: pyspiel.State, rng: random.Random) -> int:
    moves, weights = zip(*state.chance_outcomes(), strict=True)
    return rng.choices(moves, weights)[0]
