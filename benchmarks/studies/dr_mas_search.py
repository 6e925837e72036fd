"""Search with a router, in so few words that a model of a tenth of a million parameters learns it from rewards.

The order of `search-3agent`: a verifier decides in every round whether enough is known, a searcher looks something up,
an answerer answers, once an episode. What is looked up are links between words, and the answer is a number of links
away from a word. The roles are called with unequal frequency, and what they are paid can be made to differ. Registered
under `short-search-3agent-v0`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gymnasium import error

from benchmarks.studies.demonstrator import Demonstrator
from llm_envs.core import Outcome, RenderMode, TextEnv, check_rounds
from llm_envs.parsing import InvalidAction
from llm_envs.registration import register as register_env
from llm_envs.registration import registry
from llm_envs.rewards import TEAM
from llm_envs.tasks import Draft, ListTaskSet, ProceduralTaskSet, Task, TaskSet

__all__ = ["SEARCH", "CrewPolicy", "ShortSearch3Agent", "draw_links", "register"]

SEARCH = "short-search-3agent-v0"
VERDICTS = ("no", "yes")


def draw_links(rng: random.Random, *, words: int = 16, min_links: int = 2, max_links: int = 4) -> Draft:
    """Draw a world of words that are linked in one circle, a word to start from and how many links to follow.

    The statement is the way that has to be found, so no way of one split is in the other. Agents see its first word and
    its length.

    Raises:
        gymnasium.error.Error: The numbers do not fit each other.
    """
    if not 1 <= min_links <= max_links < words:
        raise error.Error(
            f"`min_links` {min_links}, `max_links` {max_links} and `words` {words} must be 1 <= min <= max < words."
        )
    circle = [f"w{number}" for number in range(words)]
    rng.shuffle(circle)
    links = rng.randint(min_links, max_links)
    way = circle[: links + 1]
    return Draft(f"{links} links: {' '.join(way)}", way[-1], {"circle": circle, "links": links})


class ShortSearch3Agent(TextEnv):
    """A verifier, a searcher and an answerer follow links from word to word.

    | | |
    |---|---|
    | Agents | `verifier_0`, `searcher_0`, `answerer_0` |
    | Order | verifier, then searcher ("no") or answerer ("yes"), up to `max_rounds` rounds; the last goes to the answerer |
    | Actions | verifier: `yes` or `no`; searcher and answerer: one word |
    | Observations | number of links, first word, every search with the word that was found, the name of who acts |

    ## Rewards
    `team`: 1 to all if the answer is the word that many links away, else 0, paid at the end. `cost`: minus
    `search_cost` to the searcher whenever it is called, minus `answer_cost` to the answerer. Both are due whatever it
    says, so they shift the rewards of a role without a word on what to do; and as the answerer is called once in every
    episode, `answer_cost` shifts all episodes alike. `wrong`: minus `wrong_cost` to the answerer for a wrong answer.
    `invalid`: `invalid_penalty` for anything else than the agent's words.

    ## Episode end
    Terminated by an answer; an answer that is no word is a wrong one.

    Args:
        tasks: `"links"`, or tasks.
        split: `"train"`, `"test"` or None for the first.
        max_rounds: Rounds, at least 2. None: one more than the most links ask for, and one to spare.
        search_cost: What a call costs the searcher; below 0 it is paid for it.
        answer_cost: The same for the answerer.
        wrong_cost: What a wrong answer costs the answerer.
        invalid_penalty: Reward part `invalid`.
        task_options: Arguments of :func:`draw_links`.
        render_mode: `"ansi"`, `"human"` or None.
    """  # noqa: E501

    metadata = {"name": "short_search_3agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    roles: ClassVar[tuple[str, ...]] = ("verifier_0", "searcher_0", "answerer_0")

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = "links",
        split: str | None = None,
        *,
        max_rounds: int | None = None,
        search_cost: float = 0.0,
        answer_cost: float = 0.0,
        wrong_cost: float = 0.0,
        invalid_penalty: float = -0.1,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        found = _tasks(tasks, split, task_options or {})
        circle = found[0].data["circle"]
        words = (*circle, f"{circle[0]} {circle[1]}", "")
        super().__init__(
            self.roles,
            found,
            examples={"verifier_0": (*VERDICTS, "maybe"), "searcher_0": words, "answerer_0": words},
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )
        most = (task_options or {}).get("max_links", 4)
        self.max_rounds = check_rounds(most + 2 if max_rounds is None else max_rounds)
        if self.max_rounds < 2:
            raise error.Error(f"`max_rounds` must be 2 or more, actual value: {max_rounds}.")
        self.search_cost, self.answer_cost = float(search_cost), float(answer_cost)
        self.wrong_cost = float(wrong_cost)

    def _start(self) -> str:
        circle = self.task.data["circle"]
        self._next_word = dict(zip(circle, (*circle[1:], circle[0]), strict=True))
        self._round_number = 1
        self._text = f"{self.task.data['links']} {circle[0]}"
        self.known = circle[0]
        return "verifier_0"

    def _context(self, agent: str) -> str:
        return self._text

    def _instructions(self, agent: str) -> str:
        return agent

    def _play(self, agent: str, action: str) -> Outcome:
        if agent == "verifier_0":
            if action not in VERDICTS:
                raise InvalidAction("no verdict")
            return Outcome("answerer_0" if action == "yes" else "searcher_0")
        if action not in self._next_word:
            raise InvalidAction("no word")
        if agent == "answerer_0":
            return self._end(right=action == self.task.answer)
        self.known = self._next_word[action]
        self._text += f"\n{action} {self.known}"
        return self._next_round()

    def _forfeit(self, agent: str) -> Outcome:
        """No verdict is a "no", a query that is none finds nothing, an answer that is none is wrong."""
        if agent == "verifier_0":
            return Outcome("searcher_0")
        return self._end(right=False) if agent == "answerer_0" else self._next_round()

    def _next_round(self) -> Outcome:
        """After a call of the searcher."""
        self._round_number += 1
        following = "answerer_0" if self._round_number >= self.max_rounds else "verifier_0"
        return Outcome(following, {"searcher_0": {"cost": -self.search_cost}})

    def _end(self, *, right: bool) -> Outcome:
        parts: dict[str, dict[str, float]] = {agent: {TEAM: float(right)} for agent in self.possible_agents}
        parts["answerer_0"] |= {"cost": -self.answer_cost, "wrong": 0.0 if right else -self.wrong_cost}
        return Outcome(rewards=parts, terminated=True, success=right)

    def _oracle(self, agent: str) -> str:
        if agent == "verifier_0":
            return VERDICTS[self.known == self.task.answer]
        seen = self.task.answer in self._text.split()
        return self.task.answer if agent == "answerer_0" and seen else self.known


class CrewPolicy(Demonstrator):
    """Plays :class:`ShortSearch3Agent` with mistakes: what the warm start imitates.

    Args:
        skill: How often an agent does what its oracle would; else it says any of its words.
    """

    def __init__(self, skill: float) -> None:
        super().__init__(f"crew(skill={skill:g})")
        self.skill = skill

    def _answer(self, env: Any, agent: str, rng: random.Random) -> str:
        if rng.random() < self.skill:
            return str(env.oracle(agent))
        return rng.choice(VERDICTS if agent == "verifier_0" else sorted(env.task.data["circle"]))


def register() -> None:
    """Add the environment to the registry, if it is not there yet."""
    if SEARCH not in registry:
        register_env(SEARCH, ShortSearch3Agent)


def _tasks(tasks: str | TaskSet | Sequence[Task], split: str | None, options: Mapping[str, Any]) -> TaskSet:
    if isinstance(tasks, str):
        if tasks != "links":
            raise error.Error(f"`tasks` must be 'links' or tasks, actual value: {tasks!r}.")
        return ProceduralTaskSet("links", split, draw_links, options=options)
    return tasks if isinstance(tasks, TaskSet) else ListTaskSet(tasks)
