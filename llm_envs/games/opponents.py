"""Scripted opponents: who can be asked for a move in a game, by name, without a model.

=================  =====================================================================================================
``random``         one of the legal moves, all equally likely
``minimax``        alpha-beta search; perfect where the game can be searched to its end
``mcts``           Monte Carlo tree search with random play-outs: OpenSpiel's own, or, where something is hidden, over
                   information sets, so that it does not see what its player does not
``oracle``         what the environment itself calls the best move
=================  =====================================================================================================

Options follow a colon: ``mcts:sims=500,seed=3``. A move depends on the position, the options and the seed that it is
asked with, and on nothing else. ``minimax`` and ``mcts`` need OpenSpiel, the extra ``games``.

>>> import llm_envs
>>> env = llm_envs.make("tictactoe").unwrapped
>>> env.reset(seed=0)
>>> make_opponent("minimax").choose(env, "player_0", seed=1) in env.legal_actions("player_0")
True
"""

from __future__ import annotations

import difflib
import inspect
import json
import random
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from gymnasium import error

from llm_envs.games import opponents_ismcts
from llm_envs.games import opponents_positions as positions
from llm_envs.games.opponents_search import Search
from llm_envs.tasks import stable_hash

if TYPE_CHECKING:
    from llm_envs.core import TextEnv

_REMEMBERED = 50_000  # positions
_MEMORY_MB = 64
_SEEDS = 2**31


class Opponent(ABC):
    """Chooses moves."""

    @abstractmethod
    def choose(self, env: TextEnv, agent: str, seed: int) -> str:
        """Return the action text that ``agent``, who is to move, plays.

        Args:
            env: The unwrapped environment. It is read and not changed.
            agent: Who is to move.
            seed: Decides what is left to chance: same position, same seed, same move.

        Raises:
            gymnasium.error.Error: This opponent does not know the game.
        """

    def check(self, env: TextEnv) -> None:  # noqa: B027  (the default: an opponent for any game)
        """Check that this opponent can play in ``env``, which need not have been reset.

        Raises:
            gymnasium.error.Error: It cannot. The message says why, and who can.
            gymnasium.error.DependencyNotInstalled: OpenSpiel is not installed.
        """


class Random(Opponent):
    """Plays each of the legal moves with equal probability."""

    def choose(self, env: TextEnv, agent: str, seed: int) -> str:
        """Return a legal move."""
        return random_move(env, agent, seed)

    def check(self, env: TextEnv) -> None:
        """Check that the environment lists legal moves."""
        if not has_legal_actions(env):
            raise error.Error(f"{_name(env)} does not list legal moves, so there is no random one.")


class Oracle(Opponent):
    """Plays what the environment itself calls the best move."""

    def choose(self, env: TextEnv, agent: str, seed: int) -> str:
        """Return the oracle's move."""
        return env.oracle(agent)


class Minimax(Opponent):
    """Alpha-beta search, deepened step by step; between moves of equal value the seed decides.

    Args:
        depth: Moves to look ahead at most; None goes on until the position is solved or ``nodes`` are spent. What lies
            beyond counts as a draw.
        nodes: Positions visited a move at most.
        seed: Another seed makes other choices between moves of equal value.

    Raises:
        gymnasium.error.Error: A number is out of its range.
    """

    def __init__(self, depth: int | None = None, nodes: int = 50_000, seed: int = 0) -> None:
        self.depth = None if depth is None else _whole("depth", depth, 1)
        self.nodes = _whole("nodes", nodes, 1)
        self.seed = _whole("seed", seed, 0)
        self._known: OrderedDict[tuple[str, str], list[int]] = OrderedDict()

    def choose(self, env: TextEnv, agent: str, seed: int) -> str:
        """Return a best move of the deepest search that was finished."""
        self.check(env)
        position = positions.read(env, agent)
        key = (str(position.game), position.state.history_str())
        best = self._known.get(key)
        if best is None:
            draw = (position.game.utility_sum() or 0.0) / 2
            best = Search(position.state, draw=draw, nodes=self.nodes).best_moves(self.depth)
            self._known[key] = best
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return position.text(random.Random(stable_hash("minimax", self.seed, seed)).choice(best))

    def check(self, env: TextEnv) -> None:
        """Check that the game is for two, zero-sum, in turns, without chance, and with nothing hidden."""
        game = positions.game_of(env)
        kind = game.get_type()
        against = [
            f"has {game.num_players()} players" if game.num_players() != 2 else "",
            "is not zero-sum" if game.utility_sum() is None else "",
            "is played in rounds" if kind.dynamics.name != "SEQUENTIAL" else "",
            "has chance in it" if kind.chance_mode.name != "DETERMINISTIC" else "",
            "hides information" if kind.information.name != "PERFECT_INFORMATION" else "",
        ]
        reasons = [reason for reason in against if reason]
        if reasons:
            raise error.Error(
                f"minimax cannot play {_name(env)}, which {' and '.join(reasons)}. It searches games of two players in "
                "turns, zero-sum, without chance or hidden information; try mcts, random or oracle."
            )


