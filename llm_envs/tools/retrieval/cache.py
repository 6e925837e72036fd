"""Remembers what was asked before."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from llm_envs.tools.retrieval.base import Passage, Retriever, RetrieverError

DEFAULT_ENTRIES = 4096


class CachedRetriever(Retriever):
    """Keeps the last ``entries`` results (least recently used out first) and asks for the others in one batch.

    Only results are kept: a failure is raised and asked again the next time.

    Args:
        inner: The retriever that is asked.
        entries: How many (query, k) pairs are kept, at least 1.
    """

    def __init__(self, inner: Retriever, entries: int = DEFAULT_ENTRIES) -> None:
        if isinstance(entries, bool) or not isinstance(entries, int) or entries < 1:
            raise RetrieverError(f"a cache holds at least 1 entry, got {entries!r}; leave the cache out instead")
        self.inner = inner
        self.kind = inner.kind
        self.hits = 0
        self.misses = 0
        self._entries = entries
        self._known: OrderedDict[tuple[str, int], tuple[Passage, ...]] = OrderedDict()
        self._lock = Lock()

    def _search(self, queries: list[str], k: int) -> list[list[Passage]]:
        found: dict[str, tuple[Passage, ...]] = {}
        with self._lock:
            for query in dict.fromkeys(queries):
                result = self._known.get((query, k))
                if result is not None:
                    self._known.move_to_end((query, k))
                    found[query] = result
            missing = [query for query in dict.fromkeys(queries) if query not in found]
            self.hits += len(found)
            self.misses += len(missing)
        if missing:
            fresh = [tuple(result) for result in self.inner.search(missing, k)]
            found.update(zip(missing, fresh, strict=True))
            with self._lock:
                for query in missing:
                    self._known[query, k] = found[query]
                    self._known.move_to_end((query, k))
                while len(self._known) > self._entries:
                    self._known.popitem(last=False)
        return [list(found[query]) for query in queries]

    def close(self) -> None:
        """Close the retriever that is asked."""
        self.inner.close()
