"""What the planning environments share: turns of move lists on the current state, rewards and history.

A domain is a subclass of :class:`PlanningEnv` with a few hooks (see there); ``<Domain>1Agent`` is that domain alone,
``<Domain>2Agent(<Domain>, PairEnv)`` adds the coder (:mod:`llm_envs.planning.pair`).
"""

from __future__ import annotations

import difflib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gymnasium import error

from llm_envs import parsing
from llm_envs.core import Outcome, RenderMode, TextEnv, check_rounds
from llm_envs.rewards import TEAM
from llm_envs.tasks import FrozenDict, Task, TaskSet

__all__ = ["IllegalMove", "PlanningEnv"]

NO_PLAN = "There is no solution from here."


class IllegalMove(ValueError):
    """A move that the rules do not allow in this state. ``str(exception)`` is the reason as the agent reads it."""


class PlanningEnv(TextEnv, ABC):
    """Base of the planning environments: a planner, ``max_rounds`` turns, each a list of moves on the current state.

    The moves of a list are made one after the other until one is illegal (it is not made, its penalty is paid once and
    the rest is discarded) or the task is solved. A turn without a usable list is lost. Everything that was said and the
    state after every turn stand in the history, which only grows.

    A domain sets the class attributes below and implements

    * ``_load_tasks(tasks, split, **options)`` — the task set. ``task.data["optimal_length"]`` is the length of a
      shortest solution (leave it out where it is not known; ``optimal`` is then never paid);
    * ``_rules()`` — what the task is, how moves work, the legend: the first part of every prompt;
    * ``_moves_help()`` — what one item of a list may be, for the instructions. No example that is itself a usable list:
      an agent that echoes its prompt must not have answered;
    * ``_examples()`` — example lists, for the action space;
    * ``_new_state()`` — the first state of ``self.task``. A state is immutable and small (ints, strings, frozensets,
      short tuples): forks share it. What belongs to the task and is costly goes into an object that is kept between
      episodes and whose ``__deepcopy__`` returns itself;
    * ``_state_text(state)`` — the state as agents read it, with all that a planner needs besides the rules;
    * ``_read_move(item)`` — the canonical spelling of an item of a list, or None if it is no move in any state;
    * ``_move(state, move)`` — the state after ``move``; raises :class:`IllegalMove`;
    * ``_solved(state)``;
    * ``_distance(state)`` — how far the goal is: the number of moves of a shortest solution, or a documented stand-in.
      Finite for every state that can be reached, 0 if solved;
    * ``_solution(state)`` — a shortest sequence of moves to the goal, or None if there is none.

    Rewards, by part (coefficients in ``rewards``):

    * ``team``: ``goal`` to every agent, once solved; ``optimal``: to every agent, if no more moves were used than a
      shortest solution has;
    * ``step`` for each move that was made, over the episode never more than half of ``goal``: no detour costs more
      than arriving is worth;
    * ``illegal`` for an illegal move, at most one a turn;
    * ``progress``: ``progress · (Φ(s′) − Φ(s))`` with Φ(s) = −distance(s) / distance of the first state, over the moves
      that were made. This is potential-based shaping (Ng, Harada and Russell 1999) with γ = 1: it telescopes, so that
      an episode is paid for where it ends and not for the way. With γ < 1 a closed walk is paid
      (1 − γ)·Σ distance > 0 where returns are not discounted, as they are not here: walking in circles would pay.

    Args:
        tasks: A task set: a name, the path of a file, or tasks; None for the domain's generated tasks.
        split: ``"train"``, ``"test"`` or None for the set's default.
        max_rounds: Turns of the planner.
        max_moves: The longest list that is accepted; None for the domain's default.
        notation: How moves are written: one of :attr:`notations`; None for the first.
        rewards: Reward coefficients that differ from :attr:`default_rewards`.
        max_retries: How often an agent may try again after unusable text before its turn is lost.
        invalid_penalty: Reward part ``invalid`` for unusable text.
        task_options: Options of the task set.
        render_mode: ``"ansi"``, ``"human"`` or None.
    """

    roles: ClassVar[tuple[str, ...]] = ("planner_0",)
    default_tasks: ClassVar[str]
    """Name of the domain's generated task set."""
    default_rewards: ClassVar[Mapping[str, float]] = {
        "goal": 1.0,
        "optimal": 0.5,
        "step": -0.01,
        "illegal": -0.1,
        "progress": 0.5,
    }
    """Reward coefficients. A domain may change them and add its own, which it pays in :meth:`_turn_parts`."""
    default_max_moves: ClassVar[int] = 100
    notations: ClassVar[Mapping[str, str]] = {"moves": "[move, move, ...]"}
    """How moves may be written, each with the form of its list as instructions and reasons show it (not itself a usable
    list). The first is the default; ``self.notation`` is the one chosen, ``self.list_form`` its form."""

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] | None = None,
        split: str | None = None,
        *,
        max_rounds: int = 4,
        max_moves: int | None = None,
        notation: str | None = None,
        rewards: Mapping[str, float] | None = None,
        max_retries: int = 0,
        invalid_penalty: float = -0.1,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        self.max_rounds = check_rounds(max_rounds)
        self.max_moves = self.default_max_moves if max_moves is None else max_moves
        if isinstance(self.max_moves, bool) or not isinstance(self.max_moves, int) or self.max_moves < 1:
            raise error.Error(f"`max_moves` must be an integer of 1 or more, actual value: {max_moves!r}.")
        self.notation = next(iter(self.notations)) if notation is None else notation
        if not isinstance(self.notation, str) or self.notation not in self.notations:
            raise error.Error(f"`notation` must be one of {', '.join(self.notations)}, actual value: {notation!r}.")
        self.list_form = self.notations[self.notation]
        self.coefficients = FrozenDict({**self.default_rewards, **_check_rewards(rewards or {}, self.default_rewards)})
        if task_options is not None and not isinstance(task_options, Mapping):
            raise error.Error(
                f"`task_options` must be a mapping such as {{'seed': 1}}, actual value: {task_options!r}."
            )
        super().__init__(
            self.roles,
            self._load_tasks(self.default_tasks if tasks is None else tasks, split, **(task_options or {})),
            examples=self._example_actions(),
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )

    # ---- what a domain writes --------------------------------------------------------------------------------------

    @abstractmethod
    def _load_tasks(self, tasks: str | TaskSet | Sequence[Task], split: str | None, **options: Any) -> TaskSet: ...

    @abstractmethod
    def _rules(self) -> str: ...

    @abstractmethod
    def _moves_help(self) -> str: ...

    @abstractmethod
    def _examples(self) -> Sequence[str]: ...

    @abstractmethod
    def _new_state(self) -> Any: ...

    @abstractmethod
    def _state_text(self, state: Any) -> str: ...

    @abstractmethod
    def _read_move(self, item: str) -> str | None: ...

    @abstractmethod
    def _move(self, state: Any, move: str) -> Any: ...

    @abstractmethod
    def _solved(self, state: Any) -> bool: ...

    @abstractmethod
    def _distance(self, state: Any) -> float: ...

    @abstractmethod
    def _solution(self, state: Any) -> Sequence[str] | None: ...

    def _turn_parts(self, before: Any, after: Any) -> Mapping[str, float]:
        """Further parts for the planner, for a turn that led from ``before`` to ``after``. Default: none.

        Pay the change of something that depends on the state alone: what is undone must cost what it brought.
        """
        return {}

    # ---- an episode ------------------------------------------------------------------------------------------------

    def _start(self) -> str:
        self._state = self._new_state()
        self._first_distance = self._left = self._distance(self._state)
        self._moves = 0
        self._turn = 1
        self._history = f"{self._rules()}\n\n{self._state_text(self._state)}"
        return self.possible_agents[0]

    def _play(self, agent: str, action: str) -> Outcome:
        plan = self._read_plan(action)
        before, left, moves = self._state, self._left, self._moves
        after, made, problem = self._follow(before, plan)
        self._state, self._moves = after, moves + made
        self._left = self._distance(after) if made else left
        solved = made > 0 and self._solved(after)
        worth = self.coefficients
        parts = {"step": self._step_cost(self._moves) - self._step_cost(moves)}
        if self._first_distance:
            parts["progress"] = worth["progress"] * (left - self._left) / self._first_distance
        if problem is not None:
            parts["illegal"] = worth["illegal"]
        if made:
            parts.update(self._turn_parts(before, after))
        result = _report(made, None if problem is None else plan[made], problem, solved)
        self._say(agent, f"{action}\n\n[result]\n{result}\n{self._state_text(after)}")
        return self._next_turn(agent, parts, solved=solved)

    def _forfeit(self, agent: str) -> Outcome:
        """The turn is lost, the state stays as it is."""
        self._say(agent, "(no usable list of moves)")
        return self._next_turn(agent, {})

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds

    def _next_turn(self, agent: str, parts: dict[str, float], *, solved: bool = False) -> Outcome:
        """What follows from a turn of the planner that earned it ``parts``."""
        best = self.task.data.get("optimal_length")
        info = {"distance": self._left, "moves": self._moves, "optimal_length": best}
        infos = dict.fromkeys(self.possible_agents, info)
        if solved:
            shared = {TEAM: self.coefficients["goal"]}
            if self._moves == best:
                shared["optimal"] = self.coefficients["optimal"]
            rewards = {name: {**shared, **parts} if name == agent else shared for name in self.possible_agents}
            return Outcome(None, rewards, terminated=True, success=True, info=infos)
        if self._turn == self.max_rounds:
            return Outcome(None, {agent: parts}, truncated=True, info=infos)
        self._turn += 1
        return Outcome(self.possible_agents[0], {agent: parts}, info=infos)

    def _read_plan(self, text: str) -> list[str]:
        """The list of moves in ``text``.

        Raises:
            llm_envs.parsing.InvalidAction: There is none that can be used.
        """
        return parsing.moves(text, self._read_move, limit=self.max_moves, form=self.list_form)

    def _follow(self, state: Any, plan: Sequence[str]) -> tuple[Any, int, str | None]:
        """Make the moves of ``plan`` until one is illegal or the task is solved.

        Returns:
            The state reached, how many moves were made, and why the next one is illegal (None if it is not).
        """
        for made, move in enumerate(plan):
            try:
                state = self._move(state, move)
            except IllegalMove as reason:
                return state, made, str(reason)
            if self._solved(state):
                return state, made + 1, None
        return state, len(plan), None

    def _step_cost(self, moves: int) -> float:
        return max(self.coefficients["step"] * moves, -0.5 * self.coefficients["goal"])

    # ---- texts -----------------------------------------------------------------------------------------------------

    def _say(self, agent: str, text: str) -> None:
        """Add to what everyone can read from now on."""
        self._history += f"\n\n[{agent}]\n{text}"

    def _context(self, agent: str) -> str:
        return self._history

    def _instructions(self, agent: str) -> str:
        return (
            f"You are {agent}, turn {self._turn} of {self.max_rounds}. {self._role(agent)}Give the moves to make from "
            f"the current state as one list at the end: {self.list_form} (at most {self.max_moves}). "
            f"{self._moves_help()} The moves are made in order, up to the first illegal one."
        )

    def _role(self, agent: str) -> str:
        """What else ``agent`` is told of its part, ending in a space."""
        return ""

    def _oracle(self, agent: str) -> str:
        plan = self._solution(self._state)
        return NO_PLAN if plan is None else f"[{', '.join(plan[: self.max_moves])}]"

    def _example_actions(self) -> dict[str, Sequence[str]]:
        return {"planner_0": (*self._examples(), "I do not know.", "")}


def _report(made: int, illegal: str | None, problem: str | None, solved: bool) -> str:
    moves = "1 move was made" if made == 1 else f"{made} moves were made"
    if problem is not None:
        return f"{moves}; then {illegal} is illegal: {problem}. What came after it was not played."
    return f"{moves}: solved." if solved else f"{moves}."


def _check_rewards(given: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    """``given``, if it has no key that is not ``known``.

    Raises:
        gymnasium.error.Error: It has, it is no mapping, or a coefficient is not a finite number.
    """
    if not isinstance(given, Mapping):
        raise error.Error(f"`rewards` must be a mapping such as {{'step': 0}}, actual value: {given!r}.")
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise error.Error(f"`rewards` has no part {name!r}.{hint} The parts are {', '.join(known)}.")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise error.Error(f"`rewards[{name!r}]` must be a finite number, actual value: {value!r}.")
    return {name: float(value) for name, value in given.items()}
