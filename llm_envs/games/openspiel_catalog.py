"""Which OpenSpiel games there are, which of them are text environments here, and why the others are not.

>>> entry("kuhn_poker").reason is None
True
"""

from __future__ import annotations

import difflib
import importlib
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymnasium import error

from llm_envs.registration import EnvSpec, UnknownArgument, check_version_exists

if TYPE_CHECKING:
    from llm_envs.games.openspiel_match import Rules

NAMESPACE = "openspiel"

ARGUMENTS = ("tasks", "task_options", "max_retries", "invalid_penalty", "turn_limit", "render_mode")
"""What the environment takes beside the parameters of the game."""

EXAMPLES: dict[str, dict[str, Any]] = {
    "add_noise": {"game": "tic_tac_toe", "epsilon": 0.5, "seed": 1},
    "cached_tree": {"game": "tic_tac_toe"},
    "coop_to_1p": {"game": "tiny_hanabi"},
    "misere": {"game": "tic_tac_toe"},
    "normal_form_extensive_game": {"game": "kuhn_poker"},
    "repeated_game": {"stage_game": "matrix_pd", "num_repetitions": 5},
    "repeated_poker": {"universal_poker_game_string": "universal_poker", "max_num_hands": 3, "reset_stacks": True},
    "restricted_nash_response": {"game": "leduc_poker"},
    "start_at": {"game": "tic_tac_toe", "history": "4;0"},
    "turn_based_simultaneous_game": {"game": "matrix_rps"},
    "zerosum": {"game": "tic_tac_toe"},
}
"""For each game that cannot be loaded without parameters, some that it can be loaded with."""

SIZES = frozenset(
    "board_height board_size board_width columns height m n num_cols num_rows players rows size width".split()
)
"""Parameters that are a number of cells or players. OpenSpiel takes 0 for most of them and ends the process later."""

NEEDS_FILE = ("efg_game", "nfg_game")
"""Games that are read from a file of the user's: parameter ``filename``."""

REASONS = {"crossword": "its moves are structures, not a list of numbered moves"}
"""Why a game does not work, where its type does not say."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What the catalogue knows of a game.

    Attributes:
        name: OpenSpiel's short name.
        title: Its long name.
        players: Least and greatest number of players.
        simultaneous: Whether the players act in rounds.
        information: ``"perfect"``, ``"imperfect"`` or ``"one shot"``.
        utility: ``"zero-sum"``, ``"constant-sum"``, ``"general-sum"`` or ``"identical"``.
        chance: Whether chance has a part in it.
        parameters: Its parameters with their defaults.
        example: Parameters that it needs, with values that work.
        reason: Why it is no text environment; None if it is.
    """

    name: str
    title: str
    players: tuple[int, int]
    simultaneous: bool
    information: str
    utility: str
    chance: bool
    parameters: Mapping[str, Any]
    example: Mapping[str, Any]
    reason: str | None


def pyspiel() -> types.ModuleType:
    """OpenSpiel's Python module.

    Raises:
        gymnasium.error.DependencyNotInstalled: It is not installed.
    """
    try:
        return importlib.import_module("pyspiel")
    except ImportError as missing:
        raise error.DependencyNotInstalled(
            'OpenSpiel is not installed. Install it with `pip install "llm-envs[games]"`.'
        ) from missing


def all_names() -> list[str]:
    """The names of all games that OpenSpiel has, also of those that are no text environment."""
    return sorted(pyspiel().registered_names())


def names() -> list[str]:
    """The names of the games that are text environments."""
    return [name for name in all_names() if entry(name).reason is None]


def entry(name: str) -> Entry:
    """What there is to know of the game ``name``.

    Raises:
        gymnasium.error.NameNotFound: There is no such game.
        gymnasium.error.DependencyNotInstalled: OpenSpiel is not installed.
    """
    types_by_name = {kind.short_name: kind for kind in pyspiel().registered_games()}
    if name not in types_by_name:
        close = difflib.get_close_matches(name, types_by_name, n=1)
        hint = f" Did you mean: `{NAMESPACE}/{close[0]}`?" if close else f" It has: {', '.join(sorted(types_by_name))}."
        raise error.NameNotFound(f"OpenSpiel has no game `{name}`.{hint}")
    kind = types_by_name[name]
    return Entry(
        name,
        kind.long_name,
        (kind.min_num_players, kind.max_num_players),
        kind.dynamics.name == "SIMULTANEOUS",
        kind.information.name.lower().replace("_information", "").replace("_", " "),
        kind.utility.name.lower().replace("_", "-"),
        kind.chance_mode.name != "DETERMINISTIC",
        kind.parameter_specification,
        EXAMPLES.get(name, {}),
        _reason(kind),
    )


