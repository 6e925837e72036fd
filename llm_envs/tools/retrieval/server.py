"""Serves any retriever over HTTP in the wire format of :mod:`llm_envs.tools.retrieval.http`."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from llm_envs.tools.retrieval.base import MAX_K, Retriever, RetrieverError
from llm_envs.tools.retrieval.corpus import contents_of

DEFAULT_PORT = 8000
DEFAULT_TOPK = 3
MAX_BODY_BYTES = 16 * 2**20

logger = logging.getLogger(__name__)


class RetrieverServer(ThreadingHTTPServer):
    """``POST /retrieve`` asks the retriever, ``GET /health`` says what it is. A thread for each connection.

    Args:
        retriever: What is served.
        host: The address to listen on; this machine only by default. There is no authentication.
        port: 0 takes a free one; ``server_port`` says which.
        topk: How many passages a request gets that does not say.

    Raises:
        RetrieverError: ``topk`` is not valid.
        OSError: The address is taken or not allowed.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, retriever: Retriever, host: str = "127.0.0.1", port: int = DEFAULT_PORT, *, topk: int = DEFAULT_TOPK
    ) -> None:
        if not 1 <= topk <= MAX_K:
            raise RetrieverError(f"topk must be from 1 to {MAX_K}, got {topk!r}")
        self.retriever = retriever
        self.topk = topk
        self._connections: set[Any] = set()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection while it is open."""
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget it."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Stop listening, and hang up: a client that kept its connection would go on being served otherwise."""
        super().server_close()
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        """Where it listens."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: RetrieverServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave in one packet
    disable_nagle_algorithm = True
    timeout = 300  # seconds that an idle connection is kept

    def do_GET(self) -> None:
        if self.path != "/health":
            return self._answer(404, {"detail": "there are POST /retrieve and GET /health"})
        return self._answer(200, {"status": "ok", "retriever": self.server.retriever.kind})

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self.close_connection = True  # the body is not read, so nothing can follow it
            detail = f"a request needs a Content-Length of at most {MAX_BODY_BYTES} bytes"
            return self._answer(413 if length.isdecimal() else 411, {"detail": detail})
        body = self.rfile.read(int(length))
        if self.path.partition("?")[0] != "/retrieve":
            return self._answer(404, {"detail": "there are POST /retrieve and GET /health"})
        try:
            queries, topk, scores = self._read(body)
        except ValueError as error:
            return self._answer(422, {"detail": str(error)})
        try:
            results = self.server.retriever.search(queries, topk)
        except RetrieverError as error:
            logger.error("a request of %d queries failed: %s", len(queries), error)
            return self._answer(503, {"detail": str(error)})
        documents = [
            [(({"id": passage.id, "contents": contents_of(passage)}), passage.score) for passage in result]
            for result in results
        ]
        if scores:
            return self._answer(
                200, {"result": [[{"document": d, "score": score} for d, score in one] for one in documents]}
            )
        return self._answer(200, {"result": [[document for document, _ in one] for one in documents]})

    def _read(self, body: bytes) -> tuple[list[str], int, bool]:
        request = json.loads(body)
        if not isinstance(request, Mapping):
            raise ValueError("the request must be an object with queries, topk and return_scores")
        queries = request.get("queries")
        if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
            raise ValueError("queries must be a list of texts")
        topk = request.get("topk") or self.server.topk
        if isinstance(topk, bool) or not isinstance(topk, int) or not 1 <= topk <= MAX_K:
            raise ValueError(f"topk must be an integer from 1 to {MAX_K}")
        scores = request.get("return_scores", False)
        if not isinstance(scores, bool):
            raise ValueError("return_scores must be true or false")
        return queries, topk, scores

    def _answer(self, status: int, content: Mapping[str, Any]) -> None:
        body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("%s " + format, self.address_string(), *args)
