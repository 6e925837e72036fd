"""The server: who may ask, what they may ask for, and what they get."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import ResultsError
from benchmarks.viewer.command import view_runs
from benchmarks.viewer.server import ViewServer
from benchmarks.viewer.source import Source
from tests.benchmarks.viewer.synthetic import write_math_run


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ViewServer]:
    with ViewServer([Source(write_math_run(tmp_path / "run", 5))], 0) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: ViewServer, path: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in (headers or {"Host": f"127.0.0.1:{server.server_port}"}).items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


def told(server: ViewServer, path: str) -> tuple[int, Any]:
    status, body, _ = ask(server, path)
    return status, json.loads(body)


def test_it_listens_on_the_loopback_interface_only(server: ViewServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_the_page_comes_with_its_policy(server: ViewServer) -> None:
    status, body, headers = ask(server, "/")
    assert status == 200
    assert body.startswith(b"<!doctype html>")
    rules = headers["Content-Security-Policy"]
    assert rules.startswith("default-src 'none'; script-src 'sha256-")
    assert "frame-ancestors 'none'" in rules
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers
    stated = re.search(rb'Content-Security-Policy" content="([^"]*)"', body)
    assert stated is not None
    assert rules.startswith(stated[1].decode().replace("&#x27;", "'"))


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", "[::1]:{port}", "", "0.0.0.0:{port}"],
)
@pytest.mark.parametrize("path", ["/", "/api/runs"])
def test_other_names_are_refused(server: ViewServer, host: str, path: str) -> None:
    assert ask(server, path, headers={"Host": host.format(port=server.server_port)})[0] == 403


def test_a_request_without_or_with_two_names_is_refused(server: ViewServer) -> None:
    assert ask(server, "/", headers={"X": "y"})[0] == 403
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as plain:
        port = server.server_port
        plain.sendall(f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nHost: evil\r\n\r\n".encode())
        assert plain.recv(100).startswith(b"HTTP/1.1 403")


def test_localhost_is_a_name_too(server: ViewServer) -> None:
    assert ask(server, "/api/runs", headers={"Host": f"localhost:{server.server_port}"})[0] == 200


def test_pages_from_elsewhere_may_not_ask(server: ViewServer) -> None:
    host = {"Host": f"127.0.0.1:{server.server_port}"}
    assert ask(server, "/api/runs", headers={**host, "Sec-Fetch-Site": "cross-site"})[0] == 403
    assert ask(server, "/api/runs", headers={**host, "Sec-Fetch-Site": "same-origin"})[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"])
def test_it_can_only_be_read(server: ViewServer, method: str) -> None:
    assert ask(server, "/api/runs", method=method)[0] == 501


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/assets/app.js", "/api", "/api/runs/", "/run"],
)
def test_there_are_no_files(server: ViewServer, path: str) -> None:
    status, body, _ = ask(server, path)
    assert status == 404
    assert b"root:" not in body


def test_runs_episodes_and_searches(server: ViewServer) -> None:
    status, answer = told(server, "/api/runs")
    assert status == 200
    (run,) = answer["runs"]
    assert len(run["columns"]["id"]) == 5
    generation = run["generation"]
    status, record = told(server, f"/api/episode?run=0&number=3&generation={generation}")
    assert (status, record["id"]) == (200, run["columns"]["id"][3])
    status, found = told(server, f"/api/search?run=0&q=Test%2F3&from=0&generation={generation}")
    assert (status, found) == (200, {"found": [3], "next": None})
    status, summary = told(server, "/api/summary?run=0")
    assert (status, summary["episodes"]) == (200, 5)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/episode?run=0&number=99&generation=1", 404),
        ("/api/episode?run=7&number=0&generation=1", 404),
        ("/api/episode?run=0&number=0&generation=9", 409),
        ("/api/episode?run=0&number=-1&generation=1", 400),
        ("/api/episode?run=0&number=../../etc/passwd&generation=1", 400),
        ("/api/episode?run=0&number=%D9%A3&generation=1", 400),
        ("/api/episode", 400),
        ("/api/search?run=0&q=" + "x" * 1001 + "&from=0&generation=1", 400),
        ("/api/summary?" + "&".join(f"a{i}=1" for i in range(20)), 400),
    ],
)
def test_mistakes_get_a_reason(server: ViewServer, path: str, status: int) -> None:
    told(server, "/api/runs")
    found, answer = told(server, path)
    assert found == status
    assert answer["error"]


def test_a_run_that_goes_on_is_read_again(server: ViewServer, tmp_path: Path) -> None:
    told(server, "/api/runs")
    path = tmp_path / "run" / "episodes.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines, lines[0].replace("test/0", "test/9")]), encoding="utf-8")
    _, answer = told(server, "/api/runs")
    assert len(answer["runs"][0]["columns"]["id"]) == 6
    assert told(server, "/api/episode?run=0&number=0&generation=1")[0] == 409


def test_a_run_that_breaks_is_an_answer_too(server: ViewServer, tmp_path: Path) -> None:
    (tmp_path / "run" / "episodes.jsonl").write_text("broken\n", encoding="utf-8")
    status, answer = told(server, "/api/runs")
    assert status == 500
    assert "episodes.jsonl" in answer["error"]


def test_a_port_that_is_taken_is_named(server: ViewServer, tmp_path: Path) -> None:
    from rich.console import Console

    with pytest.raises(ResultsError, match=f"Port {server.server_port} .* --port 0"):
        view_runs([str(tmp_path / "run")], Console(), port=server.server_port)


def test_the_command_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    run = write_math_run(tmp_path / "run", 2)
    command = [sys.executable, "-m", "benchmarks.cli", "view", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert found, line
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
        connection.request("GET", "/api/runs")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert errors == ""