def shown(parameters: Mapping[str, Any]) -> str:
    """Parameters as they are written in a call: ``board_size=5, swap=True``."""
    return ", ".join(f"{key}={value!r}" for key, value in parameters.items())


def _reason(kind: Any) -> str | None:
    if kind.short_name in REASONS:
        return REASONS[kind.short_name]
    if kind.dynamics.name == "MEAN_FIELD":
        return "a mean-field game: its player is a distribution over a population, not a few agents"
    if not (kind.provides_observation_string or kind.provides_information_state_string):
        return "has no text observation"
    return None


def find(name: str, version: int | None) -> EnvSpec:
    """The spec of ``openspiel/<name>``.

    Raises:
        gymnasium.error.NameNotFound: There is no such game.
        gymnasium.error.VersionNotFound: There is no such version of the adapter.
        gymnasium.error.DependencyNotInstalled: OpenSpiel is not installed.
    """
    found = entry(name)
    check_version_exists(f"{NAMESPACE}/{name}", version, [0])
    return EnvSpec(
        f"{NAMESPACE}/{name}-v0",
        "llm_envs.games.openspiel:OpenSpiel",
        {"game_name": name},
        found.simultaneous and found.reason is None,
    )


def load(name: str, parameters: Mapping[str, Any]) -> Rules:
    """The rules of a game with its parameters.

    Args:
        name: OpenSpiel's name of the game.
        parameters: Its parameters. Where one is a game itself, its name is enough (``game="tic_tac_toe"``), with
            parameters in OpenSpiel's notation (``game="hex(board_size=4)"``).

    Raises:
        gymnasium.error.NameNotFound: There is no such game.
        gymnasium.error.Error: It is no text environment, or a parameter is unknown, missing or refused.
    """
    found = entry(name)
    if found.reason is not None:
        raise error.Error(f"`{NAMESPACE}/{name}` is no text environment: {found.reason}.")
    for parameter in parameters:
        if parameter not in found.parameters:
            close = difflib.get_close_matches(parameter, (*found.parameters, *ARGUMENTS), n=1)
            hint = f" Did you mean: `{close[0]}`?" if close else ""
            raise UnknownArgument(
                f"`{NAMESPACE}/{name}` got an unexpected keyword argument `{parameter}`.{hint} "
                f"It takes: {', '.join((*found.parameters, *ARGUMENTS))}."
            )
    needed = [parameter for parameter in found.example if parameter not in parameters]
    if needed:
        raise error.MissingArgument(f"`{NAMESPACE}/{name}` needs {', '.join(needed)}, such as: {shown(found.example)}.")
    if name in NEEDS_FILE and "filename" not in parameters:
        raise error.MissingArgument(f"`{NAMESPACE}/{name}` needs the file of a game: filename='my_game.nfg'.")
    from llm_envs.games.openspiel_match import Rules

    values = {key: _value(name, key, value, found.parameters[key]) for key, value in parameters.items()}
    try:
        rules = Rules(name, values)
    except pyspiel().SpielError as refused:
        raise error.Error(f"OpenSpiel refuses {name} with {dict(parameters)}: {refused}") from refused
    if rules.sampled and rules.seed_parameter is None:
        raise error.Error(
            f"`{NAMESPACE}/{name}` with {dict(parameters)} draws chance from a generator that cannot be seeded, so "
            "that no episode could be repeated. Take the game itself, without the transformation."
        )
    if rules.sampled and rules.seed_parameter in parameters:
        raise error.Error(
            f"`{rules.seed_parameter}` of `{name}` is decided by the deal. Choose other deals with "
            "task_options={'seed': …}, or one of them with reset(options={'task_index': …})."
        )
    return rules


def _value(name: str, parameter: str, value: Any, default: Any) -> Any:
    """``value`` as OpenSpiel takes it."""
    if isinstance(default, dict):
        if isinstance(value, dict):
            return value
        if not isinstance(value, str):
            raise error.Error(f"`{parameter}` of `{name}` must be the name of a game, actual value: {value!r}.")
        entry(value.partition("(")[0])
        try:
            return pyspiel().game_parameters_from_string(value)
        except pyspiel().SpielError as refused:
            raise error.Error(f"`{parameter}` of `{name}` is no game: {value!r} ({refused}).") from refused
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not type(default):
        raise error.Error(
            f"`{parameter}` of `{name}` must be of type {type(default).__name__} (default: {default!r}), "
            f"actual value: {value!r}."
        )
    if isinstance(default, int) and default > 0 and parameter in SIZES and value < 1:
        raise error.Error(f"`{parameter}` of `{name}` must be 1 or more (default: {default}), actual value: {value!r}.")
    return value
