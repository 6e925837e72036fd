"""BM25 in this process, through bm25s: scores are computed when the index is built and mapped into memory from disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from llm_envs.tools.retrieval.base import Passage, Retriever, RetrieverError
from llm_envs.tools.retrieval.corpus import PassageList, PassageStore

DEFAULT_K1, DEFAULT_B = 0.9, 0.4  # Anserini's, which suit passages

Progress = Callable[[str, int], None]
"""``progress(stage, done)``: called now and then while an index is built."""


class BM25Retriever(Retriever):
    """BM25 as Lucene scores it (Kamphuis et al. 2020), over terms of :class:`~.analysis.Analyzer`.

    Passages of equal score come in the order of the corpus. Passages that hold none of the query's terms are no result.

    Make one with :meth:`from_passages` or :meth:`open`.
    """

    kind = "bm25"

    def __init__(self, index: Any, passages: PassageList | PassageStore) -> None:
        from llm_envs.tools.retrieval.analysis import Analyzer

        # The score that each term gives each passage that has it, one list a term (compressed sparse columns). Plain
        # arrays over the mapped ones: slicing a np.memmap costs more than a short list.
        self._scores = np.asarray(index.scores["data"])
        self._positions = np.asarray(index.scores["indices"])
        self._starts = np.asarray(index.scores["indptr"])
        self._vocabulary: dict[str, int] = index.vocab_dict
        self._passages = passages
        self._analyzer = Analyzer()

    def __len__(self) -> int:
        return len(self._passages)

    @classmethod
    def from_passages(
        cls,
        passages: Iterable[Passage],
        *,
        k1: float = DEFAULT_K1,
        b: float = DEFAULT_B,
        progress: Progress | None = None,
    ) -> BM25Retriever:
        """Index ``passages`` in memory.

        Args:
            passages: The corpus.
            k1: Term frequency saturation, 0 or more.
            b: Length normalisation, 0 to 1.
            progress: Told how far it is.

        Raises:
            RetrieverError: There is no passage with a word in it, or an option is not valid.
        """
        kept = PassageList(passages)
        return cls(_build(kept, k1, b, progress), kept)

    @classmethod
    def build(
        cls,
        passages: Iterable[Passage],
        folder: Path,
        *,
        k1: float = DEFAULT_K1,
        b: float = DEFAULT_B,
        progress: Progress | None = None,
    ) -> None:
        """Index ``passages`` into ``folder``, which exists and is empty. Arguments as :meth:`from_passages`."""
        index = _build(PassageStore.write(folder, passages), k1, b, progress)
        index.save(folder, show_progress=False)

    @classmethod
    def open(cls, folder: Path) -> BM25Retriever:
        """The index that :meth:`build` wrote, mapped into memory."""
        return cls(_bm25s().BM25.load(folder, mmap=True), PassageStore(folder))

    def _search(self, queries: list[str], k: int) -> list[list[Passage]]:
        return [self._best(query, k) for query in queries]

    def _best(self, query: str, k: int) -> list[Passage]:
        vocabulary = self._vocabulary
        known = [vocabulary[term] for term in self._analyzer.terms(query) if term in vocabulary]
        if not known:
            return []
        lists = [slice(int(self._starts[term]), int(self._starts[term + 1])) for term in known]
        positions = [self._positions[one] for one in lists]
        scores = np.bincount(
            np.concatenate(positions), np.concatenate([self._scores[one] for one in lists]), minlength=len(self)
        )
        # Only passages that reach the k-th best score among those with one of the terms, a rare one, need to be sorted.
        # That is faster than a partition of all scores, and leaves ties at the k-th place to be settled by position.
        rare = min((one for one in positions if len(one) >= k), key=len, default=None)
        least = 0.0 if rare is None else float(np.partition(scores[rare], -k)[-k])
        candidates = np.flatnonzero(scores >= least) if least > 0 else np.flatnonzero(scores)
        order = candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
        return [self._passages.get(int(position), float(scores[position])) for position in order]


def _build(passages: Iterable[Passage], k1: float, b: float, progress: Progress | None) -> Any:
    from llm_envs.tools.retrieval.analysis import Analyzer

    if not (k1 >= 0 and 0 <= b <= 1):
        raise RetrieverError(f"BM25 needs k1 of 0 or more and b from 0 to 1, got k1={k1!r}, b={b!r}")
    analyzer = Analyzer()
    vocabulary: dict[str, int] = {}
    documents: list[list[int]] = []
    for passage in passages:
        documents.append([vocabulary.setdefault(term, len(vocabulary)) for term in analyzer.terms(passage.searchable)])
        if progress is not None and len(documents) % 256 == 0:
            progress("reading passages", len(documents))
    if not vocabulary:
        raise RetrieverError(f"none of the {len(documents)} passages has a word that can be indexed")
    if progress is not None:
        progress("scoring terms", len(documents))
    index = _bm25s().BM25(k1=k1, b=b, method="lucene")
    index.index((documents, vocabulary), create_empty_token=False, show_progress=False)
    return index


def _bm25s() -> Any:
    import bm25s

    # It sets its own logger to DEBUG, which would show in every handler that has no level of its own.
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    return bm25s
