"""The wire format, with a client that knows nothing of ours, and what happens when a server misbehaves or is gone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import llm_envs
from llm_envs.tools.retrieval import Passage, Retriever, RetrieverError, build_index
from llm_envs.tools.retrieval.bm25 import BM25Retriever
from llm_envs.tools.retrieval.http import HttpRetriever
from llm_envs.tools.retrieval.server import RetrieverServer

PASSAGES = [
    Passage("p1", "Blue whale", "The blue whale is the largest animal.\nIt lives in the sea."),
    Passage("p2", 'The "Cat"', "The cat is a small animal."),
    Passage("p3", "", "An animal without a title."),
]


@contextmanager
def running(server):
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server():
    with running(RetrieverServer(BM25Retriever.from_passages(PASSAGES), port=0)) as one:
        yield one


def post(url, payload, raw=False):
    body = payload if raw else json.dumps(payload).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_search_r1_client_reads_it(server):
    # What Search-R1's generation loop sends and how it reads the answer: the title is the first line of contents.
    payload = {"queries": ["largest animal", "cat"], "topk": 3, "return_scores": True}
    status, answer = post(f"{server.url}/retrieve", payload)
    assert status == 200
    shown = []
    for result in answer["result"]:
        text = ""
        for number, item in enumerate(result):
            contents = item["document"]["contents"]
            title, _, rest = contents.partition("\n")
            text += f"Doc {number + 1}(Title: {title}) {rest}\n"
            assert isinstance(item["score"], float)
        shown.append(text)
    assert shown[0].startswith(
        'Doc 1(Title: "Blue whale") The blue whale is the largest animal.\nIt lives in the sea.\n'
    )
    assert shown[1] == 'Doc 1(Title: "The "Cat"") The cat is a small animal.\n'


def test_without_scores_the_documents_are_bare(server):
    _, answer = post(f"{server.url}/retrieve", {"queries": ["whale"], "topk": 1})
    assert answer == {
        "result": [
            [{"id": "p1", "contents": '"Blue whale"\nThe blue whale is the largest animal.\nIt lives in the sea.'}]
        ]
    }
    _, answer = post(f"{server.url}/retrieve", {"queries": ["animal"], "topk": None, "return_scores": False})
    assert len(answer["result"][0]) == 3  # the server's own topk


@pytest.mark.parametrize(
    ("payload", "status", "detail"),
    [
        ({"queries": "whale"}, 422, "queries must be a list of texts"),
        ({"queries": [1]}, 422, "queries must be a list of texts"),
        ({"queries": ["whale"], "topk": -1}, 422, "topk must be an integer from 1 to 1000"),
        ({"queries": ["whale"], "topk": 1001}, 422, "topk must be"),
        ({"queries": ["whale"], "return_scores": "yes"}, 422, "return_scores must be true or false"),
        ([], 422, "the request must be an object"),
    ],
)
def test_bad_requests_are_refused(server, payload, status, detail):
    code, answer = post(f"{server.url}/retrieve", payload)
    assert code == status
    assert detail in answer["detail"]


def test_other_requests(server):
    assert post(f"{server.url}/retrieve", b"{", raw=True)[0] == 422
    assert post(f"{server.url}/elsewhere", {})[0] == 404
    with urllib.request.urlopen(f"{server.url}/health", timeout=10) as response:
        assert json.load(response) == {"status": "ok", "retriever": "bm25"}
    with socket.create_connection(server.server_address, timeout=10) as connection:
        connection.sendall(b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
        assert b" 413 " in connection.recv(100)
    assert post(f"{server.url}/retrieve", {"queries": []}) == (200, {"result": []})


def test_it_listens_on_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"


def test_round_trip_is_the_retriever_itself(server):
    client, direct = HttpRetriever(server.url), BM25Retriever.from_passages(PASSAGES)
    queries = ["largest animal", "cat \ud800", "???", "animal"]
    assert client.search(queries, 2) == direct.search(queries, 2)
    results = [None] * 16

    def ask(number):
        results[number] = client.search(queries, 3)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [direct.search(queries, 3)] * 16


def test_a_connection_that_was_closed_meanwhile_is_no_failure():
    retriever = BM25Retriever.from_passages(PASSAGES)
    with running(RetrieverServer(retriever, port=0)) as first:
        port = first.server_port
        client = HttpRetriever(first.url, retries=0)
        client.search(["cat"], 1)
        client._idle[-1].sock.shutdown(socket.SHUT_RDWR)
        assert client.search(["cat"], 1)[0][0].id == "p2"
    with running(RetrieverServer(retriever, port=port)):
        assert client.search(["cat"], 1)[0][0].id == "p2"


class Scripted(HTTPServer):
    """Answers the n-th request with the n-th of its answers; None hangs up."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        super().__init__(("127.0.0.1", 0), ScriptedHandler)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class ScriptedHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        answer = self.server.answers.pop(0) if self.server.answers else None
        if answer is None:
            self.connection.close()
            return
        status, body = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_one_request(self):
        try:
            super().handle_one_request()
        except (ValueError, OSError):
            self.close_connection = True

    def log_message(self, *args):
        pass


