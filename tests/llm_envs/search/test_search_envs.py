"""The three search environments by hand: who speaks, what they see, what it is worth, how it ends."""

from __future__ import annotations

import json

import pytest
from gymnasium import error

import llm_envs
from llm_envs.tasks import Task
from llm_envs.tools.retrieval import Passage, Retriever, RetrieverError
from llm_envs.tools.retrieval.bm25 import BM25Retriever

PASSAGES = [
    Passage("p1", "Forgotten Light", "Forgotten Light is a film. It was directed by Vladimír Michálek."),
    Passage("p2", "Vladimír Michálek", "Vladimír Michálek was born in Mladá Boleslav."),
    Passage("p3", "Other", "Nothing of interest."),
]
GOLD = {
    "answers": ["Mladá Boleslav", "Mlada Boleslav"],
    "supporting_titles": ["Forgotten Light", "Vladimír Michálek"],
    "supporting_ids": ["p1", "p2"],
}
TASKS = [Task("t/0", "Where was the director of Forgotten Light born?", "Mladá Boleslav", GOLD)]
RIGHT, WRONG = "<answer>Mlada Boleslav.</answer>", "<answer>Prague</answer>"
ASK, FILM, PERSON = "<ask>Who?</ask>", "<search>forgotten light</search>", "<search>michálek</search>"
YES, NO = "<verify>yes</verify>", "<verify>no</verify>"


def make(env_id, **kwargs):
    options = {"tasks": TASKS, "retriever": BM25Retriever.from_passages(PASSAGES), "k": 1, **kwargs}
    return llm_envs.make(env_id, order_enforcing=False, **options)


def play(env, *texts):
    """Play the texts in turn; returns what every agent got in total, who spoke, and how it ended."""
    env.reset(seed=0)
    queue = list(texts)
    total = dict.fromkeys(env.possible_agents, 0.0)
    order, end = [], None
    for agent in env.agent_iter():
        _, reward, termination, truncation, _ = env.last()
        total[agent] += reward
        if termination or truncation:
            end = "terminated" if termination else "truncated"
            env.step(None)
        else:
            order.append(agent[0])
            env.step(queue.pop(0))
    assert not queue, f"{len(queue)} texts were not asked for"
    return total, "".join(order), end


@pytest.mark.parametrize(
    ("texts", "reward", "end"),
    [
        ((RIGHT,), 1.0, "terminated"),
        ((WRONG,), 0.0, "terminated"),
        ((FILM, PERSON, RIGHT), 1.0, "terminated"),
        ((FILM, PERSON, FILM, RIGHT), 1.0, "terminated"),
        ((FILM, PERSON, FILM, FILM), -0.01, "truncated"),  # in the last turn only an answer counts
        (("hm", "hm", "hm", RIGHT), 0.97, "terminated"),
        (("hm", "hm", "hm", "hm"), -0.04, "truncated"),
        ((FILM + RIGHT, RIGHT), 0.99, "terminated"),  # one of the two
        ((RIGHT + RIGHT, RIGHT), 0.99, "terminated"),
        ((RIGHT + WRONG, WRONG), -0.01, "terminated"),
        (("</answer> x <answer>Mlada Boleslav</answer>", WRONG), -0.01, "terminated"),
        (("<answer></answer>", RIGHT), 0.99, "terminated"),
        (("<answer>Mlada Boleslav", WRONG), -0.01, "terminated"),
        (("<ANSWER>Mlada Boleslav</ANSWER>", WRONG), -0.01, "terminated"),
        (("<answer><answer>Mlada Boleslav</answer></answer>", WRONG), -0.01, "terminated"),
        ((f"<search>{'x' * 1001}</search>", RIGHT), 0.99, "terminated"),
        (("<search>???</search>", RIGHT), 1.0, "terminated"),  # finds nothing, which is no fault
    ],
)
def test_one_searcher(texts, reward, end):
    env = make("search-1agent")
    total, order, how = play(env, *texts)
    assert total == pytest.approx({"searcher_0": reward})
    assert (order, how) == ("s" * len(texts), end)
    assert env.success is (reward > 0.9)


