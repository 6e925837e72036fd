from __future__ import annotations

import copy

import pytest

from llm_envs.tools.retrieval import CachedRetriever, Passage, Retriever, RetrieverError


class Counting(Retriever):
    kind = "counting"

    def __init__(self):
        self.asked = []
        self.broken = False

    def _search(self, queries, k):
        self.asked.append((tuple(queries), k))
        if self.broken:
            raise RetrieverError("broken")
        return [[Passage(f"{query}-{i}", "", query) for i in range(k)] for query in queries]


def test_only_what_is_new_is_asked_in_one_batch():
    inner = Counting()
    cached = CachedRetriever(inner)
    first = cached.search(["a", "b", "a"], 2)
    second = cached.search(["b", "c"], 2)
    assert inner.asked == [(("a", "b"), 2), (("c",), 2)]
    assert first[0] == first[2] == Counting().search(["a"], 2)[0]
    assert second[0] == first[1]
    assert (cached.hits, cached.misses) == (1, 3)
    cached.search(["a"], 1)  # another k is another result
    assert inner.asked[-1] == (("a",), 1)


def test_the_least_recently_used_goes_first():
    inner = Counting()
    cached = CachedRetriever(inner, entries=2)
    for query in ("a", "b", "a", "c", "a", "b"):
        cached.search([query], 1)
    assert [queries for queries, _ in inner.asked] == [("a",), ("b",), ("c",), ("b",)]


def test_results_cannot_be_spoiled():
    cached = CachedRetriever(Counting())
    cached.search(["a"], 3)[0].clear()
    assert len(cached.search(["a"], 3)[0]) == 3


def test_a_failure_is_not_remembered():
    inner = Counting()
    cached = CachedRetriever(inner)
    inner.broken = True
    with pytest.raises(RetrieverError, match="broken"):
        cached.search(["a"], 1)
    inner.broken = False
    assert len(cached.search(["a"], 1)[0]) == 1


def test_copies_share_the_retriever():
    cached = CachedRetriever(Counting())
    assert copy.deepcopy(cached) is cached


def test_no_room():
    with pytest.raises(RetrieverError, match="at least 1 entry, got 0"):
        CachedRetriever(Counting(), entries=0)
