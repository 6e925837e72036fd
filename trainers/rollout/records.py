"""What a rollout leaves behind: one :class:`Turn` per action, one :class:`Episode` per played task.

Training reads token ids and log-probs from these records and never tokenises the text again; the text is for people,
reports and the viewer. Both classes write themselves as plain JSON objects and read themselves back unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llm_envs import rewards

__all__ = ["Episode", "Turn", "episode_id"]


def episode_id(task: str, sample: int) -> str:
    """Return the id of the ``sample``-th episode of a task, ``"<task id>#<sample>"``."""
    return f"{task}#{sample}"


@dataclass(slots=True)
class Turn:
    """One action of one agent, with everything that training or a report needs to know about it.

    Attributes:
        episode: Id of the episode.
        task: Id of the task.
        agent: Who acted, for example ``solver_0``.
        policy: Name of the policy in the team that wrote the action.
        index: Position of the turn in the episode, from 0, over all agents in AEC order.
        agent_turn: Position among this agent's own turns, from 0.
        observation: The whole prompt of the turn as text.
        action: The text that was handed to the environment.
        prompt_ids: Token ids of the prompt as the sampler saw it, or None where the policy has none.
        completion_ids: Token ids that the sampler drew, with its own end token and without padding, or None.
        logprobs: Log-probability of each id of ``completion_ids`` under the sampling distribution, or None.
        finish_reason: ``"stop"`` or ``"length"``.
        weight_version: Version of the weights that wrote the action.
        reward_parts: Named parts of all that the agent received from this action until its next one, with the final
            reward that reaches it on its dead step.
        invalid: Why the environment refused the action, or None if it was legal.
        masked: True if the turn must not be trained on (every turn of a failed episode).
        prompt_tokens: Length of the prompt in tokens; 0 where the policy does not know it.
        completion_tokens: Length of the completion in tokens; 0 where the policy does not know it.
        latency_s: Seconds from request to answer. Not deterministic, so no part of a result.
        info: What else the environment said about the action, such as ``{"verdict": "correct"}``.
        candidate: Which of the answers to the same prompt this is, from 0; above 0 in a tree only.
        chosen: Whether the episode went on from here; False in a tree only, for candidates that led nowhere.
        advantage: What the turn was trained with, in the records of a training run; None where it was not trained on.
    """

    episode: str
    task: str
    agent: str
    policy: str
    index: int
    agent_turn: int
    observation: str
    action: str
    prompt_ids: tuple[int, ...] | None = None
    completion_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    finish_reason: str = "stop"
    weight_version: int = 0
    reward_parts: dict[str, float] = field(default_factory=dict)
    invalid: str | None = None
    masked: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latency_s: float = 0.0
    info: dict[str, Any] = field(default_factory=dict)
    candidate: int = 0
    chosen: bool = True
    advantage: float | None = None

    @property
    def reward(self) -> float:
        """The sum of all parts that this action is credited with."""
        return sum(self.reward_parts.values())

    @property
    def team_reward(self) -> float:
        """The shared outcome among the parts."""
        return rewards.team(self.reward_parts)

    @property
    def local_reward(self) -> float:
        """The agent's own parts, without the shared outcome and without penalties."""
        return rewards.local(self.reward_parts)

    @property
    def penalty(self) -> float:
        """The penalties among the parts (zero or negative)."""
        return rewards.penalty(self.reward_parts)

    def to_dict(self, *, tokens: bool = True, timings: bool = True) -> dict[str, Any]:
        """Return the turn as a plain JSON object.

        Args:
            tokens: Keep token ids and log-probs.
            timings: Keep ``latency_s``, the only field that differs between two equal runs.
        """
        record: dict[str, Any] = {name: getattr(self, name) for name in _TURN_TEXT}
        record["reward_parts"] = dict(self.reward_parts)
        record["info"] = dict(self.info)
        if self.candidate:
            record["candidate"] = self.candidate
        if not self.chosen:
            record["chosen"] = False
        if self.advantage is not None:
            record["advantage"] = self.advantage
        if tokens:
            for name in _TURN_TOKENS:
                value = getattr(self, name)
                record[name] = None if value is None else list(value)
        if timings:
            record["latency_s"] = self.latency_s
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Turn:
        """Read a turn back. Raises ValueError if a required field is missing or a field is unknown."""
        values = dict(record)
        for name in _TURN_TOKENS:
            if values.get(name) is not None:
                values[name] = tuple(values[name])
        return _construct(cls, values)


