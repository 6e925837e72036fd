"""What every retriever is: batched ``search(queries, k)`` that gives passages, best first, or raises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium import error

MAX_K = 1000
"""The most passages a query may ask for."""


class RetrieverError(error.Error):
    """A retriever cannot be built, opened or asked. The message names what failed and the fix.

    It is an error of the run, never an observation: an episode during which it is raised has failed and has no result.
    """


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage.

    Attributes:
        id: Unique in its corpus.
        title: One line, or empty.
        text: The passage without its title.
        score: How well it matches; higher is better. Comparable within one retriever only, 0 outside a result.
    """

    id: str
    title: str
    text: str
    score: float = 0.0

    @property
    def searchable(self) -> str:
        """What an index sees of it: title and text."""
        return f"{self.title}\n{self.text}" if self.title else self.text


class Retriever(ABC):
    """Finds passages.

    A subclass implements ``_search``, which gets checked arguments and must be safe to call from several threads.
    Retrievers are shared: copying an environment does not copy them.
    """

    kind: str
    """What it is called on the command line and in an index: ``"bm25"``, ``"lucene"``, ``"dense"``, ``"http"``."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Returns for each query at most ``k`` passages, best first; none where nothing matches.

        Args:
            queries: Any texts. Characters that cannot be encoded are replaced.
            k: 1 to :data:`MAX_K`.

        Raises:
            RetrieverError: The arguments are not valid, or the retriever fails (a server after bounded retries).
        """
        if isinstance(queries, str) or not all(isinstance(query, str) for query in queries):
            raise RetrieverError(f"queries must be a sequence of texts, got {queries!r:.80}")
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K:
            raise RetrieverError(f"k must be an integer from 1 to {MAX_K}, got {k!r}")
        if not queries:
            return []
        return self._search([_encodable(query) for query in queries], k)

    @abstractmethod
    def _search(self, queries: list[str], k: int) -> list[list[Passage]]: ...

    def close(self) -> None:  # noqa: B027
        """Release what the retriever holds. It cannot be asked afterwards. Default: nothing to release."""

    def __copy__(self) -> Retriever:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Retriever:
        return self


def _encodable(query: str) -> str:
    return query.encode("utf-8", "replace").decode("utf-8")
