"""Who won a game: read off the record of an episode of a zero-sum environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_envs import rewards

__all__ = ["OUTCOMES", "POINTS", "Standings", "Tally", "forfeiters", "outcomes"]

OUTCOMES = ("win", "draw", "loss")
POINTS = {"win": 1.0, "draw": 0.5, "loss": 0.0}


@dataclass
class Tally:
    """Wins, draws, losses and forfeits of one side.

    Attributes:
        win: Games won, those that the other one forfeited included.
        draw: Games drawn.
        loss: Games lost, those that this side forfeited included.
        forfeit: Games that this side forfeited.
    """

    win: int = 0
    draw: int = 0
    loss: int = 0
    forfeit: int = 0

    def add(self, outcome: str, *, forfeited: bool) -> None:
        """Count one game."""
        setattr(self, outcome, getattr(self, outcome) + 1)
        self.forfeit += forfeited

    @property
    def games(self) -> int:
        """Number of games."""
        return self.win + self.draw + self.loss

    @property
    def points(self) -> float:
        """A point for a win, half of one for a draw."""
        return self.win + self.draw / 2

    def to_dict(self) -> dict[str, int]:
        """Return the counts as a JSON object."""
        return {"wins": self.win, "draws": self.draw, "losses": self.loss, "forfeits": self.forfeit}


@dataclass
class Standings:
    """Running results of the agents of a zero-sum environment, for a run's live line."""

    agents: dict[str, Tally] = field(default_factory=dict)

    def add(self, episode: Mapping[str, Any]) -> None:
        """Count one game, from the record of its episode."""
        gave_up = forfeiters(episode)
        for agent, outcome in outcomes(episode).items():
            self.agents.setdefault(agent, Tally()).add(outcome, forfeited=agent in gave_up)

    def headline(self) -> str:
        """Return wins, draws and losses so far: ``player_0 3/1/0 won/drawn/lost``."""
        shown = ", ".join(f"{name} {tally.win}/{tally.draw}/{tally.loss}" for name, tally in self.agents.items())
        return f"{shown} won/drawn/lost" if shown else "–"


def outcomes(episode: Mapping[str, Any]) -> dict[str, str]:
    """Return ``win``, ``draw`` or ``loss`` for every agent.

    It is what the environment said of it (``infos[agent]["outcome"]``); an agent that never acted, and so has no turn
    that could carry it, is judged by the sign of its ``team`` reward.

    Args:
        episode: The record of a finished episode (``Episode.to_dict()``).
    """
    said = {turn["agent"]: turn["info"].get("outcome") for turn in episode["turns"]}  # the last turn of each wins
    found = {}
    for agent, parts in episode["reward_parts"].items():
        outcome = said.get(agent)
        if outcome not in OUTCOMES:
            paid = rewards.team(parts)
            outcome = "win" if paid > 0 else "loss" if paid < 0 else "draw"
        found[agent] = outcome
    return found


def forfeiters(episode: Mapping[str, Any]) -> frozenset[str]:
    """Return the agents that forfeited the game; none of a game that was played to its end."""
    named = (turn["info"].get("forfeit") for turn in episode["turns"])
    return frozenset(name for names in named if names for name in str(names).split(", "))
