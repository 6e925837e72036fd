"""`TextEnv`: the one base class of every environment in the suite.

An environment is a PettingZoo AEC environment whose observations and actions are text. An author writes the roles,
how a task starts, what each role may know and is asked (both pure), and what an action does; :class:`TextEnv` does the
rest: turn taking, rounds of agents that act on the same information, retries after unusable text, dead steps, reward
bookkeeping by named parts, seeding, forking, rendering and infos. `docs/environments/contract.md` lists what every
environment keeps, and :func:`llm_envs.testing.check_env` checks it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from gymnasium import error
from pettingzoo import AECEnv

from llm_envs import rewards as reward_parts
from llm_envs.console import printable
from llm_envs.copying import copy_state
from llm_envs.outcome import Outcome, with_rewards
from llm_envs.parsing import InvalidAction
from llm_envs.seeding import episode_hash, generator_state
from llm_envs.spaces import MAX_ACTION_CHARS, MAX_OBSERVATION_CHARS, FreeText, TextObs
from llm_envs.tasks import Task, TaskSet

if TYPE_CHECKING:
    from llm_envs.registration import EnvSpec

__all__ = ["AGENT_NAME", "Outcome", "RenderMode", "TextEnv", "check_rounds"]

AGENT_NAME = re.compile(r"[a-z]+_[0-9]+")
RenderMode = Literal["human", "ansi"] | None


class TextEnv(AECEnv[str, str, str | None]):
    """Base class of text environments.

    A subclass sets ``metadata`` (``name`` such as ``"math_2agent_v0"``, ``is_parallelizable``, and ``zero_sum`` where
    the agents are opponents whose rewards add up to 0 in every step) and implements

    * ``_start()`` — begin ``self.task``; return who speaks first (an agent, or a tuple of agents for a round);
    * ``_context(agent)`` — pure: the task, then all that this agent may know so far, in order. It only ever grows at
      its end while the episode runs;
    * ``_instructions(agent)`` — pure: role and answer format, shown after the context;
    * ``_play(agent, action)`` — parse, apply the rules, return an :class:`Outcome`; raise
      :class:`~llm_envs.parsing.InvalidAction` for text that cannot be used. Inside a round it stores the action and
      returns None, and ``_end_round()`` returns the outcome once all have acted;
    * ``_forfeit(agent)`` — what happens when an agent has no retry left (default: the episode ends unsolved);
    * ``_oracle(agent)`` — an action text that solves this agent's part;
    * ``_most_moves(agent)`` — pure: the most turns that the rules give an agent (default: None, no bound is known).

    State that changes during an episode lives in plain attributes set in ``_start`` (ints, strings, tuples, lists,
    dicts, sets, arrays): :meth:`fork` copies those.

    Args:
        agents: The agents in AEC order, each named like ``solver_0``.
        tasks: The task set.
        examples: Example action texts by agent, well-formed and malformed: what the action space samples from.
        max_retries: How often an agent may try again after unusable text before it forfeits the turn. In a round there
            are no retries: the next round is the retry.
        invalid_penalty: The ``invalid`` reward part for unusable text (0 or negative).
        render_mode: ``"ansi"`` (``render()`` returns the transcript), ``"human"`` (prints it) or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "ansi"], "is_parallelizable": False}
    blocking: ClassVar[bool] = False
    """Whether ``step`` may wait for another process; such steps are run off an event loop."""
    success: bool
    """Whether any agent succeeded; False while the episode runs."""
    task: Task
    """The task of the episode."""
    succeeded: frozenset[str]
    """The agents that succeeded; empty while the episode runs."""
    spec: EnvSpec | None = None

    def __init__(
        self,
        agents: Sequence[str],
        tasks: TaskSet,
        *,
        examples: Mapping[str, Sequence[str]] | None = None,
        max_retries: int = 0,
        invalid_penalty: float = -0.1,
        render_mode: RenderMode = None,
    ) -> None:
        super().__init__()
        _check_agents(agents)
        if len(tasks) == 0:
            raise error.Error(f"The task set `{tasks.name}` (split {tasks.split!r}) is empty.")
        if max_retries < 0:
            raise error.Error(f"`max_retries` must be 0 or more, actual value: {max_retries}.")
        if invalid_penalty > 0:
            raise error.Error(f"`invalid_penalty` must be 0 or negative, actual value: {invalid_penalty}.")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise error.UnsupportedMode(
                f"`render_mode` must be None or one of {self.metadata['render_modes']}, actual value: {render_mode!r}."
            )
        self.possible_agents = list(agents)
        self.agents: list[str] = []
        self.tasks = tasks
        self.max_retries = max_retries
        self.invalid_penalty = float(invalid_penalty)
        self.render_mode = render_mode
        self._observation_spaces = {agent: FreeText(MAX_OBSERVATION_CHARS) for agent in agents}
        self._action_spaces = {
            agent: FreeText(MAX_ACTION_CHARS, examples=tuple((examples or {}).get(agent, ()))) for agent in agents
        }
        self._seed_sequence: tuple[int, int] | None = None
        self._task_count = len(tasks)
        self._single_rounds: dict[str, tuple[str, ...]] = {agent: (agent,) for agent in agents}
        self._zero_rewards = dict.fromkeys(agents, 0.0)
        self._flags_for_all = {flag: dict.fromkeys(agents, flag) for flag in (False, True)}
        self._agent_names = frozenset(agents)
        self._has_started = False

    # ---- what an author writes -------------------------------------------------------------------------------------

    def _start(self) -> str | tuple[str, ...]:
        raise _missing(self, "_start")

    def _context(self, agent: str) -> str:
        raise _missing(self, "_context")

    def _instructions(self, agent: str) -> str:
        raise _missing(self, "_instructions")

    def _play(self, agent: str, action: str) -> Outcome | None:
        raise _missing(self, "_play")

    def _end_round(self) -> Outcome:
        raise _missing(self, "_end_round")

    def _oracle(self, agent: str) -> str:
        raise _missing(self, "_oracle")

    def _most_moves(self, agent: str) -> int | None:
        """The most turns that the rules give ``agent``, retries aside. Default: no bound is known."""
        return None

    def _forfeit(self, agent: str) -> Outcome | None:
        """The turn of ``agent`` is lost. Default: the episode ends by its rules, unsolved."""
        return Outcome(terminated=True)

    # ---- PettingZoo ------------------------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> FreeText:
        """The space of ``agent``'s observations: any text."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> FreeText:
        """The space of ``agent``'s actions: any text, with examples to sample from."""
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start an episode.

        Args:
            seed: Chooses the task and seeds the episode's generator: same seed, same episode. None goes on with the
                stream of the last seed (or with fresh entropy if there was none).
            options: ``{"task_index": i}`` names the task. Unknown keys are ignored.

        Raises:
            gymnasium.error.Error: ``seed`` is not a non-negative integer, or ``task_index`` is out of range.
        """
        index = options.get("task_index") if options else None
        named = None if index is None else _check_index(index, self.tasks)  # before anything of the episode changes
        self._episode_seed = self._next_seed(seed)
        self._np_random: np.random.Generator | None = None
        self._np_state: Mapping[str, Any] | None = None
        self.task_index = number = self._episode_seed % self._task_count if named is None else named
        self.task = task = self.tasks._task(number)  # in range by now: what `tasks[number]` checks is known
        self._has_started = True
        self.success = False
        self.succeeded = frozenset()
        self.transcript: list[tuple[str, str]] = []
        agents = self.agents = self.possible_agents.copy()
        self.rewards = self._zero_rewards.copy()
        self._cumulative_rewards = self._zero_rewards.copy()
        self._paid_nothing = True
        self.terminations = self._flags_for_all[False].copy()
        self.truncations = self._flags_for_all[False].copy()
        name = task.id
        infos: dict[str, dict[str, Any]] = {}
        self.infos = infos
        for agent in agents:
            infos[agent] = {"reward_parts": {}, "success": False, "task_id": name, "task_index": number}
        self._feedback: dict[str, str] = {}
        self._round_rewards: dict[str, dict[str, float]] = {}
        self._give_turn(self._start())

    def observe(self, agent: str) -> TextObs:
        """The whole prompt of ``agent``'s turn now. Pure; legal for any agent at any time after a reset."""
        if not self._has_started:
            raise error.ResetNeeded("Cannot call `observe` before calling `reset`.")
        if agent not in self._single_rounds:
            raise self._unknown_agent(agent)
        text = f"{self._context(agent)}\n\n{self._instructions(agent)}"
        if agent in self._feedback:
            text = f"{text}\n\nYour last answer could not be used: {self._feedback[agent]}"
        return TextObs(text)

    def last(self, observe: bool = True) -> tuple[TextObs | None, float, bool, bool, dict[str, Any]]:
        """Observation, reward since its last turn, ``terminated``, ``truncated`` and info of ``agent_selection``."""
        agent = self.agent_selection
        return (
            self.observe(agent) if observe else None,
            self._cumulative_rewards[agent],
            self.terminations[agent],
            self.truncations[agent],
            self.infos[agent],
        )

    def agent_iter(self, max_iter: int = sys.maxsize) -> Iterator[str]:
        """Yield ``agent_selection`` until nobody is left, or ``max_iter`` times; the loop's body calls ``step``."""
        for _ in range(min(max_iter, sys.maxsize)):
            if not self.agents:
                return
            yield self.agent_selection

    def step(self, action: str | None) -> None:
        """Play ``action`` for ``agent_selection``. Any string is legal; None only for an agent whose episode is over.

        Raises:
            gymnasium.error.ResetNeeded: There was no reset, or the episode is over for everyone.
            gymnasium.error.InvalidAction: ``action`` is not a string (for a live agent).
        """
        if not self.agents:
            raise error.ResetNeeded("Cannot call `step` before calling `reset`, or after the last agent is done.")
        agent, acting = self.agent_selection, self._round
        if not acting:
            self._was_dead_step(action)
            return
        if not isinstance(action, str):
            raise error.InvalidAction(f"{agent} expects a str action, actual type: {type(action).__name__}.")
        self._cumulative_rewards[agent] = 0.0
        self.infos[agent] = info = {
            "reward_parts": {},
            "success": False,
            "task_id": self.task.id,
            "task_index": self.task_index,
        }
        if self._feedback:
            self._feedback.pop(agent, None)
        self.transcript.append((agent, action))
        in_round = len(acting) > 1
        paid: dict[str, float] | None = None
        try:
            if len(action) > MAX_ACTION_CHARS:
                raise InvalidAction(f"The text is {len(action)} characters long; the limit is {MAX_ACTION_CHARS}.")
            outcome = self._play(agent, action)
        except InvalidAction as reason:
            info["invalid_action"] = self._feedback[agent] = str(reason)
            paid = {reward_parts.INVALID: self.invalid_penalty}
            if not in_round and self._retries < self.max_retries:
                self._retries += 1
                self._pay({agent: paid})
                return
            outcome = self._forfeit(agent)
        if in_round:
            outcome = self._advance_round(agent, outcome, paid)
            if outcome is None:
                return
        elif outcome is None:
            raise TypeError(f"{type(self).__name__}._play must return an Outcome for a turn outside a round.")
        elif paid:
            outcome = with_rewards(outcome, {agent: paid})
        self._apply(outcome)

    def render(self) -> str | None:
        """The transcript so far: returned in mode ``"ansi"``, printed in mode ``"human"``."""
        if self.render_mode is None:
            raise error.Error(
                "Cannot call `render` without a render mode: make the environment with render_mode='ansi'."
            )
        text = self._render_text()
        if self.render_mode == "human":
            sys.stdout.write(printable(text) + "\n")
            return None
        return text

    def state(self) -> TextObs:
        """A global view for a centralised critic: the task and everything that was said."""
        return TextObs(self._render_text())

    def close(self) -> None:
        """Nothing to release: tools are shared and outlive an environment."""

    # ---- beyond PettingZoo -----------------------------------------------------------------------------------------

    @property
    def round_agents(self) -> tuple[str, ...]:
        """The agents that act now on the same information and have not acted yet, in AEC order; none at the end."""
        if not self.agents or self.terminations[self.agent_selection] or self.truncations[self.agent_selection]:
            return ()
        return self._round[self._round.index(self.agent_selection) :]

    @property
    def np_random(self) -> np.random.Generator:
        """The episode's own generator, seeded by ``reset``."""
        if self._np_random is None:
            self._np_random = np.random.default_rng(self._episode_seed)
            if self._np_state is not None:
                self._np_random.bit_generator.state = self._np_state
        return self._np_random

    def oracle(self, agent: str) -> str:
        """An action text that solves ``agent``'s part of the current task."""
        if agent not in self._single_rounds:
            raise self._unknown_agent(agent)
        return self._oracle(agent)

    def most_turns(self, agents: Collection[str] | None = None) -> int | None:
        """The most turns that ``agents`` (None: all) can have together in an episode, retries included.

        It is a bound that no policy can exceed, and may not be reached. None where nothing bounds the episode.
        """
        counts = [self._most_turns(agent) for agent in self.possible_agents if agents is None or agent in agents]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def _most_turns(self, agent: str) -> int | None:
        moves = self._most_moves(agent)
        if moves is None or self.metadata.get("is_parallelizable"):  # in a round there are no retries
            return moves
        return moves * (1 + self.max_retries)

    def fork(self) -> TextEnv:
        """An independent copy of the environment in its present state, generators included.

        Task set, spaces and tools are shared (they do not change during an episode); episode state is copied.
        """
        other = object.__new__(type(self))
        state = other.__dict__
        for name, value in self.__dict__.items():
            state[name] = value if name in _SHARED else copy_state(value)
        if self._has_started:
            state["transcript"] = self.transcript.copy()
            if self._np_random is not None:
                state.update(generator_state(self._np_random))
        return other

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _next_seed(self, seed: int | None) -> int:
        if type(seed) is int and seed >= 0:
            first, number = seed, 0
        elif seed is not None:
            if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
                raise error.Error(f"`seed` must be a non-negative integer or None, actual value: {seed!r}.")
            first, number = int(seed), 0
        elif self._seed_sequence is None:
            first, number = int(np.random.SeedSequence().generate_state(1, np.uint64)[0]), 0
        else:
            first, number = self._seed_sequence
            number += 1
        self._seed_sequence = (first, number)
        return episode_hash(first, number)

    def _unknown_agent(self, agent: str) -> error.Error:
        return error.Error(f"Unknown agent {agent!r}. The agents are {', '.join(self.possible_agents)}.")

    def _give_turn(self, following: str | tuple[str, ...]) -> None:
        if isinstance(following, str):
            agents = self._single_rounds.get(following, ())
        else:
            agents = tuple(following) if set(following) <= self._agent_names else ()
        if not agents:
            raise TypeError(
                f"{type(self).__name__} gives the turn to {following!r}; the agents are {self.possible_agents}."
            )
        self._round = agents
        self._retries = 0
        self.agent_selection = agents[0]

    def _advance_round(self, agent: str, outcome: Outcome | None, paid: dict[str, float] | None) -> Outcome | None:
        """Hold everything back until the round is complete, so that nobody can see what another one did."""
        if outcome is not None:
            raise TypeError(
                f"{type(self).__name__}: _play and _forfeit must return None inside a round; use _end_round."
            )
        if paid:
            self._round_rewards[agent] = paid
        position = self._round.index(agent) + 1
        if position < len(self._round):
            self._clear_rewards()
            self.agent_selection = self._round[position]
            return None
        held, self._round_rewards = self._round_rewards, {}
        return with_rewards(self._end_round(), held)

    def _clear_rewards(self) -> None:
        self.rewards = dict.fromkeys(self.rewards, 0.0)
        self._paid_nothing = True

    def _was_dead_step(self, action: str | None) -> None:
        """As in ``AECEnv``, for what holds here: the episode ends for all agents at once, and they leave in order."""
        if action is not None:
            raise ValueError("when an agent is dead, the only valid action is None")
        agent, agents = self.agent_selection, self.agents
        del self.terminations[agent]
        del self.truncations[agent]
        del self.rewards[agent]
        del self._cumulative_rewards[agent]
        del self.infos[agent]
        agents.remove(agent)
        if not self._paid_nothing:
            self._clear_rewards()
        if agents:
            self.agent_selection = agents[0]
        else:
            self.agent_selection = self._last_actor

    def _pay(self, paid: Mapping[str, Mapping[str, float]]) -> None:
        if not self._paid_nothing:
            self._clear_rewards()
        self._paid_nothing = False
        rewards, infos = self.rewards, self.infos
        for agent, parts in paid.items():
            if parts and agent in rewards:
                mine, reward = infos[agent]["reward_parts"], 0.0
                for name, value in parts.items():
                    reward += value
                    mine[name] = mine.get(name, 0.0) + value
                rewards[agent] = reward = float(reward)
                self._cumulative_rewards[agent] += reward

    def _apply(self, outcome: Outcome) -> None:
        success, infos = outcome.success, self.infos
        if success is not False or self.success:
            self.succeeded = success = self._names_of(success)
            self.success = bool(success)
        if outcome.rewards:
            self._pay(outcome.rewards)
        elif not self._paid_nothing:
            self._clear_rewards()
        if outcome.info:
            for agent, extra in outcome.info.items():
                infos[agent].update(extra)
        following = outcome.next
        if outcome.terminated or outcome.truncated:
            if following is None:
                self._close_episode(bool(outcome.terminated), bool(outcome.truncated))
                return
        elif following is not None:
            self._give_turn(following)
            return
        raise TypeError(
            f"{type(self).__name__}: an outcome either names who speaks next or ends the episode: {outcome}."
        )

    def _close_episode(self, terminated: bool, truncated: bool) -> None:
        self.terminations = self._flags_for_all[terminated].copy()
        self.truncations = self._flags_for_all[truncated].copy()
        for agent in self.succeeded:
            self.infos[agent]["success"] = True
        self._round = ()
        self._last_actor, self.agent_selection = self.agent_selection, self.agents[0]

    def _names_of(self, success: bool | Collection[str]) -> frozenset[str]:
        """Which agents succeeded: everyone or nobody for a flag, else those that are named."""
        if success is True:
            return self._agent_names
        if isinstance(success, str):
            raise TypeError(
                f"{type(self).__name__}: `success` is a bool or a collection of agents, not the text {success!r}."
            )
        if type(success) is not frozenset and not isinstance(success, Collection):
            return self._agent_names if success else frozenset()
        named = frozenset(success)
        if not named <= self._agent_names:
            raise TypeError(
                f"{type(self).__name__} gives success to {sorted(named)}; the agents are {self.possible_agents}."
            )
        return named

    def _render_text(self) -> str:
        lines = [f"Task {self.task.id}\n{self.task.question}"]
        lines += [f"[{agent}]\n{action}" for agent, action in self.transcript]
        if not self.agents or self.terminations[self.agents[0]] or self.truncations[self.agents[0]]:
            lines.append(self._ending_text())
        return "\n\n".join(lines)

    def _ending_text(self) -> str:
        if not self.metadata.get("zero_sum"):
            return "Solved." if self.success else "Not solved."
        winners = [agent for agent in self.possible_agents if agent in self.succeeded]
        return f"Won by {' and '.join(winners)}." if winners else "Nobody won by play."


