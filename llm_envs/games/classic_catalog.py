"""Which games of PettingZoo's classic family are text environments here, and what to play instead of the others."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re

from gymnasium import error

from llm_envs.registration import EnvSpec

NAMESPACE = "pettingzoo"
GAMES = {"chess_v6": "Chess", "connect_four_v3": "ConnectFour", "tictactoe_v3": "TicTacToe"}
"""The games that have a text rendering, and their classes in :mod:`llm_envs.games.classic`."""

INSTEAD = {
    "go_v5": "openspiel/go",
    "hanabi_v5": "openspiel/hanabi",
    "leduc_holdem_v4": "openspiel/leduc_poker",
    "rps_v2": "openspiel/matrix_rps",
    "texas_holdem_no_limit_v6": "openspiel/universal_poker",
    "texas_holdem_v4": "openspiel/universal_poker",
}
"""The same games, or the closest ones, with a text observation."""

_VERSIONED = re.compile(r"(\w+)_v(\d+)")


def names() -> list[str]:
    """The names of the games that are text environments."""
    return sorted(GAMES)


def find(name: str, version: int | None) -> EnvSpec:
    """The spec of ``pettingzoo/<name>``; a name without its version means the newest one.

    Raises:
        gymnasium.error.NameNotFound: There is no such game, or it has no text.
    """
    newest = {stem: full for full in sorted(GAMES) if (stem := full.rpartition("_v")[0])}
    full = newest.get(name, name) if version is None else f"{name}_v{version}"
    if full not in GAMES:
        raise error.NameNotFound(_unknown(full))
    return EnvSpec(f"{NAMESPACE}/{full}", f"llm_envs.games.classic:{GAMES[full]}")


def raw_env(name: str) -> type:
    """PettingZoo's environment class of a game.

    Raises:
        gymnasium.error.DependencyNotInstalled: What it needs is not installed.
    """
    stem = name.rpartition("_v")[0]
    try:
        return importlib.import_module(f"pettingzoo.classic.{stem}.{stem}").raw_env
    except ImportError as missing:
        raise error.DependencyNotInstalled(
            f'`{NAMESPACE}/{name}` needs {missing.name}. Install it with `pip install "llm-envs[classic]"`.'
        ) from missing


def _unknown(name: str) -> str:
    there_are = ", ".join(f"`{NAMESPACE}/{game}`" for game in names())
    if name in INSTEAD:
        return (
            f"PettingZoo's `{name}` has no text rendering. There is a game in text that is close to it: "
            f"`{INSTEAD[name]}`. Of PettingZoo's games these have text: {there_are}."
        )
    others = importlib.import_module("pettingzoo.classic").__path__
    known = {*GAMES, *(found.name for found in pkgutil.iter_modules(others) if _VERSIONED.fullmatch(found.name))}
    if name in known:
        return f"PettingZoo's `{name}` has no text rendering. These have one: {there_are}."
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean: `{NAMESPACE}/{close[0]}`?" if close else ""
    return f"`{NAMESPACE}/{name}` doesn't exist.{hint} These games have a text rendering: {there_are}."
