"""One match of an OpenSpiel game: its position, whose turn it is, and chance that is decided by the deal.

Chance nodes are never seen from outside: :meth:`Match.play` moves on to the next decision. The ``k``-th chance event of
a deal is drawn from a hash of (deal, ``k``). So there is no generator whose state would have to be copied, two matches
of one deal meet the same chance as long as they play the same moves, and a copy costs what a clone of the state costs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyspiel

from llm_envs.tasks import stable_hash

SEED_PARAMETERS = ("rng_seed",)
"""Parameters that seed the generator of a game that samples chance itself; set from the deal."""

HIDES = ("imp_info=True", "fully_obs=False")
"""Parameters that hide something in a game that OpenSpiel lists as of perfect information (goofspiel, laser_tag)."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BRACKETS = str.maketrans("[]", "()")

Event = tuple[int | None, str]
"""Who did what: a player's index, or None for chance, and the name of the move."""


class Rules:
    """A game with its parameters: what stays the same from match to match.

    Args:
        name: OpenSpiel's name of the game.
        parameters: Its parameters; those left out have OpenSpiel's defaults.

    Raises:
        pyspiel.SpielError: OpenSpiel refuses a parameter.
    """

    def __init__(self, name: str, parameters: Mapping[str, Any] | None = None) -> None:
        self.name = name
        self.parameters = dict(parameters or {})
        self.game: pyspiel.Game = pyspiel.load_game(name, self.parameters)
        kind = self.game.get_type()
        self.kind: pyspiel.GameType = kind
        self.players: int = self.game.num_players()
        self.simultaneous: bool = kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS
        self.sampled: bool = kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC
        self.chance: bool = kind.chance_mode != pyspiel.GameType.ChanceMode.DETERMINISTIC
        self.constant_sum: float | None = self.game.utility_sum()
        self.zero_sum: bool = kind.utility == pyspiel.GameType.Utility.ZERO_SUM
        self.shared: bool = kind.utility == pyspiel.GameType.Utility.IDENTICAL
        self.stepwise: bool = kind.reward_model == pyspiel.GameType.RewardModel.REWARDS
        self.one_shot: bool = kind.information == pyspiel.GameType.Information.ONE_SHOT
        accepted = {t.short_name: t for t in pyspiel.registered_games()}[name].parameter_specification
        self.seed_parameter: str | None = next((p for p in SEED_PARAMETERS if p in accepted), None)
        hidden = any(parameter in str(self.game) for parameter in HIDES)
        self.open: bool = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION and not hidden

    def __reduce__(self) -> tuple[Any, ...]:
        return Rules, (self.name, self.parameters)

    def __deepcopy__(self, memo: dict[int, Any]) -> Rules:
        return self

    def seeded(self, seed: int) -> pyspiel.Game:
        """The game for one deal: a game of its own where it samples chance itself, else the shared one."""
        if not self.sampled:
            return self.game
        parameters = self.parameters.copy()
        if self.seed_parameter is not None:
            parameters[self.seed_parameter] = seed % 2**31
        return pyspiel.load_game(self.name, parameters)


