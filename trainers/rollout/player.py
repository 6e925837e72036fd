"""One episode: ask who is to act, step the environment, and write down every turn with its credit.

The agents of a parallel round act on the same information, so they are asked together and then stepped in AEC order.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from llm_envs import rewards
from llm_envs.tasks import stable_hash
from llm_envs.tools.retrieval.base import RetrieverError
from trainers.policies.base import Completion, Policy, PolicyError, Request, Sampling
from trainers.rollout.records import Episode, Turn, episode_id
from trainers.team import Team

__all__ = ["Job", "run_episode"]

logger = logging.getLogger(__name__)

Seats = Mapping[str, tuple[str, Policy, Sampling]]
"""The name, policy and sampling of every agent."""

_OWN_INFO_KEYS = frozenset({"reward_parts", "success", "task_id", "task_index", "invalid_action"})
_REWARD_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Job:
    """One episode to play.

    Attributes:
        task_index: Index of the task in the environment's task set.
        sample: Which of the k episodes of this task it is, from 0. It decides the randomness of the answers.
        seed: Seed the environment is reset with. The samples of one task share it, so they start alike.
    """

    task_index: int
    sample: int
    seed: int


async def run_episode(env: Any, team: Team, job: Job, *, executor: Executor | None = None) -> Episode:
    """Play one episode to its end.

    Args:
        env: An AEC environment that keeps the contract of :class:`llm_envs.core.TextEnv`.
        team: Who plays which agent.
        job: Task, sample and seed.
        executor: Where a blocking environment's steps run; None is the event loop's own pool.

    Returns:
        The episode. If a request or a step failed, ``error`` says why, the turns so far are kept, and all are masked.
    """
    return await run_with(Player, env, team, job, executor)


async def run_with(
    make_player: Callable[[Any, Episode, Seats, Job, Executor | None], Player],
    env: Any,
    team: Team,
    job: Job,
    executor: Executor | None,
) -> Episode:
    """Do what :func:`run_episode` does, with another kind of player."""
    base = env.unwrapped
    started = time.perf_counter()
    env.reset(seed=job.seed, options={"task_index": job.task_index})
    agents = tuple(env.possible_agents)
    seats = {agent: team.for_agent(agent) for agent in agents}
    task = base.task
    episode = Episode(
        id=episode_id(task.id, job.sample),
        env=_env_id(base),
        task=task.id,
        task_index=job.task_index,
        task_hash=task.hash,
        sample=job.sample,
        seed=job.seed,
        returns=dict.fromkeys(agents, 0.0),
        reward_parts={agent: {} for agent in agents},
    )
    policies = tuple({id(policy): policy for _, policy, _ in seats.values()}.values())
    joined: list[Policy] = []
    try:
        for policy in policies:
            policy.join()
            joined.append(policy)
        await make_player(env, episode, seats, job, executor).play()
    except Exception as error:
        episode.error = f"{type(error).__name__}: {error}"
        episode.success = episode.terminated = episode.truncated = False
        for turn in episode.turns:
            turn.masked = True
        expected = isinstance(error, PolicyError | RetrieverError)
        logger.warning("Episode %s failed: %s", episode.id, episode.error, exc_info=not expected)
    finally:
        for policy in joined:
            policy.leave()
    episode.wall_s = time.perf_counter() - started
    return episode


class Answer:
    """A completion that waits for its agent's turn, with the observation that it answers."""

    __slots__ = ("completion", "latency_s", "observation")

    def __init__(self, observation: str, completion: Completion, latency_s: float) -> None:
        self.observation = observation
        self.completion = completion
        self.latency_s = latency_s


