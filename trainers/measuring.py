"""What only models can say of a batch: values of states, divergence from a reference; and how critics learn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trainers.algorithms.advantages import score_turns
from trainers.algorithms.algorithm import Algorithm
from trainers.algorithms.scores import TurnBatch
from trainers.algorithms.shaping import TurnFacts

if TYPE_CHECKING:
    from trainers.members import Member
    from trainers.rollout.records import Episode, Turn


def measure(
    episodes: Sequence[Episode], algorithm: Algorithm, members: Mapping[str, Member], learning: Collection[str]
) -> TurnFacts:
    """Find out what the algorithm needs to know of the turns, before anything is updated.

    Args:
        episodes: What was collected.
        algorithm: Says what it needs; the rest is not computed.
        members: The policies of the run.
        learning: Names of those that learn from this batch. Turns of others have no value, and a divergence of 0.
    """
    turns = [turn for episode in episodes for turn in episode.turns]
    values = np.full(len(turns), np.nan) if algorithm.critic is not None else None
    kl = np.zeros(len(turns)) if algorithm.kl_in_reward > 0 else None
    for name in learning:
        member = members[name]
        own = _own_turns(turns, name)
        prompts = [turns[i].prompt_ids or () for i in own]
        if values is not None and member.critic is not None and own:
            values[own] = member.critic.values(prompts)
        if kl is not None and member.learner is not None and own:
            kl[own] = member.learner.reference_kl(prompts, [turns[i].completion_ids or () for i in own])
    limits = None
    if algorithm.overlong == "soft":
        limits = np.array([members[turn.policy].config.sampling.max_tokens for turn in turns], dtype=np.int64)
    return TurnFacts(values=values, kl=kl, max_tokens=limits)


def fit_critics(
    episodes: Sequence[Episode],
    algorithm: Algorithm,
    members: Mapping[str, Member],
    learning: Collection[str],
    facts: TurnFacts,
) -> dict[str, float]:
    """Fit the critics of the policies that learn to the scores of their turns, and return their metrics.

    Raises:
        NonFiniteGradient: A critic's loss or gradient is not finite; its step was not taken.
    """
    if algorithm.critic is None or facts.values is None:
        return {}
    batch = TurnBatch.of(episodes, facts)
    targets = score_turns(batch, algorithm)
    metrics: dict[str, float] = {}
    for name in learning:
        critic = members[name].critic
        own = _own_turns(batch.turns, name)
        if critic is not None and own:
            found = critic.update([batch.turns[i].prompt_ids or () for i in own], targets[own], facts.values[own])
            metrics |= {f"policy/{name}/{key}": value for key, value in found.items()}
    return metrics


def _own_turns(turns: Sequence[Turn], policy: str) -> list[int]:
    """The turns that a policy played and may learn from."""
    return [
        i
        for i, turn in enumerate(turns)
        if turn.policy == policy and not turn.masked and turn.prompt_ids and turn.completion_ids
    ]
