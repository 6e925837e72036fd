"""A retriever behind HTTP, in the wire format of Search-R1 (Jin et al. 2025, arXiv 2503.09516).

``POST /retrieve`` with ``{"queries": [...], "topk": 3, "return_scores": true}`` answers ``{"result": [[{"document":
{"id": …, "contents": "\\"Title\\"\\ntext"}, "score": …}, …], …]}``, one list a query.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import time
import weakref
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from llm_envs.tools.retrieval.base import Passage, Retriever, RetrieverError
from llm_envs.tools.retrieval.corpus import make_passage

_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_MAX_WAIT_S = 5.0


class HttpRetriever(Retriever):
    """Asks a server. Connections are kept open and used again, by one thread at a time.

    Args:
        url: ``http://host:port`` or the full address; the path is ``/retrieve`` unless another is given.
        timeout_s: How long one attempt may take to connect, and to answer.
        retries: How often a request is sent again after a failed connection, a timeout or a busy server (HTTP 408, 425,
            429, 5xx). Other errors are raised at once.
        wait_s: Pause before the first retry; it doubles each time, up to 5 s.

    Raises:
        RetrieverError: The address or an option is not valid.
    """

    kind = "http"

    def __init__(self, url: str, *, timeout_s: float = 30.0, retries: int = 3, wait_s: float = 0.25) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RetrieverError(f"{url!r} is no address of a retriever; write http://host:port")
        if timeout_s <= 0 or retries < 0 or wait_s < 0:
            raise RetrieverError(
                f"timeout_s must be positive, retries and wait_s 0 or more; got {timeout_s!r}, {retries!r}, {wait_s!r}"
            )
        path = parts.path if parts.path not in ("", "/") else "/retrieve"
        self.url = f"{parts.scheme}://{parts.netloc}{path}"
        self._target = f"{path}?{parts.query}" if parts.query else path
        self._host = parts.hostname
        try:
            self._port = parts.port
        except ValueError as error:
            raise RetrieverError(f"{url!r} has no valid port: {error}") from error
        self._secure = parts.scheme == "https"
        self.timeout_s, self.retries, self.wait_s = timeout_s, retries, wait_s
        self._idle: list[http.client.HTTPConnection] = []  # append and pop are atomic
        weakref.finalize(self, _close_all, self._idle)

    def _search(self, queries: list[str], k: int) -> list[list[Passage]]:
        request = {"queries": queries, "topk": k, "return_scores": True}
        answer = self._ask(json.dumps(request).encode())
        results = answer.get("result") if isinstance(answer, Mapping) else None
        if not isinstance(results, list) or len(results) != len(queries):
            raise RetrieverError(
                f"{self.url} answered with something else than {len(queries)} lists under 'result': {answer!r:.200}"
            )
        return [[self._passage(item) for item in result[:k]] for result in map(self._list, results)]

    def _ask(self, body: bytes) -> Any:
        problem = ""
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(min(_MAX_WAIT_S, self.wait_s * 2 ** (attempt - 1)))
            try:
                status, payload = self._send(body)
            except (OSError, http.client.HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"
                continue
            if status == 200:
                try:
                    return json.loads(payload)
                except ValueError as error:
                    raise RetrieverError(
                        f"{self.url} answered with text that is not JSON: {payload[:200]!r}"
                    ) from error
            problem = f"HTTP {status}: {payload[:500].decode('utf-8', 'replace')}"
            if status not in _BUSY:
                raise RetrieverError(f"{self.url} refused the request. {problem}")
        tries = f"{self.retries + 1} attempts of at most {self.timeout_s:g} s"
        raise RetrieverError(
            f"the retriever at {self.url} failed after {tries}. The last one: {problem}. Is the server running "
            "(`llm-envs serve-retriever`), and is the address right?"
        )

    def _send(self, body: bytes) -> tuple[int, bytes]:
        with contextlib.suppress(IndexError, ConnectionError, http.client.HTTPException):
            # A kept connection that the server closed meanwhile is no failure: connect afresh.
            return self._exchange(self._idle.pop(), body)
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return self._exchange(kind(self._host, self._port, timeout=self.timeout_s), body)

    def _exchange(self, connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
        try:
            connection.request("POST", self._target, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.status, response.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def _list(self, result: Any) -> list[Any]:
        if not isinstance(result, list):
            raise RetrieverError(f"{self.url} answered a query with something else than a list: {result!r:.200}")
        return result

    def _passage(self, item: Any) -> Passage:
        """Both forms are read: with scores, and the bare documents of a server that ignores ``return_scores``."""
        document = item.get("document", item) if isinstance(item, Mapping) else None
        contents = document.get("contents", document.get("text")) if isinstance(document, Mapping) else None
        if not isinstance(document, Mapping) or not isinstance(contents, str):
            raise RetrieverError(f"{self.url} sent a document without contents: {item!r:.200}")
        passage_id = document.get("id")
        if passage_id is None:
            passage_id = hashlib.sha256(contents.encode("utf-8", "replace")).hexdigest()[:16]
        title, score = document.get("title"), item.get("score", 0.0)
        if not isinstance(score, int | float):
            raise RetrieverError(f"{self.url} sent a score that is no number: {score!r:.80}")
        return make_passage(str(passage_id), title if isinstance(title, str) else None, contents, float(score))

    def close(self) -> None:
        """Close the connections that are not in use."""
        _close_all(self._idle)


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    while connections:
        connections.pop().close()
