"""BM25 against its formula, worked out by hand, and against a plain implementation on random corpora."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.tools.retrieval import Passage, RetrieverError, build_index, open_index
from llm_envs.tools.retrieval.analysis import Analyzer
from llm_envs.tools.retrieval.bm25 import BM25Retriever
from llm_envs.tools.retrieval.corpus import read_corpus

PETS = [
    Passage("p0", "", "cat dog"),
    Passage("p1", "", "cat cat bird bird"),
    Passage("p2", "", "fish"),
    Passage("p3", "", "dog fish"),
]


def bm25(texts, query, k1=0.9, b=0.4):
    """Lucene's formula (Kamphuis et al. 2020, eq. for Lucene accurate): idf ln(1+(N-n+.5)/(n+.5)), tf/(tf+k1(...))."""
    average = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        counts, score = Counter(text), 0.0
        for term in query:
            having = sum(term in other for other in texts)
            if counts[term]:
                idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
                score += idf * counts[term] / (counts[term] + k1 * (1 - b + b * len(text) / average))
        scores.append(score)
    return scores


def test_scores_by_hand():
    # cat: 2 of 4 passages, idf ln 2; average length 9/4. p0: tf 1, length 2; p1: tf 2, length 4.
    idf = math.log(1 + 2.5 / 2.5)
    first = idf * 1 / (1 + 0.9 * (0.6 + 0.4 * 2 / 2.25))
    second = idf * 2 / (2 + 0.9 * (0.6 + 0.4 * 4 / 2.25))
    (result,) = BM25Retriever.from_passages(PETS).search(["cats"], 10)
    assert [passage.id for passage in result] == ["p1", "p0"]
    assert [passage.score for passage in result] == pytest.approx([second, first], rel=1e-5)


def test_only_passages_with_a_term_are_results():
    retriever = BM25Retriever.from_passages(PETS)
    assert retriever.search(["", "???", "the", "unicorn"], 3) == [[], [], [], []]
    assert [p.id for p in retriever.search(["bird unicorn"], 3)[0]] == ["p1"]


def test_equal_scores_come_in_the_order_of_the_corpus():
    retriever = BM25Retriever.from_passages([Passage(str(i), "", "same words") for i in range(50)])
    for k in (1, 3, 49, 50, 60):
        assert [p.id for p in retriever.search(["words"], k)[0]] == [str(i) for i in range(min(k, 50))]


WORDS = st.sampled_from(["oak", "elm", "ash", "fir", "yew", "box"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(WORDS, max_size=6), min_size=1, max_size=9), st.lists(WORDS, max_size=4), st.integers(1, 10))
def test_against_a_plain_implementation(texts, query, k):
    if not any(texts):
        return
    passages = [Passage(str(i), "", " ".join(text)) for i, text in enumerate(texts)]
    (result,) = BM25Retriever.from_passages(passages).search([" ".join(query)], k)
    scores = bm25(texts, query)
    best = sorted((i for i, score in enumerate(scores) if score > 0), key=lambda i: -scores[i])[:k]
    assert [p.score for p in result] == pytest.approx([scores[i] for i in best], rel=1e-4)


def test_analysis():
    terms = Analyzer().terms
    assert terms("The Directors' films, and the films' DIRECTOR") == ["director", "film", "film", "director"]
    assert terms("Zürich's U.S. 1,234 tür") == ["zürich", "u.", "1", "234", "tür"]
    assert terms("to be or not to be") == []


def test_a_saved_index_answers_alike(shared_data, tmp_path):
    passages = list(read_corpus(shared_data / "search" / "wiki" / "corpus.jsonl"))
    questions = [json.loads(line) for line in (shared_data / "search" / "wiki" / "questions.jsonl").open()]
    queries = [row["question"] for row in questions]
    memory = BM25Retriever.from_passages(passages).search(queries, 5)
    disk = open_index(build_index(passages, tmp_path / "index"))
    assert disk.search(queries, 5) == memory
    assert [disk.search([query], 5)[0] for query in queries] == memory  # batched or not
    together = [None] * 8

    def ask(number):
        together[number] = disk.search(queries, 5)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == [memory] * 8


def test_gold_passages_are_found_by_title(shared_data):
    retriever = BM25Retriever.from_passages(read_corpus(shared_data / "search" / "wiki" / "corpus.jsonl"))
    questions = [json.loads(line) for line in (shared_data / "search" / "wiki" / "questions.jsonl").open()]
    titles = [title for row in questions for title in row["supporting_titles"]]
    found = retriever.search(titles, 3)
    assert len(titles) == 85
    assert [t for t, result in zip(titles, found, strict=True) if t not in [p.title for p in result]] == []


@pytest.mark.parametrize("options", [{"k1": -1.0}, {"b": 1.5}, {"b": float("nan")}])
def test_bad_parameters(options):
    with pytest.raises(RetrieverError, match="BM25 needs k1 of 0 or more and b from 0 to 1"):
        BM25Retriever.from_passages(PETS, **options)


def test_nothing_to_index():
    with pytest.raises(RetrieverError, match="none of the 1 passages has a word"):
        BM25Retriever.from_passages([Passage("a", "", "...")])


@pytest.mark.parametrize(
    ("queries", "k"), [("text", 3), ([1], 3), (["a"], 0), (["a"], 1001), (["a"], True), (["a"], "3")]
)
def test_bad_arguments_of_a_search(queries, k):
    with pytest.raises(RetrieverError, match=r"queries must be|k must be an integer from 1 to 1000"):
        BM25Retriever.from_passages(PETS).search(queries, k)


def test_text_that_cannot_be_encoded_is_searched():
    retriever = BM25Retriever.from_passages(PETS)
    assert [p.id for p in retriever.search(["bird \ud800"], 1)[0]] == ["p1"]
