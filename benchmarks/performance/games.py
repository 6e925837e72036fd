"""Moves a second in two-player games, beside the same games of other libraries in the same run.

Every library plays the same scripts: lists of legal moves, drawn before the clock starts. Each is played as its users
play it, and in the same shape: the observation is read before every move, the reward at the end.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import llm_envs
from benchmarks.performance.measure import Measurement, rates

__all__ = ["GAMES", "Game", "measure_games", "missing_peers", "play_script"]

SCRIPTS = 200
EPISODES_A_CALL = 20
MOVES_REUSED = 1_500
"""So many moves in one environment: TextArena's observations hold all earlier episodes, so that it slows down."""

HANDS = 3
"""Hands of Kuhn poker in an episode: what TextArena's id plays where nobody asks for another number."""

FRESH_TARGET, REUSED_TARGET, PETTINGZOO_TARGET = 3.0, 20.0, 5.0
PEERS = {"textarena": "TextArena", "pygame": "PettingZoo's tic-tac-toe"}
"""What has to be importable, and what is compared with where it is."""

Script = Sequence[str]


@dataclass(frozen=True)
class Game:
    """A game that both libraries have.

    Attributes:
        env_id: Ours.
        peer_id: TextArena's.
        draw: Draws the moves of one episode; those that are left at its end are not played.
        options: Arguments of ours.
        peer_options: Arguments of TextArena's, so that its episode is the same as ours.
        variant: What an episode is, where the game leaves that open.
    """

    env_id: str
    peer_id: str
    draw: Callable[[random.Random], list[str]]
    options: tuple[tuple[str, Any], ...] = ()
    peer_options: tuple[tuple[str, Any], ...] = ()
    variant: str = ""

    @property
    def name(self) -> str:
        """What is played, as it is called in a report."""
        return f"{self.env_id}, {self.variant}" if self.variant else self.env_id

    def scripts(self, count: int = SCRIPTS) -> list[Script]:
        """The same ``count`` scripts every time."""
        rng = random.Random(0)
        return [self.draw(rng) for _ in range(count)]


def _cells(rng: random.Random) -> list[str]:
    return [f"[{cell}]" for cell in rng.sample(range(9), 9)]


def _columns(rng: random.Random) -> list[str]:
    """Every column six times: however they are mixed, each is legal."""
    return [f"[{column}]" for column in rng.sample([*range(7)] * 6, 42)]


def _hand(rng: random.Random) -> list[str]:
    """Check or bet, then what the other one may answer."""
    answers = {"": "[check] [bet]", "[check]": "[check] [bet]", "[bet]": "[call] [fold]"}
    script = [rng.choice(answers[""].split())]
    while script[-1] in answers and script != ["[check]", "[check]"]:
        script.append(rng.choice(answers[script[-1]].split()))
    return script


def _hands(rng: random.Random) -> list[str]:
    return [move for _ in range(HANDS) for move in _hand(rng)]


GAMES = (
    Game("tictactoe", "TicTacToe-v0", _cells),
    Game("connect-four", "ConnectFour-v0", _columns),
    Game(
        "kuhn-poker",
        "KuhnPoker-v0",
        _hands,
        options=(("hands", HANDS),),
        peer_options=(("max_rounds", HANDS),),
        variant=f"{HANDS} hands an episode",
    ),
)


def missing_peers() -> list[str]:
    """One line for each library that is not installed, saying what is left out and how to have it."""
    return [
        f"{name} is not installed, so nothing is compared with it: pip install 'llm-envs[bench]'"
        for module, name in PEERS.items()
        if importlib.util.find_spec(module) is None
    ]


def measure_games(seconds: float = 1.0, games: Sequence[Game] = GAMES) -> list[Measurement]:
    """Measure moves a second of each game, and how many times faster that is than in the libraries that are installed.

    TextArena makes a fresh environment for every episode, and once more uses one for :data:`MOVES_REUSED` moves;
    ours is used for all. PettingZoo's tic-tac-toe is wrapped as its ``env()`` wraps it. Dead steps are taken but not
    counted.

    Args:
        seconds: How long each is measured, in all.
        games: The games.
    """
    measurements = []
    for game in games:
        scripts = game.scripts()
        ours = llm_envs.make(game.env_id, **dict(game.options))
        works = {"ours": _repeat(functools.partial(play_script, ours), scripts)}
        if importlib.util.find_spec("textarena") is not None:
            works.update(_textarena(game, scripts))
        if game.env_id == "tictactoe" and importlib.util.find_spec("pygame") is not None:
            works["pettingzoo"] = _pettingzoo(scripts)
        found = rates(works, seconds=seconds)
        mine = found["ours"]
        measurements.append(Measurement(f"{game.name}, random moves", mine, "actions/s"))
        for key, label, target in (
            ("fresh", "TextArena, a fresh environment an episode", FRESH_TARGET),
            ("reused", f"TextArena, one environment for {MOVES_REUSED:,} moves", REUSED_TARGET),
            ("pettingzoo", "PettingZoo, wrapped", PETTINGZOO_TARGET),
        ):
            if key in found:
                measurements.append(Measurement(f"{game.name} / {label}", mine / found[key], "x", target))
    return measurements


def play_script(env: Any, script: Script, seed: int = 0) -> int:
    """Play ``script`` in an AEC environment, dead steps included, and return how many moves it took."""
    moves = iter(script)
    played = 0
    env.reset(seed=seed)
    for _ in env.agent_iter():
        _, _, terminated, truncated, _ = env.last()
        if terminated or truncated:
            env.step(None)
        else:
            env.step(next(moves))
            played += 1
    return played


def _repeat(play: Callable[[Script, int], int], scripts: Sequence[Script]) -> Callable[[], int]:
    """Work for ``rates``: the next few scripts, round and round. Each has a seed of its own."""
    endless: Iterator[tuple[int, Script]] = itertools.cycle(enumerate(scripts))
    return lambda: sum(play(script, seed) for seed, script in itertools.islice(endless, EPISODES_A_CALL))


def _textarena(game: Game, scripts: Sequence[Script]) -> dict[str, Callable[[], int]]:
    textarena = importlib.import_module("textarena")
    options = dict(game.peer_options)

    def play(env: Any, script: Script, seed: int) -> int:
        moves = iter(script)
        played, done = 0, False
        env.reset(num_players=2, seed=seed)
        while not done:
            env.get_observation()
            done, _ = env.step(next(moves))
            played += 1
        env.close()
        return played

    def reused() -> int:
        env, played = textarena.make(game.peer_id, **options), 0
        for seed, script in itertools.cycle(enumerate(scripts)):
            played += play(env, script, seed)
            if played >= MOVES_REUSED:
                break
        return played

    return {
        "fresh": _repeat(lambda script, seed: play(textarena.make(game.peer_id, **options), script, seed), scripts),
        "reused": reused,
    }


def _pettingzoo(scripts: Sequence[Script]) -> Callable[[], int]:
    env = importlib.import_module("pettingzoo.classic.tictactoe_v3").env()
    numbers: list[Any] = [[int(text[1:-1]) for text in script] for script in scripts]
    return _repeat(functools.partial(play_script, env), numbers)