class Match:
    """A match of ``rules``. It stands at a decision of one or more players, or is over.

    Args:
        rules: The game.
        seed: Decides all chance events of the match.
    """

    __slots__ = ("_chances", "events", "game", "rules", "seed", "state")

    def __init__(self, rules: Rules, seed: int) -> None:
        self.rules = rules
        self.seed = seed
        self.game = rules.seeded(seed)
        self.state: pyspiel.State = self.game.new_initial_state()
        self._chances = 0
        self.events: tuple[Event, ...] = tuple(self._roll())
        """What happened since the last decision."""

    # ---- whose turn it is ------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether the match has ended."""
        return self.state.is_terminal()

    def movers(self) -> tuple[int, ...]:
        """The players that decide now: all of them at a simultaneous node, none at the end."""
        player = self.state.current_player()
        if player >= 0:
            return (player,)
        return tuple(range(self.rules.players)) if self.state.is_simultaneous_node() else ()

    def legal(self, player: int) -> list[int]:
        """The legal moves of ``player`` as OpenSpiel numbers them; empty unless it decides now."""
        return self.state.legal_actions(player) if player in self.movers() else []

    def names(self, player: int) -> dict[int, str]:
        """The legal moves of ``player`` with their names."""
        return {move: self.name(player, move) for move in self.legal(player)}

    def name(self, player: int, move: int) -> str:
        """The name of a move, without square brackets; a name that is a number stands in quotes."""
        text = " ".join(self.state.action_to_string(player, move).translate(_BRACKETS).split())
        return f'"{text}"' if text.lstrip("-").isdigit() else text

    # ---- playing ---------------------------------------------------------------------------------------------------

    def play(self, moves: Sequence[int]) -> None:
        """Play the move of the player whose turn it is, or one move of every player in a round.

        ``events`` tells what happened, chance included.
        """
        movers = self.movers()
        events: list[Event] = [(player, self.name(player, move)) for player, move in zip(movers, moves, strict=True)]
        self._apply(moves)
        self.events = (*events, *self._roll())

    def _apply(self, moves: Sequence[int]) -> None:
        if self.state.is_simultaneous_node():
            self.state.apply_actions(list(moves))
        else:
            self.state.apply_action(moves[0])

    def _roll(self) -> list[Event]:
        """Decide chance nodes until a player decides or the match is over."""
        events: list[Event] = []
        state = self.state
        while state.is_chance_node():
            outcomes = state.chance_outcomes()
            move = _pick(outcomes, stable_hash("chance", self.seed, self._chances) / 2**64)
            self._chances += 1
            if self.rules.open:
                events.append((None, self.name(pyspiel.PlayerId.CHANCE, move)))
            state.apply_action(move)
        return events

    # ---- what is known and what it pays ----------------------------------------------------------------------------

    def view(self, player: int) -> str:
        """What ``player`` knows of the position now, and nothing else."""
        kind, state = self.rules.kind, self.state
        parts = []
        if kind.provides_information_state_string and not (self.rules.open and kind.provides_observation_string):
            parts.append(state.information_state_string(player))
        if kind.provides_observation_string:
            parts.append(state.observation_string(player))
        texts = [_COLOUR.sub("", part).strip("\n").rstrip() for part in parts]
        return "\n\n".join(dict.fromkeys(text for text in texts if text))

    def board(self) -> str:
        """The whole position, hidden parts included."""
        return _COLOUR.sub("", str(self.state)).strip("\n").rstrip()

    def returns(self) -> list[float]:
        """What each player has earned so far."""
        if self.over or self.rules.stepwise:
            return [float(value) for value in self.state.returns()]
        return [0.0] * self.rules.players

    def winners(self) -> frozenset[int]:
        """Who succeeded, by play: see the table in ``docs/openspiel.md``."""
        earned = self.returns()
        if self.rules.shared or self.rules.players == 1:
            best = math.isclose(earned[0], self.game.max_utility(), rel_tol=1e-9, abs_tol=1e-9)
            return frozenset(range(self.rules.players)) if best else frozenset()
        top = max(earned)
        if math.isclose(top, min(earned), abs_tol=1e-9):
            return frozenset()
        return frozenset(p for p, value in enumerate(earned) if math.isclose(value, top, rel_tol=1e-9, abs_tol=1e-9))

    def forfeited(self, players: Sequence[int]) -> list[float]:
        """What each player has earned in all when ``players`` refuse to go on.

        They have the worst result of the game. In a constant-sum game the others share what is left of the sum (if
        everybody refuses, everybody has the same share); in a cooperative game the worst result is everybody's; in
        any other game the others keep what they have earned so far.
        """
        count, worst = self.rules.players, float(self.game.min_utility())
        constant = self.rules.constant_sum
        if self.rules.shared:
            return [worst] * count
        if constant is None:
            earned = self.returns()
            return [worst if p in players else earned[p] for p in range(count)]
        others = count - len(players)
        if not others:
            return [constant / count] * count
        rest = (constant - worst * len(players)) / others
        return [worst if p in players else rest for p in range(count)]

    # ---- copies ----------------------------------------------------------------------------------------------------

    def copy(self) -> Match:
        """An independent copy."""
        other: Match = object.__new__(Match)
        other.rules, other.seed, other._chances = self.rules, self.seed, self._chances
        other.events = self.events
        if self.rules.sampled:  # the state draws from its game's generator, which a clone would share
            other.game = self.rules.seeded(self.seed)
            other.state = _replayed(other.game, self.state.history())
        else:
            other.game = self.game
            other.state = self.state.clone()
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Match:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.rules, self.seed, self.state.history(), self._chances, self.events)


def _rebuild(rules: Rules, seed: int, history: Sequence[int], chances: int, events: tuple[Event, ...]) -> Match:
    match: Match = object.__new__(Match)
    match.rules, match.seed, match._chances, match.events = rules, seed, chances, events
    match.game = rules.seeded(seed)
    match.state = _replayed(match.game, history)
    return match


def _replayed(game: pyspiel.Game, history: Sequence[int]) -> pyspiel.State:
    """The state after ``history``, in which a simultaneous node takes one move of every player."""
    state, at, players = game.new_initial_state(), 0, game.num_players()
    while at < len(history):
        if state.is_simultaneous_node():
            state.apply_actions(list(history[at : at + players]))
            at += players
        else:
            state.apply_action(history[at])
            at += 1
    return state


def _pick(outcomes: Sequence[tuple[int, float]], point: float) -> int:
    """The outcome at ``point`` of the cumulative distribution; ``point`` is in [0, 1)."""
    total = 0.0
    for move, probability in outcomes:
        total += probability
        if point < total:
            return move
    return outcomes[-1][0]  # the probabilities add up to a little less than 1