class Player:
    """The turns of one episode."""

    __slots__ = ("_answers", "_base", "_env", "_episode", "_executor", "_job", "_last", "_seats")

    def __init__(
        self,
        env: Any,
        episode: Episode,
        seats: Seats,
        job: Job,
        executor: Executor | None,
    ) -> None:
        self._env = env
        self._base = env.unwrapped
        self._episode = episode
        self._seats = seats
        self._job = job
        self._executor = executor
        self._answers: dict[str, Answer] = {}
        self._last: dict[str, Turn] = {}

    async def play(self) -> None:
        """Play to the end."""
        env, episode, answers = self._env, self._episode, self._answers
        while env.agents:
            agent = env.agent_selection
            _, reward, terminated, truncated, info = env.last(observe=False)
            self._credit(agent, reward, info)
            if terminated or truncated:
                # The last dead step is that of an agent which was alive at the end, so its flags are the episode's.
                episode.terminated, episode.truncated = bool(terminated), bool(truncated)
                episode.success = episode.success or bool(info["success"])
                env.step(None)  # only takes the agent off the list: it never blocks
                continue
            observation = str(env.observe(agent))
            answer = answers.pop(agent, None)
            if answer is None or answer.observation != observation:
                await self._ask(agent, observation)
                answer = answers.pop(agent)
            await self._step(env, self._record(agent, answer).action)

    async def _step(self, env: Any, action: str) -> None:
        if self._base.blocking:
            await asyncio.get_running_loop().run_in_executor(self._executor, env.step, action)
        else:
            env.step(action)

    async def _ask(self, agent: str, observation: str) -> None:
        """Get an answer for ``agent``, and for all others that act now on the same information."""
        first = len(self._episode.turns)
        round_agents = self._base.round_agents
        if len(round_agents) <= 1:
            (self._answers[agent],) = await self._request(agent, observation, first)
            return
        wanted = [
            (other, observation if other == agent else str(self._env.observe(other)), first + place)
            for place, other in enumerate(round_agents)
            if other not in self._answers
        ]
        # All of them are waited for even if one fails: no request may outlive its episode.
        answers = await asyncio.gather(*(self._request(*request) for request in wanted), return_exceptions=True)
        for (other, _, _), found in zip(wanted, answers, strict=True):
            if isinstance(found, BaseException):
                raise found
            (self._answers[other],) = found

    async def _request(self, agent: str, observation: str, index: int, n: int = 1) -> list[Answer]:
        """Ask for ``n`` answers to the prompt of the turn at ``index``."""
        _, policy, sampling = self._seats[agent]
        job = self._job
        request = Request(
            observation=observation,
            agent=agent,
            sampling=sampling,
            seed=stable_hash(job.seed, self._episode.task, job.sample, index, agent),
            n=n,
            key=(job.task_index, job.sample, index, agent),
            env=self._base,
        )
        started = time.perf_counter()
        completions = await policy.generate(request)
        latency = time.perf_counter() - started
        if len(completions) != n:
            raise PolicyError(f"Policy {policy.name!r} gave {len(completions)} completions; {n} asked for")
        return [Answer(observation, completion, latency) for completion in completions]

    def _record(self, agent: str, answer: Answer) -> Turn:
        """Write down the next turn of the episode."""
        turn = self._turn(agent, answer, len(self._episode.turns))
        self._episode.turns.append(turn)
        self._last[agent] = turn
        return turn

    def _turn(self, agent: str, answer: Answer, index: int) -> Turn:
        episode, completion = self._episode, answer.completion
        previous = self._last.get(agent)
        return Turn(
            episode=episode.id,
            task=episode.task,
            agent=agent,
            policy=self._seats[agent][0],
            index=index,
            agent_turn=0 if previous is None else previous.agent_turn + 1,
            observation=answer.observation,
            action=completion.text,
            prompt_ids=completion.prompt_ids,
            completion_ids=completion.token_ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            weight_version=completion.weight_version,
            prompt_tokens=_count(completion.prompt_tokens, completion.prompt_ids),
            completion_tokens=_count(completion.completion_tokens, completion.token_ids),
            latency_s=answer.latency_s,
        )

    def _credit(self, agent: str, reward: float, info: Mapping[str, Any]) -> None:
        """Credit what ``agent`` received since its last action to that action, and to the episode's totals."""
        self._add_up(agent, reward, info)
        turn = self._last.get(agent)
        if turn is not None:
            note(turn, info)

    def _add_up(self, agent: str, reward: float, info: Mapping[str, Any]) -> None:
        """Add what ``agent`` received since its last action to the episode's totals."""
        episode = self._episode
        try:
            parts = info["reward_parts"]
        except KeyError:
            raise ValueError(
                f"{episode.env}: infos[{agent!r}] has no 'reward_parts'; a reward must come with its named parts"
            ) from None
        if not abs(sum(parts.values()) - reward) <= _REWARD_TOLERANCE:
            raise ValueError(f"{episode.env}: the reward parts {parts!r} of {agent!r} do not add up to {reward!r}")
        episode.returns[agent] += float(reward)
        rewards.add(episode.reward_parts[agent], parts)


def note(turn: Turn, info: Mapping[str, Any]) -> None:
    """Write down what the environment said about a turn: its reward parts, why it was refused, and what else."""
    turn.reward_parts = {name: float(value) for name, value in info["reward_parts"].items()}
    turn.invalid = info.get("invalid_action")
    turn.info = {key: _plain(value) for key, value in info.items() if key not in _OWN_INFO_KEYS and _is_plain(value)}


def _env_id(base: Any) -> str:
    spec = getattr(base, "spec", None)
    return str(spec.id) if spec is not None else str(base.metadata["name"])


def _count(known: int | None, ids: tuple[int, ...] | None) -> int:
    if known is not None:
        return known
    return 0 if ids is None else len(ids)


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold ``value``. Anything else is of use only inside the environment."""
    if value is None or isinstance(value, str | int | float):
        return True
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return isinstance(value, list | tuple) and all(map(_is_plain, value))


def _plain(value: Any) -> Any:
    """Return a plain value as JSON would read it back: tuples as lists, enum members as plain text."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    return value
