"""What the search environments share: the retriever, the shared context, exact-match rewards and an honest oracle."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from gymnasium import error

from llm_envs.core import Outcome, RenderMode, TextEnv
from llm_envs.parsing import InvalidAction
from llm_envs.rewards import shared
from llm_envs.search.atlas import atlas_retriever
from llm_envs.search.scoring import exact_match, f1
from llm_envs.search.tasks import gold_answers, load_search_tasks
from llm_envs.tasks import Task, TaskSet
from llm_envs.tools.retrieval import Passage, Retriever, open_retriever
from llm_envs.tools.retrieval.base import MAX_K
from llm_envs.tools.retrieval.bm25 import BM25Retriever
from llm_envs.tools.retrieval.corpus import read_corpus

SearchFunction = Callable[[Sequence[str], int], list[list[Passage]]]

MAX_QUERY_CHARS = 1000
SUPPORT = "support"
NOT_FOUND = "unknown"
"""What the oracle answers where the supporting passages could not be retrieved."""

ANSWER = "Answer in a few words, without explanation, as <answer>answer</answer>."


class SearchEnv(TextEnv):
    """Base of the search environments. A subclass names its agents, in AEC order, by ``example_texts``.

    Args:
        tasks: A task set: ``"atlas"``, ``"hotpotqa"``, …, the path of a file of questions, or tasks.
        split: ``"train"``, ``"test"`` or None for the set's default.
        retriever: A :class:`~llm_envs.tools.retrieval.Retriever`, or what
            :func:`~llm_envs.tools.retrieval.open_retriever` takes: the folder of an index, ``http://host:port``, or
            ``lucene:<prebuilt name>``. None: BM25 over ``corpus``, or over the corpus of the tasks.
        corpus: A corpus file that is indexed with BM25 in this process, in place of ``retriever``.
        k: Passages a search.
        max_rounds: At least 2; in the last round only an answer counts.
        support_reward: Reward part ``support`` for the searcher: this much, times the share of the supporting passages
            that its search is the first to find. 0: off. It needs tasks with supporting titles or ids.
        passage_chars: Longer passages are cut off in the context.
        max_retries: How often an agent may try again after unusable text.
        invalid_penalty: Reward part ``invalid`` for unusable text.
        task_options: Options of the task set.
        render_mode: ``"ansi"``, ``"human"`` or None.
    """

    blocking = True  # a search may wait for a server
    example_texts: ClassVar[Mapping[str, Sequence[str]]]
    """Example actions of each agent."""

    def __init__(
        self,
        tasks: str | TaskSet | Sequence[Task] = "atlas",
        split: str | None = None,
        *,
        retriever: Retriever | str | os.PathLike[str] | None = None,
        corpus: str | os.PathLike[str] | None = None,
        k: int = 3,
        max_rounds: int = 4,
        support_reward: float = 0.0,
        passage_chars: int = 2000,
        max_retries: int = 0,
        invalid_penalty: float = -0.01,
        task_options: Mapping[str, Any] | None = None,
        render_mode: RenderMode = None,
    ) -> None:
        super().__init__(
            list(self.example_texts),
            load_search_tasks(tasks, split, **(task_options or {})),
            examples=self.example_texts,
            max_retries=max_retries,
            invalid_penalty=invalid_penalty,
            render_mode=render_mode,
        )
        self.max_rounds = _check_int("max_rounds", max_rounds, 2)
        self.k = _check_int("k", k, 1, MAX_K)
        self.passage_chars = _check_int("passage_chars", passage_chars, 1)
        self.support_reward = float(support_reward)
        if self.support_reward < 0:
            raise error.Error(f"`support_reward` must be 0 or more, actual value: {support_reward}.")
        self._find = _search_function(retriever, corpus)
        if self._find is None:
            _check_has_corpus(self.tasks, self.tasks[0])
        if self.support_reward:
            _check_has_support(self.tasks[0])

    # ---- the episode -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Forget the last episode."""
        if self._find is None:
            _check_has_corpus(self.tasks, self.task)
        if self.support_reward:
            _check_has_support(self.task)
        self._round_number = 1
        self._said: list[str] = []
        self._queries: list[str] = []
        self._missing = supporting(self.task)
        self._support_count = len(self._missing)

    @property
    def _last_round(self) -> bool:
        return self._round_number >= self.max_rounds

    def _say(self, agent: str, text: str) -> None:
        """Add a contribution that everyone can read from now on."""
        self._said.append(f"[{agent}]\n{text}")

    def _context(self, agent: str) -> str:
        return "\n\n".join([f"Question:\n{self.task.question}", *self._said])

    def _next_round(self, agent: str, rewards: Mapping[str, Mapping[str, float]] | None = None) -> Outcome:
        """The next round begins with ``agent``; after the last one the episode ends without an answer."""
        if self._last_round:
            return self._end(None, rewards)
        self._round_number += 1
        return Outcome(next=agent, rewards=rewards or {})

    def _retrieve(self, agent: str, action: str, query: str) -> dict[str, dict[str, float]]:
        """Search, show what the agent said and what was found to everyone, and return the reward parts of it.

        Raises:
            InvalidAction: The query is too long.
            RetrieverError: The retriever failed: an error of the run.
        """
        if len(query) > MAX_QUERY_CHARS:
            raise InvalidAction(f"The query is {len(query)} characters long; the limit is {MAX_QUERY_CHARS}.")
        find = self._find or atlas_retriever(**self.task.data["atlas"]).search
        (passages,) = find([query], self.k)
        self._queries.append(query)
        self._say(agent, action)
        shown = [
            f"({number}) {passage.title or passage.id}\n{_cut(passage.text, self.passage_chars)}"
            for number, passage in enumerate(passages, 1)
        ]
        self._said.append("\n".join([f"[passages for: {query}]", *(shown or ["(nothing was found)"])]))
        still = [one for one in self._missing if not any(one.matches(passage) for passage in passages)]
        new, self._missing = len(self._missing) - len(still), still
        if not self.support_reward:
            return {}
        return {agent: {SUPPORT: self.support_reward * new / self._support_count}}

    def _end(self, answer: str | None, rewards: Mapping[str, Mapping[str, float]] | None = None) -> Outcome:
        """The episode is over: with an answer by its rules, without one at its limit."""
        golds = gold_answers(self.task)
        right = answer is not None and exact_match(answer, golds)
        result: dict[str, Any] = {
            "exact_match": right,
            "f1": 0.0 if answer is None else f1(answer, golds),
            "searches": len(self._queries),
            "answer": answer,
        }
        if self._support_count:
            result["support_recall"] = 1 - len(self._missing) / self._support_count
        merged = {agent: dict(parts) for agent, parts in (rewards or {}).items()}
        for agent, parts in shared(self.possible_agents, float(right)).items():
            merged.setdefault(agent, {}).update(parts)
        return Outcome(
            rewards=merged,
            terminated=answer is not None,
            truncated=answer is None,
            success=right,
            info=dict.fromkeys(self.possible_agents, result),
        )

    # ---- the oracle ------------------------------------------------------------------------------------------------
    # It knows the titles of the supporting passages and the answer, but it answers only once its searches have really
    # found every passage: that it solves a task shows that the retriever can.

    def _informed(self) -> bool:
        return not self._missing if self._support_count else bool(self._queries)

    def _wanted_titles(self) -> list[str]:
        """The titles to look for now: all that are missing, spread over the searches that are left."""
        titles = [one.title for one in self._missing if one.title]
        searches = max(1, self.max_rounds - self._round_number)
        titles.sort(key=lambda title: sum(title in query for query in self._queries))
        return titles[: -(-len(self._missing) // searches)]

    def _oracle_query(self) -> str:
        titles = self._wanted_titles()
        if not titles:
            query = self.task.question
        else:
            query = " ".join(titles)
            if query in self._queries:  # the titles alone did not do
                query = f"{query} {self.task.question}"
        return f"<search>{query[:MAX_QUERY_CHARS]}</search>"

    def _oracle_answer(self) -> str:
        return f"<answer>{self.task.answer if self._informed() else NOT_FOUND}</answer>"


@dataclass(frozen=True, slots=True)
class Support:
    """A supporting passage, known by its title, its id, or both."""

    title: str | None
    id: str | None

    def matches(self, passage: Passage) -> bool:
        """Whether ``passage`` is it: by id, or by title up to case and spacing."""
        if self.id is not None and passage.id == self.id:
            return True
        return self.title is not None and _plain(passage.title) == _plain(self.title)


def supporting(task: Task) -> list[Support]:
    """The supporting passages of ``task``; none where they are not known."""
    titles, ids = task.data.get("supporting_titles") or (), task.data.get("supporting_ids") or ()
    if len(titles) == len(ids):
        return [Support(title, passage_id) for title, passage_id in zip(titles, ids, strict=True)]
    if titles:
        return [Support(title, None) for title in titles]
    return [Support(None, passage_id) for passage_id in ids]


def _plain(title: str) -> str:
    return " ".join(title.split()).casefold()


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit].rstrip() + " …"


def _search_function(
    retriever: Retriever | str | os.PathLike[str] | None, corpus: str | os.PathLike[str] | None
) -> SearchFunction | None:
    if retriever is not None and corpus is not None:
        raise error.Error("`retriever` and `corpus` exclude each other: the retriever has its own corpus.")
    if corpus is not None:
        path = Path(corpus).expanduser().resolve()
        return _corpus_retriever(path, path.stat().st_mtime_ns if path.is_file() else 0).search
    if retriever is None:
        return None
    if isinstance(retriever, str | os.PathLike):
        return open_retriever(retriever).search
    search = getattr(retriever, "search", None)
    if not callable(search):
        raise error.Error(
            "`retriever` must be a retriever, the folder of an index, or http://host:port, "
            f"actual type: {type(retriever).__name__}."
        )
    return search


@lru_cache(maxsize=4)
def _corpus_retriever(path: Path, changed: int) -> Retriever:
    return BM25Retriever.from_passages(read_corpus(path))


def _check_has_corpus(tasks: TaskSet, task: Task) -> None:
    if "atlas" not in task.data:
        raise error.Error(
            f"The task set `{tasks.name}` has no corpus of its own. Give `corpus`, a .jsonl file of passages, or "
            "`retriever`: the folder of an index (`llm-envs index`), http://host:port or lucene:<prebuilt name>."
        )


def _check_has_support(task: Task) -> None:
    if not supporting(task):
        raise error.Error(
            f"`support_reward` needs tasks that name their supporting passages; {task.id} has neither "
            "supporting_titles nor supporting_ids. Set it to 0."
        )


def _check_int(name: str, value: int, least: int, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bound = f"of {least} or more" if most is None else f"from {least} to {most}"
        raise error.Error(f"`{name}` must be an integer {bound}, actual value: {value!r}.")
    return value