@dataclass(slots=True)
class Episode:
    """One played task.

    Attributes:
        id: ``"<task id>#<sample>"``.
        env: Id of the environment.
        task: Id of the task.
        task_index: Index of the task in its set.
        task_hash: Hash of the task's content; a resumed run compares it.
        sample: Which of the k episodes of this task it is, from 0.
        seed: Seed the environment was reset with.
        turns: The actions in AEC order.
        returns: Undiscounted sum of rewards of every agent.
        reward_parts: The same sums by part, ``{agent: {part: value}}``, with what an agent received before its first
            action (which no turn is credited with).
        success: Whether the task was solved.
        terminated: Whether the task ended by its own rules.
        truncated: Whether a limit ended it.
        error: Why the episode could not be played to its end, or None. Turns of a failed episode are all masked.
        wall_s: Seconds from reset to end. Not deterministic, so no part of a result.
        tree: Whether ``turns`` holds several candidates a turn, each credited with what that one step paid. The path
            was chosen by reward, so ``success`` and ``returns``, which are the path's, do not say how a policy plays.
        update: Which update it was trained on in, from 1, in the records of a training run; otherwise None.
    """

    id: str
    env: str
    task: str
    task_index: int
    task_hash: str
    sample: int
    seed: int
    turns: list[Turn] = field(default_factory=list)
    returns: dict[str, float] = field(default_factory=dict)
    reward_parts: dict[str, dict[str, float]] = field(default_factory=dict)
    success: bool = False
    terminated: bool = False
    truncated: bool = False
    error: str | None = None
    wall_s: float = 0.0
    tree: bool = False
    update: int | None = None

    @property
    def team_return(self) -> float:
        """The shared outcome, counted once: the mean over the agents of their team parts (equal in a true team)."""
        values = [rewards.team(parts) for parts in self.reward_parts.values()]
        if not values:
            return 0.0
        return values[0] if len(set(values)) == 1 else sum(values) / len(values)

    def local_return(self, agent: str) -> float:
        """Return the sum of an agent's own parts, without the shared outcome and without penalties."""
        return rewards.local(self._parts(agent))

    def penalty_return(self, agent: str) -> float:
        """Return the sum of an agent's penalties (zero or negative)."""
        return rewards.penalty(self._parts(agent))

    def agent_turns(self, agent: str) -> list[Turn]:
        """Return the turns of one agent, in order."""
        return [turn for turn in self.turns if turn.agent == agent]

    def to_dict(self, *, tokens: bool = True, timings: bool = True) -> dict[str, Any]:
        """Return the episode and its turns as a plain JSON object (see :meth:`Turn.to_dict`)."""
        record: dict[str, Any] = {name: getattr(self, name) for name in _EPISODE_PLAIN}
        record["returns"] = dict(self.returns)
        record["reward_parts"] = {agent: dict(parts) for agent, parts in self.reward_parts.items()}
        if self.tree:
            record["tree"] = True
        if self.update is not None:
            record["update"] = self.update
        if timings:
            record["wall_s"] = self.wall_s
        record["turns"] = [turn.to_dict(tokens=tokens, timings=timings) for turn in self.turns]
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Episode:
        """Read an episode back. Raises ValueError if a required field is missing or a field is unknown."""
        values = dict(record)
        values["turns"] = [Turn.from_dict(turn) for turn in values.get("turns", ())]
        return _construct(cls, values)

    def to_json(self, *, tokens: bool = True, timings: bool = True) -> str:
        r"""Return one line of ASCII JSON that :meth:`from_json` reads back unchanged.

        Any text survives, NUL and lone surrogates included. (A high surrogate directly before a low one, which no
        decoder produces, is read back as the one character the two stand for: JSON cannot tell them apart.)

        Raises:
            ValueError: If a number is infinite or not a number, which JSON cannot hold.
        """
        try:
            return json.dumps(self.to_dict(tokens=tokens, timings=timings), allow_nan=False, separators=(",", ":"))
        except ValueError as error:
            raise ValueError(f"Episode {self.id!r} holds a number that JSON cannot: {error}") from error

    @classmethod
    def from_json(cls, line: str) -> Episode:
        """Read the line that :meth:`to_json` wrote. Raises ValueError if it is not such a line."""
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError(f"An episode is a JSON object, not {type(record).__name__}")
        return cls.from_dict(record)

    def _parts(self, agent: str) -> Mapping[str, float]:
        try:
            return self.reward_parts[agent]
        except KeyError:
            raise KeyError(f"Episode {self.id!r} has no agent {agent!r}; it has {sorted(self.reward_parts)}") from None


_TURN_TEXT = (
    "episode", "task", "agent", "policy", "index", "agent_turn", "observation", "action", "finish_reason",
    "weight_version", "invalid", "masked", "prompt_tokens", "completion_tokens",
)  # fmt: skip
_TURN_TOKENS = ("prompt_ids", "completion_ids", "logprobs")
_EPISODE_PLAIN = (
    "id", "env", "task", "task_index", "task_hash", "sample", "seed", "success", "terminated", "truncated", "error",
)  # fmt: skip


def _construct(cls: type[Any], values: dict[str, Any]) -> Any:
    """Build a record, turning a field that is missing or unknown into a ValueError that names it."""
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"Not a {cls.__name__} record: {error}") from error