class MCTS(Opponent):
    """Monte Carlo tree search: OpenSpiel's own, or over information sets where the game hides something.

    Args:
        sims: Simulations a move.
        uct_c: Exploration constant of UCT, in units of the utilities.
        rollouts: Random play-outs a simulation.
        seed: Another seed gives other searches.

    Raises:
        gymnasium.error.Error: A number is out of its range.
    """

    def __init__(self, sims: int = 200, uct_c: float = 2.0, rollouts: int = 1, seed: int = 0) -> None:
        self.sims = _whole("sims", sims, 1)
        self.rollouts = _whole("rollouts", rollouts, 1)
        self.seed = _whole("seed", seed, 0)
        if isinstance(uct_c, bool) or not isinstance(uct_c, int | float) or not 0 <= uct_c < float("inf"):
            raise error.Error(f"`uct_c` must be a number of 0 or more, actual value: {uct_c!r}.")
        self.uct_c = float(uct_c)

    def choose(self, env: TextEnv, agent: str, seed: int) -> str:
        """Return the move that the search prefers."""
        self.check(env)
        position = positions.read(env, agent)
        state, game = position.state, position.game
        legal = state.legal_actions(position.player)
        if len(legal) == 1:
            return position.text(legal[0])
        drawn = stable_hash("mcts", self.seed, seed)
        if game.get_type().information.name != "PERFECT_INFORMATION":
            rng = random.Random(drawn)
            move = opponents_ismcts.search(state, sims=self.sims, uct_c=self.uct_c, rollouts=self.rollouts, rng=rng)
            return position.text(move)
        import pyspiel

        evaluator = pyspiel.RandomRolloutEvaluator(self.rollouts, drawn % _SEEDS)
        bot = pyspiel.MCTSBot(game, evaluator, self.uct_c, self.sims, _MEMORY_MB, True, drawn % _SEEDS, False)
        return position.text(bot.step(state))

    def check(self, env: TextEnv) -> None:
        """Check that the game is played in turns and that OpenSpiel can search it."""
        game = positions.game_of(env)
        kind = game.get_type()
        reason = ""
        if kind.dynamics.name != "SEQUENTIAL":
            reason = "it is played in rounds"
        elif kind.chance_mode.name == "SAMPLED_STOCHASTIC":
            reason = "OpenSpiel does not list its chances"
        elif kind.information.name != "PERFECT_INFORMATION" and not positions.can_be_imagined(str(game)):
            reason = "OpenSpiel cannot imagine what is hidden from a player"
        if reason:
            raise error.Error(f"mcts cannot play {_name(env)}: {reason}. Try random or oracle.")


OPPONENTS: dict[str, type[Opponent]] = {"random": Random, "minimax": Minimax, "mcts": MCTS, "oracle": Oracle}
"""All opponents, by name."""


def make_opponent(spec: str, **options: Any) -> Opponent:
    """Make an opponent from its spec.

    Args:
        spec: Its name, and options after a colon: ``mcts:sims=500,seed=3``.
        **options: Further options. An option may be given once.

    Raises:
        gymnasium.error.Error: There is no such opponent or option, or a value is out of its range.

    >>> make_opponent("mcts:sims=500").sims
    500
    """
    name, colon, text = spec.strip().partition(":")
    if name not in OPPONENTS:
        close = difflib.get_close_matches(name, OPPONENTS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise error.Error(f"There is no opponent {name!r}.{hint} The opponents are: {', '.join(OPPONENTS)}.")
    given = read_options(text) if colon else {}
    for key in given.keys() & options.keys():
        raise error.Error(f"Option {key!r} of {name!r} was given twice.")
    given.update(options)
    cls = OPPONENTS[name]
    known = list(inspect.signature(cls).parameters)
    for key in given:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise error.Error(f"Opponent {name!r} has no option {key!r}.{hint} It has: {', '.join(known) or 'none'}.")
    return cls(**given)


def read_options(text: str) -> dict[str, Any]:
    """Return the options in ``key=value,key=value``: numbers where they are numbers, else text.

    Raises:
        gymnasium.error.Error: The text has another form.

    >>> read_options("sims=500,uct_c=1.4")
    {'sims': 500, 'uct_c': 1.4}
    """
    options: dict[str, Any] = {}
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key.isidentifier() or not value:
            raise error.Error(f"Options are written key=value,key=value, actual value: {text!r}.")
        if key in options:
            raise error.Error(f"Option {key!r} was given twice in {text!r}.")
        try:
            options[key] = json.loads(value)
        except ValueError:
            options[key] = value
    return options


def has_legal_actions(env: Any) -> bool:
    """Whether the environment lists the legal moves of an agent."""
    return callable(getattr(env, "legal_actions", None))


def random_move(env: Any, agent: str, seed: int) -> str:
    """Return one of the legal moves of ``agent``, each equally likely.

    Raises:
        gymnasium.error.Error: There is none: the agent is not to move.
    """
    legal = env.legal_actions(agent)
    if not legal:
        raise error.Error(f"{agent} has no legal move in {_name(env)}: it is not to move.")
    return random.Random(seed).choice(legal)


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise error.Error(f"`{name}` must be an integer of {least} or more, actual value: {value!r}.")
    return value


def _name(env: Any) -> str:
    return positions.name_of(env)
