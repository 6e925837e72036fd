"""A server for one person's browser on this machine: it only reads, and answers only who calls it localhost.

=========================================  =============================================================================
``/``                                      The page.
``/api/runs``                              The index of every run; read again if files have changed.
``/api/summary?run=``                      What ``llm-bench report --json`` says of a run, or null.
``/api/episode?run=&number=&generation=``  One episode. 409 if the files have changed since the index was read.
``/api/search?run=&q=&from=&generation=``  Episodes with a text, as far as a moment of searching gets.
=========================================  =============================================================================

A request names runs and episodes by number, never by path. The Host header is checked, so that a page from elsewhere
whose name is made to point to this machine (DNS rebinding) is refused; and so is what a page from elsewhere asks for.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.results import ResultsError
from benchmarks.viewer.page import policy, server_page
from benchmarks.viewer.source import Changed, Source

__all__ = ["ADDRESS", "DEFAULT_PORT", "ViewServer"]

ADDRESS = "127.0.0.1"
DEFAULT_PORT = 8642
MAX_QUERY = 1000
"""Characters of a text to search for."""

logger = logging.getLogger(__name__)


class ViewServer(ThreadingHTTPServer):
    """Serves the viewer of some runs on the loopback interface.

    Args:
        sources: The runs.
        port: 0 takes a free one.

    Raises:
        OSError: If the port is taken.
    """

    daemon_threads = True
    # Another process must not be able to listen on the port as well.
    allow_reuse_port = False

    def __init__(self, sources: Sequence[Source], port: int = DEFAULT_PORT) -> None:
        self.sources = list(sources)
        self.page = server_page().encode("utf-8")
        self.policy = f"{policy(server=True)}; frame-ancestors 'none'"
        self.locks = [threading.Lock() for _ in self.sources]
        super().__init__((ADDRESS, port), _Handler)

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> frozenset[str]:
        """What a request may call this server."""
        return frozenset({f"{ADDRESS}:{self.server_port}", f"localhost:{self.server_port}"})


class _Refusal(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    server_version = "llm-bench"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        """Answer a request to read; all others get 501 from the base class."""
        try:
            if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
                raise _Refusal(HTTPStatus.FORBIDDEN, f"This server answers as {self.server.url} only.")
            url = urlsplit(self.path)
            if url.path == "/":
                self._send(HTTPStatus.OK, self.server.page, "text/html; charset=utf-8")
                return
            if self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
                raise _Refusal(HTTPStatus.FORBIDDEN, "Only the page of this server may ask.")
            answer = _ANSWERS.get(url.path)
            if answer is None:
                raise _Refusal(HTTPStatus.NOT_FOUND, "There is nothing here.")
            found = answer(self.server, _Query(url.query))
            self._send_json(HTTPStatus.OK, found)
        except _Refusal as refusal:
            self._send_json(refusal.status, {"error": str(refusal)})
        except Changed:
            self._send_json(HTTPStatus.CONFLICT, {"error": "The files of the run have changed; load them again."})
        except ResultsError as error:
            self._send_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": str(error)})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the browser has lost interest

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the terminal for the address; requests are of interest to a debugger only."""
        logger.debug(format, *args)

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        data = json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii")
        self._send(status, data, "application/json")

    def _send(self, status: HTTPStatus, data: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(data))),
            ("Content-Security-Policy", self.server.policy),
            ("X-Content-Type-Options", "nosniff"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class _Query:
    """The parameters of a request."""

    def __init__(self, query: str) -> None:
        try:
            self._values = parse_qs(query, keep_blank_values=True, max_num_fields=8)
        except ValueError:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "Too many parameters.") from None

    def text(self, name: str) -> str:
        value = self._values.get(name, [""])[0]
        if len(value) > MAX_QUERY:
            raise _Refusal(HTTPStatus.BAD_REQUEST, f"{name} is longer than {MAX_QUERY} characters.")
        return value

    def number(self, name: str) -> int:
        value = self.text(name)
        if not (value.isascii() and value.isdigit() and len(value) < 16):
            raise _Refusal(HTTPStatus.BAD_REQUEST, f"{name} must be a number, got {value!r}.")
        return int(value)


def _run(server: ViewServer, query: _Query) -> Source:
    number = query.number("run")
    if number >= len(server.sources):
        raise _Refusal(HTTPStatus.NOT_FOUND, f"There is no run {number}.")
    return server.sources[number]


def _runs(server: ViewServer, query: _Query) -> Any:
    found = []
    for source, lock in zip(server.sources, server.locks, strict=True):
        with lock:
            found.append(source.index())
    return {"runs": found}


def _summary(server: ViewServer, query: _Query) -> Any:
    return _run(server, query).summary()


def _episode(server: ViewServer, query: _Query) -> Any:
    try:
        return _run(server, query).episode(query.number("number"), query.number("generation"))
    except IndexError as error:
        raise _Refusal(HTTPStatus.NOT_FOUND, f"{error}.") from error


def _search(server: ViewServer, query: _Query) -> Any:
    return _run(server, query).search(query.text("q"), query.number("from"), query.number("generation"))


_ANSWERS: dict[str, Callable[[ViewServer, _Query], Any]] = {
    "/api/runs": _runs,
    "/api/summary": _summary,
    "/api/episode": _episode,
    "/api/search": _search,
}