@pytest.mark.parametrize(
    ("texts", "reasoner", "searcher", "order", "end"),
    [
        ((RIGHT,), 1.0, 1.0, "r", "terminated"),
        ((WRONG,), 0.0, 0.0, "r", "terminated"),
        ((ASK, FILM, ASK, PERSON, RIGHT), 1.0, 1.0, "rsrsr", "terminated"),
        ((ASK, FILM, ASK, PERSON, ASK, FILM, RIGHT), 1.0, 1.0, "rsrsrsr", "terminated"),
        ((ASK, FILM, ASK, PERSON, ASK, FILM, ASK), -0.01, 0.0, "rsrsrsr", "truncated"),
        ((ASK, "no query", RIGHT), 1.0, 0.99, "rsr", "terminated"),
        (("no tag", "no tag", "no tag", RIGHT), 0.97, 1.0, "rrrr", "terminated"),  # each costs a round
        (("no tag", "no tag", "no tag", "no tag"), -0.04, 0.0, "rrrr", "truncated"),
        ((ASK + RIGHT, RIGHT), 0.99, 1.0, "rr", "terminated"),
        ((ASK, FILM + PERSON, WRONG), 0.0, -0.01, "rsr", "terminated"),
        ((FILM, RIGHT), 0.99, 1.0, "rr", "terminated"),  # the searcher's tag is not the reasoner's
        ((ASK, RIGHT, WRONG), 0.0, -0.01, "rsr", "terminated"),  # nor the other way round
    ],
)
def test_reasoner_and_searcher(texts, reasoner, searcher, order, end):
    env = make("search-2agent")
    total, spoke, how = play(env, *texts)
    assert total == pytest.approx({"reasoner_0": reasoner, "searcher_0": searcher})
    assert (spoke, how) == (order, end)
    assert env.success is (reasoner > 0.9)


@pytest.mark.parametrize(
    ("texts", "verifier", "searcher", "answerer", "order", "end"),
    [
        ((YES, RIGHT), 1, 1, 1, "va", "terminated"),
        ((YES, WRONG), 0, 0, 0, "va", "terminated"),
        ((NO, FILM, NO, PERSON, YES, RIGHT), 1, 1, 1, "vsvsva", "terminated"),
        ((NO, FILM, NO, PERSON, NO, FILM, RIGHT), 1, 1, 1, "vsvsvsa", "terminated"),  # the last turn is the answerer's
        (("well", FILM, YES, RIGHT), 0.99, 1, 1, "vsva", "terminated"),  # a missing verdict is no approval
        ((YES + NO, FILM, YES, RIGHT), 0.99, 1, 1, "vsva", "terminated"),
        (("<verify>yes or no</verify>", FILM, YES, RIGHT), 0.99, 1, 1, "vsva", "terminated"),
        ((NO, "no query", YES, RIGHT), 1, 0.99, 1, "vsva", "terminated"),
        ((YES, "no answer", YES, RIGHT), 1, 1, 0.99, "vava", "terminated"),
        ((YES, "no", YES, "no", YES, "no", RIGHT), 1, 1, 0.97, "vavavaa", "terminated"),
        ((NO, FILM, NO, FILM, NO, FILM, "no answer"), 0, 0, -0.01, "vsvsvsa", "truncated"),
    ],
)
def test_verifier_routes(texts, verifier, searcher, answerer, order, end):
    env = make("search-3agent")
    total, spoke, how = play(env, *texts)
    assert total == pytest.approx({"verifier_0": verifier, "searcher_0": searcher, "answerer_0": answerer})
    assert (spoke, how) == (order, end)
    assert env.success is (total["answerer_0"] > 0.9)