GOOD = (200, json.dumps({"result": [[{"document": {"contents": '"T"\ntext'}, "score": 1}]]}).encode())


@pytest.mark.parametrize("bad", [None, (500, b"oops"), (503, b"busy"), (429, b"slow down")])
def test_what_may_pass_is_tried_again(bad):
    with running(Scripted(bad, bad, GOOD)) as server:
        (result,) = HttpRetriever(server.url, retries=2, wait_s=0.01).search(["q"], 3)
        assert (result[0].title, result[0].text, result[0].score) == ("T", "text", 1.0)
        assert server.requests == [{"queries": ["q"], "topk": 3, "return_scores": True}] * 3


@pytest.mark.parametrize("bad", [None, (500, b"oops")])
def test_retries_are_bounded(bad):
    with running(Scripted(*[bad] * 9)) as server:
        with pytest.raises(
            RetrieverError, match=r"failed after 3 attempts of at most 5 s\. The last one: .*serve-retriever"
        ):
            HttpRetriever(server.url, retries=2, timeout_s=5, wait_s=0.01).search(["q"], 3)
        assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((404, b"no such page"), r"refused the request\. HTTP 404: no such page"),
        ((422, b"bad"), "refused the request"),
        ((200, b"<html>"), "text that is not JSON"),
        ((200, b"[]"), "something else than 1 lists under 'result'"),
        ((200, b'{"result": []}'), "something else than 1 lists under 'result'"),
        ((200, b'{"result": [{}]}'), "something else than a list"),
        ((200, b'{"result": [[{"document": {"id": 1}}]]}'), "a document without contents"),
        ((200, b'{"result": [[{"document": {"contents": "x"}, "score": "high"}]]}'), "a score that is no number"),
    ],
)
def test_what_will_not_pass_is_raised_at_once(answer, message):
    with running(Scripted(answer, GOOD)) as server:
        with pytest.raises(RetrieverError, match=message):
            HttpRetriever(server.url, retries=5, wait_s=0.01).search(["q"], 3)
        assert len(server.requests) == 1


def test_bare_documents_are_read():
    body = json.dumps({"result": [[{"id": 7, "contents": '"T"\ntext'}, {"id": 8, "contents": "x"}]]}).encode()
    with running(Scripted((200, body))) as server:
        assert HttpRetriever(server.url).search(["q"], 1) == [[Passage("7", "T", "text")]]  # and no more than k


def test_a_server_that_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = HttpRetriever(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2, retries=1, wait_s=0.01)
        started = time.monotonic()
        with pytest.raises(RetrieverError, match=r"2 attempts of at most 0\.2 s\. The last one: TimeoutError"):
            client.search(["q"], 1)
        assert time.monotonic() - started < 5


class Broken(Retriever):
    kind = "broken"

    def _search(self, queries, k):
        raise RetrieverError("the index is gone")


def test_a_failing_retriever_is_an_error_for_the_client_as_well():
    gone = pytest.raises(RetrieverError, match=r"HTTP 503: .*the index is gone")
    with running(RetrieverServer(Broken(), port=0)) as server, gone:
        HttpRetriever(server.url, retries=1, wait_s=0.01).search(["q"], 1)


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://x:port"])
def test_bad_addresses(url):
    with pytest.raises(RetrieverError, match=r"is no address of a retriever|has no valid port"):
        HttpRetriever(url)


def test_bad_options():
    with pytest.raises(RetrieverError, match="timeout_s must be positive"):
        HttpRetriever("http://x", timeout_s=0)


@contextmanager
def served(folder):
    """``llm-envs serve-retriever`` as a process of its own; yields it and its address."""
    command = [sys.executable, "-m", "llm_envs.cli", "serve-retriever", "--index", str(folder), "--port", "0"]
    program = "import sys; from llm_envs.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *command[3:]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        line = process.stdout.readline()
        assert line.startswith("serving bm25 at http://127.0.0.1:"), process.stderr.read()
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_killing_the_server_is_an_error_of_the_run_never_an_observation(tmp_path):
    from llm_envs.search.atlas import world

    index = build_index(world("train").passages(), tmp_path / "index")
    with served(index) as (process, url):
        client = HttpRetriever(url, retries=2, wait_s=0.01)
        env = llm_envs.make("search-2agent", retriever=client, order_enforcing=False)
        env.reset(seed=0)
        while env.round_agents:
            env.step(env.oracle(env.agent_selection))
        assert env.success
        env.reset(seed=1)
        env.step(env.oracle("reasoner_0"))
        before = env.observe("reasoner_0")
        process.kill()
        process.wait()
        with pytest.raises(RetrieverError, match="failed after 3 attempts"):
            env.step(env.oracle("searcher_0"))
        assert env.observe("reasoner_0") == before
        assert not env.success
        assert env.rewards == {"reasoner_0": 0.0, "searcher_0": 0.0}


def test_the_server_leaves_on_an_interrupt(tmp_path):
    index = build_index(PASSAGES, tmp_path / "index")
    with served(index) as (process, url):
        assert HttpRetriever(url).search(["cat"], 1)[0][0].id == "p2"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
