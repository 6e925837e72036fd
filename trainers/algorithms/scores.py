"""What a turn is worth (scores) and what it is compared with (keys), each by name.

Rewards come in named parts (:mod:`llm_envs.rewards`): ``team`` is the outcome, penalties are paid for unusable text,
all others are local to the agent that earned them. Scores leave the penalties out unless ``fold_penalties`` is set.

**The team return of an episode** counts the outcome once, though every agent receives it. Where the agents of an
environment receive *different* outcomes (a zero-sum game), there is no team: each agent then has its own return, and
its episode return holds only its own parts. An environment is treated this way as soon as one episode of the batch
shows different outcomes, so that a draw (all zero) is not mistaken for a shared one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from llm_envs import rewards
from trainers.algorithms.shaping import TurnFacts, shaped_rewards

if TYPE_CHECKING:
    from trainers.algorithms.algorithm import Algorithm
    from trainers.rollout.records import Episode, Turn

FloatArray = NDArray[np.float64]

_NUMBER = re.compile(r"_[0-9]+$")


class ScoreError(ValueError):
    """A reward is missing or not a number, or a turn appears twice. The message names the turn."""


KEYS: dict[str, Callable[[Turn, Episode], Hashable]] = {
    "env": lambda turn, episode: episode.env,
    "task": lambda turn, episode: episode.task,
    "episode": lambda turn, episode: episode.id,
    "agent": lambda turn, episode: turn.agent,
    "role": lambda turn, episode: _NUMBER.sub("", turn.agent),
    "policy": lambda turn, episode: turn.policy,
    "turn": lambda turn, episode: turn.agent_turn,
    "observation": lambda turn, episode: turn.observation,
}
"""What turns can be grouped by. ``turn`` is the position among the agent's own turns, ``role`` the agent's name without
its number, ``observation`` the exact prompt text (GiGPO's anchor)."""


@dataclass(frozen=True, slots=True)
class TurnBatch:
    """The turns of a batch of episodes in one row, each beside its episode.

    Attributes:
        turns: N turns, episode by episode in the order given.
        episodes: The episode of each turn (N, with repeats).
        active: Whether each turn counts. Masked turns and those of failed episodes do not.
        own_outcome: Ids of the environments whose agents receive different outcomes.
        facts: What else is known of the turns.
    """

    turns: tuple[Turn, ...]
    episodes: tuple[Episode, ...]
    active: NDArray[np.bool_]
    own_outcome: frozenset[str]
    facts: TurnFacts = field(default_factory=TurnFacts)

    @classmethod
    def of(cls, episodes: Sequence[Episode], facts: TurnFacts | None = None) -> TurnBatch:
        """Line the turns up and check them.

        Raises:
            ValueError: If ``facts`` does not describe as many turns.
            ScoreError: If a turn appears twice, or a reward of a turn that counts is missing or not finite.
        """
        turns: list[Turn] = []
        owners: list[Episode] = []
        seen: set[Hashable] = set()
        for episode in episodes:
            for turn in episode.turns:
                identity = (episode.id, turn.index, turn.candidate)
                if identity in seen:
                    raise ScoreError(
                        f"{_name(turn, episode)} appears twice. A duplicate shifts the statistics of its group: pass "
                        "every turn once"
                    )
                seen.add(identity)
                turns.append(turn)
                owners.append(episode)
        active = np.array([not t.masked and e.error is None for t, e in zip(turns, owners, strict=True)], dtype=bool)
        checked: set[str] = set()
        for turn, episode, counts in zip(turns, owners, active, strict=True):
            if not counts:
                continue
            _check_parts(turn.reward_parts, f"{_name(turn, episode)}")
            if turn.agent not in episode.reward_parts:
                raise ScoreError(f"Episode {episode.id!r} has no reward for {turn.agent!r}, who acted in it")
            if episode.id not in checked:
                checked.add(episode.id)
                for agent, parts in episode.reward_parts.items():
                    _check_parts(parts, f"Agent {agent!r} of episode {episode.id!r}")
        own = frozenset(e.env for e in episodes if e.error is None and _outcomes_differ(e))
        facts = TurnFacts() if facts is None else facts
        facts.check(len(turns))
        return cls(tuple(turns), tuple(owners), active, own, facts)

    def __len__(self) -> int:
        return len(self.turns)

    def keys(self, names: Sequence[str]) -> list[Hashable]:
        """Return the group label of every turn: the tuple of its values of the named keys."""
        readers = [KEYS[name] for name in names]
        return [
            tuple(read(turn, episode) for read in readers)
            for turn, episode in zip(self.turns, self.episodes, strict=True)
        ]

    def units(self) -> list[Hashable]:
        """Return for every turn the episode it counts for: one per agent where each agent has its own outcome."""
        return [
            (episode.id, turn.agent if episode.env in self.own_outcome else None)
            for turn, episode in zip(self.turns, self.episodes, strict=True)
        ]

    def name(self, index: int) -> str:
        """Return a turn's name for messages."""
        return _name(self.turns[index], self.episodes[index])


ScoreFunction = Callable[[TurnBatch, "Algorithm"], FloatArray]


def episode_return(batch: TurnBatch, algorithm: Algorithm) -> FloatArray:
    """α·team return + the local parts of all agents: every turn of an episode has the same score. Shape [N]."""
    _refuse_trees(batch, "episode_return")
    scores = np.zeros(len(batch))
    units = batch.units()
    extra: dict[Hashable, float] = {}
    for unit, value in zip(units, shaped_rewards(batch, algorithm), strict=True):
        extra[unit] = extra.get(unit, 0.0) + float(value)
    cache: dict[Hashable, float] = {}
    for i, unit in enumerate(units):
        if not batch.active[i]:
            continue
        if unit not in cache:
            turn, episode = batch.turns[i], batch.episodes[i]
            who = [turn.agent] if episode.env in batch.own_outcome else sorted(episode.reward_parts)
            own = sum(_own(episode.reward_parts[agent], algorithm) for agent in who) + extra[unit]
            cache[unit] = algorithm.team_weight * rewards.team(episode.reward_parts[turn.agent]) + own
        scores[i] = cache[unit]
    return scores


def team_and_turn(batch: TurnBatch, algorithm: Algorithm) -> FloatArray:
    """α·team return of the episode + the local parts of this turn alone. Shape [N]."""
    _refuse_trees(batch, "team_and_turn")
    extra = shaped_rewards(batch, algorithm)
    return np.array(
        [
            algorithm.team_weight * rewards.team(episode.reward_parts[turn.agent])
            + (_own(turn.reward_parts, algorithm) + more)
            if counts
            else 0.0
            for turn, episode, counts, more in zip(batch.turns, batch.episodes, batch.active, extra, strict=True)
        ],
        dtype=np.float64,
    )


def turn_reward(batch: TurnBatch, algorithm: Algorithm) -> FloatArray:
    """α·team part of this turn + its local parts: what this very action earned. Shape [N]."""
    return _turn_rewards(batch, algorithm, batch.active)


def reward_to_go(batch: TurnBatch, algorithm: Algorithm) -> FloatArray:
    """The turn reward plus γ times the reward-to-go of the agent's next turn in the episode. Shape [N].

    Whatever lies between two turns of an agent (observations, the other agents' turns) is passed through and costs no
    discount: the outcome reaches every agent through its own turns. A masked turn passes what comes after it on; it
    earned what it earned.
    """
    _refuse_trees(batch, "reward_to_go")
    return _backwards(batch, algorithm, None, 1.0)


def lambda_return(batch: TurnBatch, algorithm: Algorithm) -> FloatArray:
    """The λ-return R_t = r_t + γ·((1 − λ)·V_{t+1} + λ·R_{t+1}) over the agent's own turns in the episode. Shape [N].

    V_t is the critic's value of the state before the agent's t-th turn, and R_t − V_t is the generalised advantage
    estimate Σ (γλ)^k δ_{t+k}, δ_t = r_t + γV_{t+1} − V_t (GAE, arXiv 1506.02438, equations 11 to 16). After the agent's
    last turn, both are 0: an episode ends there, by its rules or by a limit. A turn without a value (masked, or played
    by a policy that has no critic) stands in with its own return.

    Raises:
        ScoreError: If the batch has no values.
    """
    _refuse_trees(batch, "lambda_return")
    if algorithm.critic is None or batch.facts.values is None:
        raise ScoreError("Score 'lambda_return' needs a critic's values: pass facts=TurnFacts(values=…)")
    values = np.where(batch.active, batch.facts.values, np.nan)
    return _backwards(batch, algorithm, values, algorithm.critic.lam)


SCORES: dict[str, ScoreFunction] = {
    "episode_return": episode_return,
    "team_and_turn": team_and_turn,
    "turn_reward": turn_reward,
    "reward_to_go": reward_to_go,
    "lambda_return": lambda_return,
}
"""Score functions by name; :func:`register_score` adds one."""

LOOKING_AHEAD = frozenset({"episode_return", "team_and_turn", "reward_to_go", "lambda_return"})
"""Scores that count what comes after the turn, which a candidate in a tree does not have."""


def register_score(name: str, function: ScoreFunction) -> None:
    """Make a score function available to :class:`~trainers.algorithms.algorithm.Algorithm` by name.

    It takes the batch and the algorithm and returns one float64 a turn, shape [N]; entries of inactive turns are not
    read.

    Raises:
        ValueError: If the name is taken by another function.
    """
    if SCORES.get(name, function) is not function:
        raise ValueError(f"There is already a score {name!r}; choose another name")
    SCORES[name] = function


def _refuse_trees(batch: TurnBatch, score: str) -> None:
    """What follows a candidate of a tree is known for the chosen one only, and that was chosen by its reward."""
    tree = next((episode for episode in batch.episodes if episode.tree), None)
    if tree is not None:
        raise ScoreError(
            f"Score {score!r} looks beyond the turn, and episode {tree.id!r} is a tree, whose candidates have no "
            "episode of their own. Use 'turn_reward' with sampling 'tree'"
        )


def _turn_rewards(batch: TurnBatch, algorithm: Algorithm, which: NDArray[np.bool_]) -> FloatArray:
    """What each of these turns earned; 0 for the others, whose rewards may be missing. Shape [N]."""
    earned = shaped_rewards(batch, algorithm)
    for i, (turn, wanted) in enumerate(zip(batch.turns, which, strict=True)):
        parts = turn.reward_parts
        earned[i] = (
            algorithm.team_weight * rewards.team(parts) + (_own(parts, algorithm) + earned[i]) if wanted else 0.0
        )
    return earned


def _backwards(batch: TurnBatch, algorithm: Algorithm, values: FloatArray | None, lam: float) -> FloatArray:
    """λ-returns over the agents' own turns, from the last to the first; 0 for turns that do not count. Shape [N]."""
    played = np.array([episode.error is None for episode in batch.episodes], dtype=bool)
    earned = _turn_rewards(batch, algorithm, played)
    scores = np.zeros(len(batch))
    following: dict[tuple[str, str], tuple[float, float]] = {}
    order = sorted(range(len(batch)), key=lambda i: (batch.episodes[i].id, batch.turns[i].index), reverse=True)
    for i in order:
        if not played[i]:
            continue
        key = (batch.episodes[i].id, batch.turns[i].agent)
        next_value, next_return = following.get(key, (0.0, 0.0))
        after = next_return if lam == 1.0 else (1 - lam) * next_value + lam * next_return
        total = float(earned[i]) + algorithm.discount * after
        known = values is not None and math.isfinite(values[i])
        following[key] = (float(values[i]) if known and values is not None else total, total)
        if batch.active[i]:
            scores[i] = total
    return scores


def _own(parts: Mapping[str, float], algorithm: Algorithm) -> float:
    return rewards.local(parts) + (rewards.penalty(parts) if algorithm.fold_penalties else 0.0)


def _outcomes_differ(episode: Episode) -> bool:
    outcomes = [rewards.team(parts) for parts in episode.reward_parts.values()]
    return bool(outcomes) and not all(math.isclose(o, outcomes[0], rel_tol=1e-9, abs_tol=1e-12) for o in outcomes)


def _check_parts(parts: Mapping[str, float], owner: str) -> None:
    for name, value in parts.items():
        if value is None or not math.isfinite(value):
            raise ScoreError(
                f"{owner}: reward part {name!r} is {value}. A missing reward is not 0: mask the turn or drop the "
                "episode"
            )


def _name(turn: Turn, episode: Episode) -> str:
    return f"Turn {turn.index} ({turn.agent}) of episode {episode.id!r}"
