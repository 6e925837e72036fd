"""The search environments: one searcher, reasoner and searcher, and a team with a verifier that routes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from llm_envs.core import Outcome
from llm_envs.parsing import InvalidAction, one_tag, tag
from llm_envs.search.base import ANSWER, SearchEnv

LAST_ROUND = "This is the last round: only an answer counts. Write <answer>…</answer>."

SEARCH_EXAMPLES = (
    "I need to know more. <search>first ascent of the mountain</search>",
    "<search>capital city river</search>",
    "<search></search>",
    "capital city",
)
ANSWER_EXAMPLES = ("<answer>1904</answer>", "The passages agree. <answer>the blue river</answer>", "It is 1904.")
ASK_EXAMPLES = ("<ask>Who founded the company?</ask>", "<ask>Where?</ask> <answer>there</answer>")
VERIFY_EXAMPLES = ("All is there. <verify>yes</verify>", "<verify>no</verify>", "I am not sure.")


class Search1Agent(SearchEnv):
    """One agent thinks, searches or answers, turn by turn, as in Search-R1 (arXiv 2503.09516).

    The compute-matched baseline of the search family.

    | | |
    |---|---|
    | Agents | `searcher_0` |
    | Order | `searcher_0`, up to `max_rounds` turns |
    | Actions | `<search>query</search>` or `<answer>answer</answer>`; in the last turn only an answer |
    | Observations | the question, its own turns and the passages that were found, the answer format |
    | Import | `llm_envs.make("search-1agent")` |

    ## Observations
    The whole prompt of the turn: the question, then every turn so far with the passages that it brought, then role and
    format.

    ## Actions
    Any text with exactly one of the two tags, once. Anything else is unusable and costs the turn. A search brings the
    `k` best passages. A retriever that fails raises `RetrieverError`: it is an error of the run, not an observation.

    ## Rewards
    `team`: 1 if the answer equals a gold answer (exact match after SQuAD normalisation), else 0, paid at the end.
    `invalid`: `invalid_penalty` for unusable text. `support` (off by default): `support_reward` times the share of the
    supporting passages that a search is the first to find.

    ## Episode end
    Terminated by an answer; truncated after `max_rounds` turns without one. Success: the answer matches exactly. The
    final infos hold `exact_match`, `f1`, `searches`, `answer` and, where the supporting passages are known,
    `support_recall`.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "search_1agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    example_texts = {"searcher_0": SEARCH_EXAMPLES + ANSWER_EXAMPLES}

    def _start(self) -> str:
        self._begin()
        return "searcher_0"

    def _play(self, agent: str, action: str) -> Outcome:
        name, content = one_tag(action, ("search", "answer"))
        if name == "answer":
            self._say(agent, action)
            return self._end(content)
        if self._last_round:
            raise InvalidAction(LAST_ROUND)
        return self._next_round(agent, self._retrieve(agent, action, content))

    def _forfeit(self, agent: str) -> Outcome:
        """The turn is lost."""
        self._say(agent, "(nothing usable)")
        return self._next_round(agent)

    def _instructions(self, agent: str) -> str:
        if self._last_round:
            return f"You are searcher_0. This is your last turn: answer the question now. {ANSWER}"
        return (
            "You are searcher_0. Think about what is missing to answer the question. If something is, search for it as "
            f"<search>query</search>. If you know enough, answer. {ANSWER} Write exactly one of the two tags, once. "
            f"Turn {self._round_number} of {self.max_rounds}; the last one must be an answer."
        )

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds

    def _oracle(self, agent: str) -> str:
        return self._oracle_answer() if self._informed() or self._last_round else self._oracle_query()


