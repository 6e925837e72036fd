"""The position of a game as OpenSpiel knows it: read off its own environments, replayed for ours."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gymnasium import error

if TYPE_CHECKING:
    import pyspiel

_TOKEN = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True)
class Position:
    """Where a game stands.

    Attributes:
        game: The game.
        state: Its state, with ``player`` to move. A copy: it may be changed.
        player: Index of the player to move.
        texts: Action text of every legal move that is not its number in brackets.
    """

    game: pyspiel.Game
    state: pyspiel.State
    player: int
    texts: Mapping[int, str]

    def text(self, move: int) -> str:
        """Return the action text of a legal move."""
        return self.texts.get(move, f"[{move}]")


@dataclass(frozen=True)
class _Twin:
    """How an environment of ours looks in OpenSpiel: the game, its chance events, its moves, and which were played."""

    name: str
    parameters: Callable[[Any], Mapping[str, Any]] = lambda env: {}
    chance: Callable[[Any], list[int]] = lambda env: []
    moves: Mapping[str, int] | None = None
    played: Callable[[Any], str] = lambda env: env._history


def _moves_of_the_hand(env: Any) -> str:
    """The hand that is played now: hands do not depend on each other, and OpenSpiel knows one."""
    tokens = _TOKEN.findall(env._history)
    return "".join(f"[{token}]" for token in tokens[len(tokens) - len(env._line) :])


def _board_size(env: Any) -> dict[str, int]:
    rules = env._board.game
    return {"rows": rules.height, "columns": rules.width, "x_in_row": rules.connect}


_TWINS = {
    "tictactoe": _Twin("tic_tac_toe"),
    "connect_four": _Twin("connect_four", parameters=_board_size),
    "kuhn_poker": _Twin(
        "kuhn_poker",
        chance=lambda env: list(env._hand.cards),
        moves={"check": 0, "bet": 1, "call": 1, "fold": 0},
        played=_moves_of_the_hand,
    ),
}


def name_of(env: Any) -> str:
    """Return the id of an environment, or its name where it is not registered."""
    spec = getattr(env, "spec", None)
    return str(spec.id) if spec is not None else str(env.metadata.get("name", type(env).__name__))


def game_of(env: Any) -> pyspiel.Game:
    """Return the OpenSpiel game that an environment plays.

    Raises:
        gymnasium.error.DependencyNotInstalled: OpenSpiel is not installed.
        gymnasium.error.Error: OpenSpiel does not know the game.
    """
    if _is_openspiel(env):
        return env.rules.game
    twin = _twin(env)
    return _load(twin.name, tuple(sorted(twin.parameters(env).items())))


def read(env: Any, agent: str) -> Position:
    """Return the position of an environment in which ``agent`` is to move.

    Raises:
        gymnasium.error.DependencyNotInstalled: OpenSpiel is not installed.
        gymnasium.error.Error: OpenSpiel does not know the game, or ``agent`` is not to move.
    """
    if agent not in env.round_agents:
        raise error.Error(f"{agent} has no legal move in {name_of(env)}: it is not to move.")
    player = env.possible_agents.index(agent)
    if _is_openspiel(env):
        return Position(env.rules.game, env.match.state.clone(), player, {})
    twin = _twin(env)
    game = game_of(env)
    state = game.new_initial_state()
    for event in twin.chance(env):
        state.apply_action(event)
    names = twin.moves
    for token in _TOKEN.findall(twin.played(env)):  # canonical texts of the moves so far, the opening included
        state.apply_action(int(token) if names is None else names[token])
    texts = {}
    if names is not None:
        legal = set(state.legal_actions())
        offered = set(env.legal_actions(agent))
        texts = {move: f"[{name}]" for name, move in names.items() if move in legal and f"[{name}]" in offered}
    return Position(game, state, state.current_player(), texts)


@lru_cache(maxsize=32)
def can_be_imagined(name: str) -> bool:
    """Whether OpenSpiel can draw another state of a game that a player cannot tell from its own, and describe it.

    Args:
        name: The game with its parameters, as OpenSpiel writes them.
    """
    import pyspiel

    game = pyspiel.load_game(name)
    if not game.get_type().provides_information_state_string:
        return False
    rng = random.Random(0)
    state = game.new_initial_state()
    while state.is_chance_node():
        state.apply_action(rng.choice(state.legal_actions()))
    try:
        state.resample_from_infostate(state.current_player(), rng.random)
    except pyspiel.SpielError:
        return False
    return True


def _is_openspiel(env: Any) -> bool:
    return str(env.metadata.get("name", "")).startswith("openspiel_")


def _twin(env: Any) -> _Twin:
    name = str(env.metadata.get("name", "")).rpartition("_v")[0]
    if name not in _TWINS:
        known = ", ".join(twin.replace("_", "-") for twin in _TWINS)
        raise error.Error(
            f"OpenSpiel does not know {name_of(env)}, so minimax and mcts cannot play it. They know: {known}, and "
            "openspiel/<name>; random and oracle play every game."
        )
    return _TWINS[name]


@lru_cache(maxsize=32)
def _load(name: str, parameters: tuple[tuple[str, Any], ...]) -> pyspiel.Game:
    try:
        import pyspiel
    except ImportError as missing:
        raise error.DependencyNotInstalled(
            "minimax and mcts need OpenSpiel, which is not installed, run `pip install 'llm-envs[games]'`"
        ) from missing
    return pyspiel.load_game(name, dict(parameters))
