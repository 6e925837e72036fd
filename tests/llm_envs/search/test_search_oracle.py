"""The oracle answers every question through real retrieval, and only then; evasive answers earn nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import llm_envs
from llm_envs.search.atlas import MAX_HOPS, load_atlas, world
from llm_envs.search.base import NOT_FOUND
from llm_envs.tasks import ListTaskSet, Task
from llm_envs.tools.retrieval import Retriever, build_index
from llm_envs.tools.retrieval.bm25 import BM25Retriever

IDS = ("search-1agent", "search-2agent", "search-3agent")
TASKS_A_LENGTH = 200


def play(env, index, text):
    env.reset(seed=0, options={"task_index": index})
    total = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        _, reward, termination, truncation, info = env.last(observe=False)
        total[agent] += reward
        env.step(None if termination or truncation else text(env, agent))
    return env.success, total, info


def oracle(env, agent):
    return env.oracle(agent)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("hops", range(1, MAX_HOPS + 1))
@pytest.mark.parametrize("env_id", IDS)
def test_oracle_on_atlas(env_id, hops, split):
    # Enough rounds to look one thing up after the other, and the default, in which four hops take a query for two.
    for max_rounds in {4, hops + 1}:
        env = llm_envs.make(
            env_id, split=split, task_options={"hops": hops}, max_rounds=max(2, max_rounds), order_enforcing=False
        )
        for index in range(TASKS_A_LENGTH):
            success, total, info = play(env, index, oracle)
            assert success, env.tasks[index]
            assert total == dict.fromkeys(env.possible_agents, 1.0)
            assert (info["exact_match"], info["f1"], info["support_recall"]) == (True, 1.0, 1.0)
            assert info["searches"] <= hops


@pytest.fixture(scope="module")
def wiki_index(shared_data, tmp_path_factory):
    out = tmp_path_factory.mktemp("wiki") / "index"
    corpus = shared_data / "search" / "wiki" / "corpus.jsonl"
    program = "import sys; from llm_envs.cli import main; sys.exit(main(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", program, "index", str(corpus), "--out", str(out)], check=True)
    return out


@pytest.mark.parametrize("env_id", IDS)
def test_oracle_on_wikipedia(env_id, wiki_index, shared_data):
    tasks = str(shared_data / "search" / "wiki" / "questions.jsonl")
    env = llm_envs.make(env_id, tasks=tasks, retriever=wiki_index, order_enforcing=False)
    played = [play(env, index, oracle) for index in range(len(env.tasks))]
    assert len(played) == 40
    assert [env.tasks[i] for i, (success, _, _) in enumerate(played) if not success] == []
    assert all(info["support_recall"] == 1.0 for _, _, info in played)
    assert all(set(total.values()) == {1.0} for _, total, _ in played)


class Blind(Retriever):
    """Finds passages, never the right ones."""

    kind = "blind"

    def __init__(self, title):
        self.inner = BM25Retriever.from_passages(p for p in world("train").passages() if p.title != title)

    def _search(self, queries, k):
        return self.inner.search(queries, k)


@pytest.mark.parametrize("env_id", IDS)
def test_the_oracle_knows_only_what_was_found(env_id):
    tasks = load_atlas("train", hops=2)[:20]
    for index, task in enumerate(tasks):
        env = llm_envs.make(
            env_id, tasks=tasks, retriever=Blind(task.data["supporting_titles"][1]), order_enforcing=False
        )
        success, total, info = play(env, index, oracle)
        assert not success
        assert set(total.values()) == {0.0}
        assert info["support_recall"] == 0.5
        assert env.transcript[-1][1] == f"<answer>{NOT_FOUND}</answer>"


def test_without_gold_passages_the_oracle_asks_the_question_itself():
    tasks = ListTaskSet([Task("t/0", "Which is the largest animal?", "blue whale")])
    env = llm_envs.make("search-2agent", tasks=tasks, retriever=Blind(""), order_enforcing=False)
    assert play(env, 0, oracle)[0]
    assert env.transcript[1] == ("searcher_0", "<search>Which is the largest animal?</search>")


def answer(text):
    """Says ``text`` in the tags of whoever answers, sends everyone to the answer, and searches for something."""

    def strategy(env, agent):
        content = text(env.task)
        match agent:
            case "verifier_0":
                return "<verify>yes</verify>"
            case "searcher_0" if len(env.possible_agents) > 1:
                return "<search>anything</search>"
        return content if content.startswith("<") or "<" in content else f"<answer>{content}</answer>"

    return strategy


EVASIVE = {
    "echoed prompt": lambda env, agent: str(env.observe(agent)),
    "empty": lambda env, agent: "",
    "approval only": lambda env, agent: "<verify>yes</verify>",
    "no tag": lambda env, agent: env.task.answer,
    "truncated": lambda env, agent: env.oracle(agent)[:-3],
    "a part of it": answer(lambda task: task.answer[:-1]),
    "more than it": answer(lambda task: f"{task.answer} probably"),
    "it and another": answer(lambda task: f"{task.answer} or Springfield"),
    "all candidates": answer(lambda task: ", ".join([*dict.fromkeys(task.data["answers"]), "yes", "no", "1945"])),
    "the question": answer(lambda task: task.question),
    "the gold titles": answer(lambda task: " ".join(task.data["supporting_titles"])),
    "two answers": answer(lambda task: f"<answer>{task.answer}</answer><answer>x</answer>"),
    "two equal answers": answer(lambda task: f"<answer>{task.answer}</answer><answer>{task.answer}</answer>"),
    "closed before": answer(lambda task: f"</answer> x <answer>{task.answer}</answer>"),
    "open": answer(lambda task: f"<answer>{task.answer}"),
    "nested": answer(lambda task: f"<answer><answer>{task.answer}</answer></answer>"),
    "capitals": answer(lambda task: f"<ANSWER>{task.answer}</ANSWER>"),
    "spaced": answer(lambda task: f"< answer >{task.answer}</ answer >"),
    "empty tag": answer(lambda task: f"<answer></answer>{task.answer}"),
    "search and answer": answer(lambda task: f"<search>x</search><ask>x</ask><answer>{task.answer}</answer><answer>"),
}


@pytest.mark.parametrize("name", EVASIVE)
@pytest.mark.parametrize("env_id", IDS)
def test_evasive_answers_earn_nothing(env_id, name, wiki_index, shared_data):
    wiki = str(shared_data / "search" / "wiki" / "questions.jsonl")
    for options in ({"tasks": "atlas"}, {"tasks": wiki, "retriever": wiki_index}):
        env = llm_envs.make(env_id, order_enforcing=False, support_reward=0.0, **options)
        for index in range(0, 40, 2):
            success, total, _ = play(env, index, EVASIVE[name])
            assert not success, env.tasks[index]
            assert max(total.values()) <= 0.0


def test_recall_of_gold_passages(wiki_index, shared_data):
    """Of the questions as they stand, and of the titles that the oracle asks for, among the first k passages."""
    from llm_envs.search.tasks import load_search_tasks
    from llm_envs.tools.retrieval import open_index

    retriever = open_index(wiki_index)
    tasks = load_search_tasks(str(shared_data / "search" / "wiki" / "questions.jsonl"))
    recalls = {}
    for k in (3, 10):
        found = retriever.search([task.question for task in tasks], k)
        gold = [set(task.data["supporting_ids"]) for task in tasks]
        hits = [len(ids & {p.id for p in result}) / len(ids) for ids, result in zip(gold, found, strict=True)]
        recalls[k] = sum(hits) / len(hits)
    assert 0.45 < recalls[3] < recalls[10] < 1.0  # one search of the question is not enough: the team is needed
    titles = [
        (title, one)
        for task in tasks
        for title, one in zip(task.data["supporting_titles"], task.data["supporting_ids"], strict=True)
    ]
    found = retriever.search([title for title, _ in titles], 3)
    assert all(one in {p.id for p in result} for (_, one), result in zip(titles, found, strict=True))


def test_an_index_made_elsewhere_serves_the_world(tmp_path):
    index = build_index(world("test").passages(), tmp_path / "index")
    env = llm_envs.make("search-2agent", split="test", retriever=index, order_enforcing=False)
    assert all(play(env, i, oracle)[0] for i in range(20))