_SHARED = frozenset(
    {"tasks", "task", "possible_agents", "spec", "_observation_spaces", "_action_spaces"}
    | {"_agent_names", "_single_rounds", "_zero_rewards", "_flags_for_all"}
    | {"transcript", "_np_random", "_np_state"}
)
"""What a fork does not copy: it never changes, or :meth:`TextEnv.fork` sees to it."""


def _check_agents(agents: Sequence[str]) -> None:
    if not agents:
        raise error.Error("An environment needs at least one agent.")
    for agent in agents:
        if not AGENT_NAME.fullmatch(agent):
            raise error.Error(f"Malformed agent name: {agent!r}. Agents are named `<role>_<number>`, like `solver_0`.")
    if len(set(agents)) != len(agents):
        raise error.Error(f"Agent names must differ, actual names: {list(agents)}.")


def _check_index(index: Any, tasks: TaskSet) -> int:
    if isinstance(index, bool) or not isinstance(index, (int, np.integer)) or not 0 <= index < len(tasks):
        raise error.Error(
            f"`task_index` must be an integer in [0, {len(tasks) - 1}] for the task set `{tasks.name}`, "
            f"actual value: {index!r}."
        )
    return int(index)


def check_rounds(max_rounds: int) -> int:
    """``max_rounds``, if it is a positive integer.

    Raises:
        gymnasium.error.Error: It is not.
    """
    if isinstance(max_rounds, bool) or not isinstance(max_rounds, int) or max_rounds < 1:
        raise error.Error(f"`max_rounds` must be an integer of 1 or more, actual value: {max_rounds!r}.")
    return max_rounds


def _missing(env: TextEnv, method: str) -> TypeError:
    return TypeError(f"{type(env).__name__} must implement `{method}` (see `llm_envs.core.TextEnv`).")