def test_what_everybody_reads():
    env = make("search-2agent", k=2)
    env.reset(seed=0)
    start = "Question:\nWhere was the director of Forgotten Light born?\n\n"
    first = env.observe("reasoner_0")
    assert first.startswith(start + "You are reasoner_0.")
    assert "Round 1 of 4" in first
    env.step("I need the film. " + ASK)
    asked = start + f"[reasoner_0]\nI need the film. {ASK}\n\n"
    assert env.observe("searcher_0").startswith(asked + "You are searcher_0.")
    env.step(FILM)
    found = asked + (
        f"[searcher_0]\n{FILM}\n\n[passages for: forgotten light]\n"
        "(1) Forgotten Light\nForgotten Light is a film. It was directed by Vladimír Michálek.\n\n"
    )
    second = env.observe("reasoner_0")
    assert second.startswith(found + "You are reasoner_0.")
    assert "Round 2 of 4" in second
    assert "Boleslav" not in second  # the gold answer is nowhere before it is found
    env.step(ASK)
    env.step("<search>unicorn</search>")
    assert "[passages for: unicorn]\n(nothing was found)" in env.observe("reasoner_0")
    env.step(ASK)
    env.step(PERSON)
    last = env.observe("reasoner_0")
    assert "This is the last round: answer the question now." in last
    assert "<ask>sub-question</ask>" not in last


def test_long_passages_are_cut_in_the_context_only():
    env = make("search-1agent", passage_chars=20)
    env.reset(seed=0)
    env.step(FILM)
    assert "(1) Forgotten Light\nForgotten Light is a …\n" in env.observe("searcher_0")


def test_retries_stay_in_the_turn():
    env = make("search-2agent", max_retries=1)
    total, order, _ = play(env, "hm", ASK, "hm", FILM, RIGHT)
    assert order == "rrssr"
    assert total == pytest.approx({"reasoner_0": 0.99, "searcher_0": 0.99})


def test_final_infos():
    env = make("search-2agent")
    env.reset(seed=0)
    for text in (ASK, FILM, "<answer>in Mladá Boleslav</answer>"):
        env.step(text)
    info = env.infos["searcher_0"]
    assert info["exact_match"] is False
    assert info["f1"] == pytest.approx(0.8)  # two of three, two of two
    assert info["searches"] == 1
    assert info["support_recall"] == 0.5
    assert env.infos["reasoner_0"]["reward_parts"] == {"team": 0.0}
    plain = [Task("t/0", "q?", "Prague")]
    env = make("search-1agent", tasks=plain)
    env.reset(seed=0)
    env.step("<answer>prague</answer>")
    assert env.success
    assert "support_recall" not in env.infos["searcher_0"]


@pytest.mark.parametrize(
    ("env_id", "texts", "expected"),
    [
        ("search-2agent", (ASK, FILM, ASK, FILM, ASK, PERSON, RIGHT), [0.25, 0.0, 0.25]),  # only the first to find it
        ("search-2agent", (ASK, "<search>light michálek</search>", RIGHT), [0.5]),  # k=2 finds both at once
        ("search-1agent", (FILM, PERSON, RIGHT), [0.25, 0.25]),
        ("search-3agent", (NO, FILM, YES, RIGHT), [0.25]),
    ],
)
def test_support_is_a_part_of_its_own(env_id, texts, expected):
    env = make(env_id, support_reward=0.5, k=2 if len(expected) == 1 and "2agent" in env_id else 1)
    env.reset(seed=0)
    paid = []
    for text in texts:
        agent = env.agent_selection
        env.step(text)
        if text.startswith("<search>"):
            assert agent == "searcher_0"
            paid.append(env.infos[agent]["reward_parts"]["support"])
    assert paid == pytest.approx(expected)
    total, _, _ = play(env, *texts)
    assert total["searcher_0"] == pytest.approx(1 + sum(expected))
    assert all(value == 1.0 for agent, value in total.items() if agent != "searcher_0")


def test_support_is_off_by_default():
    env = make("search-1agent")
    env.reset(seed=0)
    env.step(FILM)
    assert env.infos["searcher_0"]["reward_parts"] == {}


