"""`Outcome`: what an environment says follows from an action."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from llm_envs import rewards as reward_parts
from llm_envs.tasks import FrozenDict

__all__ = ["Outcome", "with_rewards"]

_NOTHING: Mapping[str, Any] = FrozenDict()


@dataclass(slots=True, init=False)
class Outcome:
    """What follows from an action, or from a finished round. Nobody changes one, so it may be shared between episodes.

    Attributes:
        next: Who speaks next: one agent, a tuple of agents that act on the same information (a round), or None when the
            episode is over.
        rewards: Reward parts by agent and name, paid now.
        terminated: The task ended by its rules.
        truncated: A limit was hit.
        success: The task was solved: True or False for all agents alike, or the names of the agents that succeeded. In
            a zero-sum game that is the winner by play; a draw and a forfeit are no one's success.
        info: Extra deterministic info keys by agent (a verdict, a tool's output).
    """

    next: str | tuple[str, ...] | None
    rewards: Mapping[str, Mapping[str, float]]
    terminated: bool
    truncated: bool
    success: bool | Collection[str]
    info: Mapping[str, Mapping[str, Any]]

    # Not frozen and not generated: a frozen dataclass takes four times as long to make, and there is one a turn.
    def __init__(
        self,
        next: str | tuple[str, ...] | None = None,
        rewards: Mapping[str, Mapping[str, float]] = _NOTHING,
        terminated: bool = False,
        truncated: bool = False,
        success: bool | Collection[str] = False,
        info: Mapping[str, Mapping[str, Any]] = _NOTHING,
    ) -> None:
        self.next = next
        self.rewards = rewards
        self.terminated = terminated
        self.truncated = truncated
        self.success = success
        self.info = info


def with_rewards(outcome: Outcome, extra: Mapping[str, Mapping[str, float]]) -> Outcome:
    """``outcome`` with the reward parts ``extra`` added, by agent and name."""
    if not extra:
        return outcome
    merged = {agent: dict(parts) for agent, parts in outcome.rewards.items()}
    for agent, parts in extra.items():
        reward_parts.add(merged.setdefault(agent, {}), parts)
    return Outcome(outcome.next, merged, outcome.terminated, outcome.truncated, outcome.success, outcome.info)
