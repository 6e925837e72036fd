"""Dense retrieval: texts as vectors of a sentence-transformers model, compared exactly."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from llm_envs.tools.retrieval.base import Passage, Retriever, RetrieverError
from llm_envs.tools.retrieval.bm25 import Progress
from llm_envs.tools.retrieval.corpus import PassageStore

VECTORS = "vectors.npy"
OPTIONS = "dense.json"
_BATCH = 64
_ROWS = 65_536  # of the matrix at a time: bounds memory when the vectors are mapped from disk


class DenseRetriever(Retriever):
    """Exact search by inner product of normalised vectors (cosine). Every passage has a score; none is left out.

    Args:
        folder: What :meth:`build` wrote.
        backend: ``"numpy"``, or ``"faiss"`` for its exact index, which is faster and holds the vectors in memory.

    Raises:
        RetrieverError: A library or the model is missing, or the folder does not hold such an index.
    """

    kind = "dense"

    def __init__(self, folder: Path, *, backend: str = "numpy") -> None:
        options = json.loads((folder / OPTIONS).read_text(encoding="utf-8"))
        self._passages = PassageStore(folder)
        self._vectors = np.load(folder / VECTORS, mmap_mode="r", allow_pickle=False)
        self._model = _model(options["model"])
        self._prefix = options["query_prefix"]
        self._lock = Lock()
        self._faiss = None
        if backend == "faiss":
            self._faiss = _faiss_index(self._vectors)
        elif backend != "numpy":
            raise RetrieverError(f"the dense retriever compares through 'numpy' or 'faiss', got {backend!r}")

    def __len__(self) -> int:
        return len(self._passages)

    @staticmethod
    def build(
        passages: Iterable[Passage],
        folder: Path,
        *,
        model: str,
        query_prefix: str = "",
        passage_prefix: str = "",
        progress: Progress | None = None,
    ) -> None:
        """Encode ``passages`` into ``folder``, which exists and is empty.

        Args:
            passages: The corpus.
            folder: Where to.
            model: A sentence-transformers model: a hub id or a local folder.
            query_prefix: Goes before each query (``"query: "`` for E5).
            passage_prefix: Goes before each passage (``"passage: "`` for E5).
            progress: Told how far it is.

        Raises:
            RetrieverError: The library or the model is missing.
        """
        encoder = _model(model)
        parts: list[np.ndarray] = []
        batch: list[str] = []
        count = 0
        for count, passage in enumerate(PassageStore.write(folder, passages), 1):
            batch.append(passage_prefix + passage.searchable)
            if len(batch) == _BATCH:
                parts.append(_encode(encoder, batch))
                batch = []
                if progress is not None:
                    progress("encoding passages", count)
        if batch:
            parts.append(_encode(encoder, batch))
        np.save(folder / VECTORS, np.concatenate(parts))
        options = {"model": model, "query_prefix": query_prefix, "passage_prefix": passage_prefix}
        (folder / OPTIONS).write_text(json.dumps(options), encoding="utf-8")

    def _search(self, queries: list[str], k: int) -> list[list[Passage]]:
        with self._lock:  # tokenizers and models are not made for several threads
            vectors = _encode(self._model, [self._prefix + query for query in queries])
        k = min(k, len(self))
        if self._faiss is not None:
            scores, positions = self._faiss.search(vectors, k)
        else:
            scores, positions = _nearest(self._vectors, vectors, k)
        return [
            [self._passages.get(int(p), float(s)) for s, p in zip(row, places, strict=True)]
            for row, places in zip(scores, positions, strict=True)
        ]


def _nearest(matrix: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` best rows of ``matrix`` for each query, in blocks: (scores, positions), each of shape (queries, k)."""
    scores = np.empty((len(queries), 0), dtype=np.float32)
    places = np.empty((len(queries), 0), dtype=np.int64)
    for start in range(0, len(matrix), _ROWS):
        block = queries @ np.asarray(matrix[start : start + _ROWS]).T
        numbers = np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)
        scores, places = np.concatenate([scores, block], axis=1), np.concatenate([places, numbers], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, places = np.take_along_axis(scores, order, 1), np.take_along_axis(places, order, 1)
    return scores, places


def _encode(model: Any, texts: list[str]) -> np.ndarray:
    vectors = model.encode(texts, batch_size=_BATCH, normalize_embeddings=True, show_progress_bar=False)
    return np.ascontiguousarray(vectors, dtype=np.float32)


def _model(name: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise RetrieverError(
            "the dense retriever needs sentence-transformers: pip install 'llm-envs[dense]'"
        ) from error
    try:
        return SentenceTransformer(name)
    except (OSError, ValueError) as error:
        raise RetrieverError(f"the model {name!r} of the dense retriever cannot be loaded: {error}") from error


def _faiss_index(vectors: np.ndarray) -> Any:
    try:
        import faiss
    except ImportError as error:
        raise RetrieverError("backend='faiss' needs faiss: pip install faiss-cpu, or use backend='numpy'") from error
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(np.ascontiguousarray(vectors))
    return index