def test_support_by_title_where_there_are_no_ids():
    titles = [Task("t/0", "q?", "x", {"supporting_titles": ["forgotten  LIGHT"]})]
    env = make("search-1agent", tasks=titles, support_reward=1.0)
    env.reset(seed=0)
    env.step(FILM)
    assert env.rewards["searcher_0"] == 1.0


class Failing(Retriever):
    kind = "failing"

    def _search(self, queries, k):
        raise RetrieverError("no answer after 4 attempts")


@pytest.mark.parametrize(
    ("env_id", "before"), [("search-1agent", ()), ("search-2agent", (ASK,)), ("search-3agent", (NO,))]
)
def test_a_retriever_failure_is_an_error_not_an_observation(env_id, before):
    env = make(env_id, retriever=Failing())
    env.reset(seed=0)
    for text in before:
        env.step(text)
    seen = {agent: env.observe(agent) for agent in env.possible_agents}
    with pytest.raises(RetrieverError, match="no answer after 4 attempts"):
        env.step(FILM)
    assert {agent: env.observe(agent) for agent in env.possible_agents} == seen
    assert not any(env.rewards.values())


def test_corpus_and_index_from_files(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": p.id, "title": p.title, "text": p.text}) + "\n" for p in PASSAGES))
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"question": TASKS[0].question, **GOLD}) + "\n")
    from llm_envs.tools.retrieval import build_index

    index = build_index(corpus, tmp_path / "index")
    for kwargs in ({"corpus": corpus}, {"corpus": str(corpus)}, {"retriever": index}, {"retriever": str(index)}):
        env = llm_envs.make("search-3agent", tasks=str(questions), **kwargs)
        env.reset(seed=0)
        while env.unwrapped.round_agents:
            env.step(env.unwrapped.oracle(env.agent_selection))
        assert env.unwrapped.success


def test_forks_share_the_retriever_and_nothing_else():
    env = make("search-1agent")
    env.reset(seed=0)
    fork = env.fork()
    fork.step(FILM)
    assert "[passages for" in fork.observe("searcher_0")
    assert "[passages for" not in env.observe("searcher_0")
    assert fork._find == env._find
    assert len(env._missing) == 2
    assert len(fork._missing) == 1


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"max_rounds": 1}, "`max_rounds` must be an integer of 2 or more, actual value: 1"),
        ({"k": 0}, "`k` must be an integer from 1 to 1000, actual value: 0"),
        ({"k": True}, "`k` must be an integer"),
        ({"passage_chars": 0}, "`passage_chars` must be an integer of 1 or more"),
        ({"support_reward": -1}, "`support_reward` must be 0 or more"),
        ({"corpus": "c.jsonl"}, "`retriever` and `corpus` exclude each other"),
        ({"retriever": 3}, "actual type: int"),
        ({"retriever": "no-such-folder"}, "there is no index folder .*no-such-folder"),
        ({"retriever": None, "corpus": "no-such.jsonl"}, "there is no corpus file .*no-such.jsonl"),
        ({"retriever": None}, "The task set `tasks` has no corpus of its own. Give `corpus`"),
        ({"support_reward": 1, "tasks": [Task("t/0", "q", "a")]}, "`support_reward` needs tasks that name"),
        ({"task_options": {"hop": 2}, "tasks": "atlas"}, "has no option 'hop'"),
    ],
)
def test_bad_arguments_are_named(kwargs, message):
    with pytest.raises(error.Error, match=message):
        make("search-2agent", **kwargs)


def test_module_form():
    from llm_envs.search import search_2agent_v0

    env = search_2agent_v0.env(max_rounds=3)
    assert env.unwrapped.max_rounds == 3
    assert not hasattr(search_2agent_v0, "parallel_env")
    with pytest.raises(error.NameNotFound, match="search-4agent"):
        from llm_envs.search import search_4agent_v0  # noqa: F401