class Search2Agent(SearchEnv):
    """A reasoner asks sub-questions or answers; a searcher turns each into a query, whose passages both can read.

    | | |
    |---|---|
    | Agents | `reasoner_0`, `searcher_0` |
    | Order | reasoner, searcher, up to `max_rounds` rounds; the last round is the reasoner's alone |
    | Actions | reasoner: `<ask>sub-question</ask>` or `<answer>answer</answer>`; searcher: `<search>query</search>` |
    | Observations | the question, everything said so far with the passages that were found, role and format |
    | Import | `llm_envs.make("search-2agent")` |

    ## Observations
    The whole prompt of the turn: the question, the contributions of both agents and the passages in order, then role
    and format.

    ## Actions
    Any text with exactly one of the agent's tags, once. In the last round the reasoner can only answer. Unusable text
    loses the turn (after `max_retries`): nothing is asked, or nothing is searched, and the next round begins. A
    retriever that fails raises `RetrieverError`: it is an error of the run, not an observation.

    ## Rewards
    `team`: 1 to both if the answer equals a gold answer (exact match after SQuAD normalisation), else 0, paid at the
    end.
    `invalid`: `invalid_penalty` to the agent whose text was unusable. `support` (off by default): to the searcher,
    `support_reward` times the share of the supporting passages that its search is the first to find.

    ## Episode end
    Terminated by an answer; truncated after `max_rounds` rounds without one. Success: the answer matches exactly. The
    final infos hold `exact_match`, `f1`, `searches`, `answer` and, where the supporting passages are known,
    `support_recall`.

    ## Version history
    * v0: first version.
    """

    metadata = {"name": "search_2agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    example_texts = {"reasoner_0": ASK_EXAMPLES + ANSWER_EXAMPLES, "searcher_0": SEARCH_EXAMPLES}

    def _start(self) -> str:
        self._begin()
        return "reasoner_0"

    def _play(self, agent: str, action: str) -> Outcome:
        if agent == "searcher_0":
            return self._next_round("reasoner_0", self._retrieve(agent, action, tag(action, "search")))
        name, content = one_tag(action, ("ask", "answer"))
        if name == "ask" and self._last_round:
            raise InvalidAction(LAST_ROUND)
        self._say(agent, action)
        return self._end(content) if name == "answer" else Outcome(next="searcher_0")

    def _forfeit(self, agent: str) -> Outcome:
        """The rest of the round is lost."""
        self._say(agent, "(nothing usable)")
        return self._next_round("reasoner_0")

    def _instructions(self, agent: str) -> str:
        if agent == "searcher_0":
            return (
                "You are searcher_0. Turn what reasoner_0 asked last into one query for a search engine: the names and "
                "words that the passage with the answer must hold. Write it once, as <search>query</search>."
            )
        if self._last_round:
            return f"You are reasoner_0. This is the last round: answer the question now. {ANSWER}"
        return (
            "You are reasoner_0. Think about what is missing to answer the question. If something is, ask searcher_0 "
            f"for it: one sub-question, as <ask>sub-question</ask>. If you know enough, answer. {ANSWER} Write exactly "
            f"one of the two tags, once. Round {self._round_number} of {self.max_rounds}; the last one must be an "
            "answer."
        )

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds - (agent == "searcher_0")

    def _oracle(self, agent: str) -> str:
        if agent == "searcher_0":
            return self._oracle_query()
        if self._informed() or self._last_round:
            return self._oracle_answer()
        titles = self._wanted_titles()
        return (
            f"<ask>What is known about {' and '.join(titles)}?</ask>" if titles else f"<ask>{self.task.question}</ask>"
        )


class Search3Agent(SearchEnv):
    """A verifier decides each turn whether to search on or to answer (Dr. MAS, arXiv 2602.08847).

    | | |
    |---|---|
    | Agents | `verifier_0`, `searcher_0`, `answerer_0` |
    | Order | verifier, then searcher (not enough is known) or answerer (enough is), up to `max_rounds` turns; the last turn goes to the answerer at once |
    | Actions | verifier: `<verify>yes</verify>` or `<verify>no</verify>`; searcher: `<search>query</search>`; answerer: `<answer>answer</answer>` |
    | Observations | the question, everything said so far with the passages that were found, role and format |
    | Import | `llm_envs.make("search-3agent")` |

    ## Observations
    The whole prompt of the turn: the question, the contributions of all agents and the passages in order, then role and
    format.

    ## Actions
    Any text with the agent's tag exactly once. Routing fails closed: a missing verdict counts as "no". An
    unusable query or answer loses the turn (after `max_retries`), and the next one begins. A retriever that fails raises
    `RetrieverError`: it is an error of the run, not an observation.

    ## Rewards
    `team`: 1 to all if the answer equals a gold answer (exact match after SQuAD normalisation), else 0, paid at the end.
    `invalid`: `invalid_penalty` to the agent whose text was unusable. `support` (off by default): to the searcher,
    `support_reward` times the share of the supporting passages that its search is the first to find.

    ## Episode end
    Terminated by an answer; truncated after `max_rounds` turns without one. Success: the answer matches exactly. The
    final infos hold `exact_match`, `f1`, `searches`, `answer` and, where the supporting passages are known,
    `support_recall`.

    ## Version history
    * v0: first version.
    """  # noqa: E501

    metadata = {"name": "search_3agent_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    example_texts = {
        "verifier_0": VERIFY_EXAMPLES,
        "searcher_0": SEARCH_EXAMPLES,
        "answerer_0": ANSWER_EXAMPLES,
    }

    def _start(self) -> str:
        self._begin()
        return "verifier_0"

    def _play(self, agent: str, action: str) -> Outcome:
        if agent == "verifier_0":
            enough = tag(action, "verify", ("yes", "no")) == "yes"
            self._say(agent, action)
            return Outcome(next="answerer_0" if enough else "searcher_0")
        if agent == "searcher_0":
            return self._next_turn(self._retrieve(agent, action, tag(action, "search")))
        content = tag(action, "answer")
        self._say(agent, action)
        return self._end(content)

    def _forfeit(self, agent: str) -> Outcome:
        """A missing verdict is a "no"; a missing query or answer loses the turn."""
        self._say(agent, "(nothing usable)")
        return Outcome(next="searcher_0") if agent == "verifier_0" else self._next_turn()

    def _next_turn(self, rewards: Mapping[str, Mapping[str, float]] | None = None) -> Outcome:
        second_to_last = self._round_number + 1 >= self.max_rounds
        return self._next_round("answerer_0" if second_to_last else "verifier_0", rewards)

    def _instructions(self, agent: str) -> str:
        if agent == "searcher_0":
            return (
                "You are searcher_0. Something is missing to answer the question. Write one query for a search engine: "
                "the names and words that the missing passage must hold, once, as <search>query</search>."
            )
        if agent == "answerer_0":
            return f"You are answerer_0. Answer the question from what was found. {ANSWER}"
        return (
            "You are verifier_0. Does the information above suffice to answer the question? If it does, write "
            "<verify>yes</verify>; if anything is missing, say what and write <verify>no</verify>."
        )

    def most_turns(self, agents: Collection[str] | None = None) -> int | None:
        """See :meth:`llm_envs.core.TextEnv.most_turns`: a turn of the verifier is followed by one of the others."""
        apart = super().most_turns(agents)
        return None if apart is None else min(apart, (2 * self.max_rounds - 1) * (1 + self.max_retries))

    def _most_moves(self, agent: str) -> int:
        return self.max_rounds - (agent != "answerer_0")

    def _oracle(self, agent: str) -> str:
        if agent == "verifier_0":
            return f"<verify>{'yes' if self._informed() else 'no'}</verify>"
        return self._oracle_query() if agent == "searcher_0" else self._oracle_answer()
