"""Named reward parts: what a reward is made of, and how parts mix.

Every reward in the suite is a sum of named parts. Three kinds are told apart by name alone, so that a trainer can
treat them differently without knowing the environment:

* ``"team"`` — the shared outcome of the episode (or, in a zero-sum game, each player's own outcome);
* penalties (:data:`PENALTIES`) — paid for text that could not be used, whatever the outcome;
* every other name — a *local* part, earned by one agent for its own turn.

>>> parts = {"team": 1.0, "format": 0.2, "invalid": -0.1}
>>> team(parts), local(parts), penalty(parts)
(1.0, 0.2, -0.1)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TEAM = "team"
INVALID = "invalid"
PENALTIES = frozenset({INVALID})

Parts = Mapping[str, float]


def is_team(name: str) -> bool:
    """Whether ``name`` is the shared outcome."""
    return name == TEAM


def is_penalty(name: str) -> bool:
    """Whether ``name`` is a penalty for unusable text."""
    return name in PENALTIES


def team(parts: Parts) -> float:
    """The shared outcome in ``parts`` (0 where there is none)."""
    return parts.get(TEAM, 0.0)


def penalty(parts: Parts) -> float:
    """The sum of the penalties in ``parts`` (0 or negative)."""
    return sum(value for name, value in parts.items() if name in PENALTIES)


def local(parts: Parts) -> float:
    """The sum of the local parts in ``parts``: neither the shared outcome nor a penalty."""
    return sum(value for name, value in parts.items() if name != TEAM and name not in PENALTIES)


def shared(agents: Iterable[str], value: float) -> dict[str, dict[str, float]]:
    """The same team reward for every agent: ``{agent: {"team": value}}``."""
    return {agent: {TEAM: value} for agent in agents}


def add(into: dict[str, float], parts: Parts) -> dict[str, float]:
    """Add ``parts`` to ``into`` name by name, in place, and return it."""
    for name, value in parts.items():
        into[name] = into.get(name, 0.0) + value
    return into
