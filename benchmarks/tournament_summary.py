"""What the results folder of a tournament says, as numbers: one pass over its lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.cost import CostTally, Prices
from benchmarks.outcomes import POINTS, Tally, forfeiters, outcomes
from benchmarks.ratings import Estimate, Game, elo_lead, rate, share_estimate
from benchmarks.results import EPISODES, ERRORS, read_config, read_lines
from benchmarks.run_state import run_state

__all__ = ["Table", "is_tournament", "summarize_tournament"]


@dataclass
class _Spent:
    turns: int = 0
    invalid: int = 0
    cut: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    paid: float = 0.0


@dataclass
class Table:
    """Counts of a tournament, game by game.

    Attributes:
        matches: Who sits first and who second, by sample.
        games: The games so far.
        met: Results of the first seat, by (first, second).
        forfeits: Games that a player forfeited, by (player, other).
        spent: Turns, tokens and returns by player.
    """

    matches: Sequence[tuple[str, str]]
    games: list[Game] = field(default_factory=list)
    met: dict[tuple[str, str], Tally] = field(default_factory=dict)
    forfeits: dict[tuple[str, str], int] = field(default_factory=dict)
    spent: dict[str, _Spent] = field(default_factory=dict)

    def add(self, episode: Mapping[str, Any]) -> None:
        """Count one game, from the record of its episode."""
        match = self.matches[episode["sample"]]
        seats = dict(zip(episode["reward_parts"], match, strict=True))
        first = next(iter(seats))
        outcome = outcomes(episode)[first]
        gave_up = forfeiters(episode)
        self.games.append(Game(episode["task_index"], match[0], match[1], POINTS[outcome]))
        self.met.setdefault(match, Tally()).add(outcome, forfeited=first in gave_up)
        for agent in gave_up:
            name = seats[agent]
            pair = (name, match[1] if name == match[0] else match[0])
            self.forfeits[pair] = self.forfeits.get(pair, 0) + 1
        for agent, name in seats.items():
            self.spent.setdefault(name, _Spent()).paid += episode["returns"][agent]
        for turn in episode["turns"]:
            spent = self.spent.setdefault(seats[turn["agent"]], _Spent())
            spent.turns += 1
            spent.invalid += turn["invalid"] is not None
            spent.cut += turn["finish_reason"] == "length"
            spent.tokens_in += turn["prompt_tokens"]
            spent.tokens_out += turn["completion_tokens"]

    @property
    def players(self) -> list[str]:
        """All players, sorted by name."""
        return sorted({name for match in self.matches for name in match})

    def of(self, player: str) -> Tally:
        """Return the results of a player in all its games."""
        total = Tally(forfeit=sum(count for (name, _), count in self.forfeits.items() if name == player))
        for (first, second), tally in self.met.items():
            if player == first:
                total = _sum(total, tally)
            elif player == second:
                total = _sum(total, _turned(tally))
        return total

    def headline(self) -> str:
        """Return the share of the points by player, best first: ``minimax 85 %, random 15 %``."""
        shares = {name: tally.points / tally.games for name in self.players if (tally := self.of(name)).games}
        ranked = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(f"{name} {100 * share:.0f} %" for name, share in ranked) or "–"


def is_tournament(config: Mapping[str, Any]) -> bool:
    """Whether a results folder with this configuration holds a tournament."""
    return "tournament" in config["identity"]


def summarize_tournament(path: str | Path, prices: Prices | None = None) -> dict[str, Any]:
    """Read the results folder of a tournament, complete or not.

    Args:
        path: The folder.
        prices: What tokens cost; None leaves the ``cost`` of the players, a mean per game, None.

    Returns:
        A JSON object. ``players`` are in the order of their ratings; ``elo`` is explained in
        :mod:`benchmarks.ratings`, with the mean of all players as 0. ``score`` is the share of the points: a win counts
        1 and a draw 1/2, whatever the game pays for it; ``return`` is what it paid, a mean per game. A forfeit is a
        loss for who forfeits and a win for the other, and is counted on its own besides. ``first_seat`` is what whoever
        sits first gets out of all games. Intervals are 95 %, by deal. Where no game was played yet, estimates are None.

    Raises:
        ResultsError: If it is no results folder or a line of it cannot be read.
    """
    path = Path(path)
    config = read_config(path)
    identity = config["identity"]
    entered = identity["tournament"]["players"]
    table = Table([(first, second) for first, second in identity["tournament"]["matches"]])
    seen = set()
    for episode in read_lines(path, EPISODES):
        seen.add(episode["id"])
        table.add(episode)
    failed = {record["id"] for record in read_lines(path, ERRORS)} - seen
    planned = identity["n"] * identity["samples"]
    ratings = rate(table.games, table.players) if table.games else None
    order = table.players
    if ratings is not None:
        order = sorted(order, key=lambda name: (-ratings.elo[name].value, name))
    return {
        "run": str(path),
        "env": identity["env"],
        "tasks": identity["tasks"],
        "deals": identity["n"],
        "seed": identity["seed"],
        "planned": planned,
        "episodes": len(seen),
        "failed": len(failed),
        "complete": len(seen) == planned,
        **run_state(path, complete=len(seen) == planned),
        "anchor": "the mean of all ratings is 0",
        "virtual_draws": 0.0 if ratings is None else ratings.virtual_draws,
        "players": {
            name: {
                "policy": entered[name]["label"],
                "options": entered[name]["options"],
                "elo": None if ratings is None else _estimate(ratings.elo[name]),
                **_player(table, name),
                "cost": None if prices is None else _cost(table, name, entered[name], prices),
            }
            for name in order
        },
        "pairings": [_pairing(table, one, two) for one, two in combinations(order, 2)],
        "first_seat": _first_seat(table),
    }


def _player(table: Table, name: str) -> dict[str, Any]:
    tally, spent = table.of(name), table.spent.get(name, _Spent())
    return {
        "games": tally.games,
        **tally.to_dict(),
        "score": _score(table.games, name),
        "return": spent.paid / tally.games if tally.games else None,
        "turns": spent.turns / tally.games if tally.games else None,
        "invalid_rate": spent.invalid / spent.turns if spent.turns else None,
        "cut_rate": spent.cut / spent.turns if spent.turns else None,
        "tokens_out": spent.tokens_out / tally.games if spent.tokens_out else None,
    }


def _cost(table: Table, name: str, entrant: Mapping[str, Any], prices: Prices) -> dict[str, Any]:
    """Return what a game cost a player; ``game`` is None where that is not known."""
    tally, spent = CostTally(), table.spent.get(name, _Spent())
    tally.add(entrant["spec"], spent.tokens_in, spent.tokens_out)
    total, games = tally.total(prices), table.of(name).games
    return {"currency": prices.currency, "game": total / games if total is not None and games else None}


def _pairing(table: Table, one: str, two: str) -> dict[str, Any]:
    """Return what ``one`` got against ``two``, in either seat."""
    first = table.met.get((one, two), Tally())
    second = _turned(table.met.get((two, one), Tally()))
    between = [game for game in table.games if {game.first, game.second} == {one, two}]
    return {
        "players": [one, two],
        "games": first.games + second.games,
        "as_first": _counts(first),
        "as_second": _counts(second),
        "forfeits": {one: table.forfeits.get((one, two), 0), two: table.forfeits.get((two, one), 0)},
        "score": _score(between, one),
    }


def _first_seat(table: Table) -> dict[str, Any]:
    total = Tally()
    for tally in table.met.values():
        total = _sum(total, tally)
    seats = [Game(game.deal, "first", "second", game.score) for game in table.games]
    share = share_estimate(seats, "first")
    inside = share is not None and 0 < share.value < 1
    elo = _estimate(Estimate(*map(elo_lead, share))) if share is not None and inside else None
    return {"games": total.games, **_counts(total), "score": _estimate(share) if share else None, "elo": elo}


def _score(games: Iterable[Game], name: str) -> dict[str, Any] | None:
    share = share_estimate((game for game in games if name in (game.first, game.second)), name)
    return None if share is None else _estimate(share)


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "interval": [estimate.low, estimate.high]}


def _counts(tally: Tally) -> dict[str, int]:
    return {"wins": tally.win, "draws": tally.draw, "losses": tally.loss}


def _turned(tally: Tally) -> Tally:
    """Return the same games as the other side sees them; who forfeited is not known from here."""
    return Tally(tally.loss, tally.draw, tally.win)


def _sum(one: Tally, two: Tally) -> Tally:
    """Return the games of both; forfeits stay those of ``one``."""
    return Tally(one.win + two.win, one.draw + two.draw, one.loss + two.loss, one.forfeit)
