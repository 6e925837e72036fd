"""The OpenAI-compatible policy against a real HTTP server of the standard library, failures included."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trainers.policies import PolicyError, Request, Sampling, candidate_seed, make_policy
from trainers.policies.openai import OpenAIPolicy

Answer = tuple[int, dict[str, Any]]


def completion(text: str = "four", reason: str = "stop", logprobs: list[float] | None = None) -> dict[str, Any]:
    content = (
        None
        if logprobs is None
        else [{"token": "t", "logprob": v, "bytes": None, "top_logprobs": []} for v in logprobs]
    )
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": reason,
                "message": {"role": "assistant", "content": text},
                "logprobs": None if content is None else {"content": content, "refusal": None},
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    }


class Server:
    """Answers chat completions as told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answer: Callable[[dict[str, Any], int], Answer] = lambda body, number: (200, completion())
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.running = self.most = 0
        lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    server.bodies.append(body)
                    server.keys.append(self.headers["Authorization"])
                    number = len(server.bodies)
                    server.running += 1
                    server.most = max(server.most, server.running)
                status, answer = server.answer(body, number)
                with lock:
                    server.running -= 1
                if status == 0:  # hang up without a word
                    self.close_connection = True
                    self.connection.close()
                    return
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


REQUEST = Request("2 + 2?", "solver_0", Sampling(temperature=0.5, top_p=0.9, max_tokens=7, stop=("\n",)), seed=3)


async def test_the_request_says_everything_and_the_answer_is_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.answer = lambda body, number: (200, completion("four", "length", [-0.1, -0.2, -0.3]))
    async with make_policy(f"openai:m@{server.url}", system_prompt="Be brief.") as policy:
        (answer,) = await policy.generate(REQUEST)
    assert server.bodies == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}],
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 7,
            "seed": candidate_seed(3, 0) % 2**31,
            "stop": ["\n"],
            "logprobs": True,
        }
    ]
    assert (answer.text, answer.finish_reason, answer.logprobs) == ("four", "length", (-0.1, -0.2, -0.3))
    assert (answer.prompt_tokens, answer.completion_tokens) == (9, 3)
    assert answer.token_ids is answer.prompt_ids is None
    assert server.keys == ["Bearer none"]
    assert policy.name == policy.label == f"openai:m@{server.url}"


async def test_options_reach_the_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
    policy = make_policy(f"openai:m@{server.url}", logprobs=False, extra_body={"chat_template_kwargs": {"a": 1}})
    await policy.generate(Request("x", "a_0", Sampling(top_k=5), seed=0))
    assert "logprobs" not in server.bodies[0]
    assert (server.bodies[0]["top_k"], server.bodies[0]["chat_template_kwargs"]) == (5, {"a": 1})
    assert server.keys == ["Bearer from the environment"]
    await policy.close()
    await policy.close()


async def test_candidates_are_requests_with_seeds_of_their_own(server: Server) -> None:
    server.answer = lambda body, number: (200, completion(str(body["seed"])))
    async with OpenAIPolicy("m", server.url) as policy:
        answers = await policy.generate(Request("x", "a_0", Sampling(), seed=8, n=3))
    assert [answer.text for answer in answers] == [str(candidate_seed(8, index) % 2**31) for index in range(3)]


async def test_logprobs_that_do_not_fit_the_tokens_are_not_reported(server: Server) -> None:
    server.answer = lambda body, number: (200, completion(logprobs=[-0.1]))
    async with OpenAIPolicy("m", server.url) as policy:
        (answer,) = await policy.generate(REQUEST)
    assert answer.logprobs is None
    assert answer.completion_tokens == 3


@pytest.mark.parametrize("status", [429, 500, 503, 0])
async def test_what_may_pass_is_tried_again(server: Server, status: int) -> None:
    server.answer = lambda body, number: (status, {"error": {"message": "busy"}}) if number < 3 else (200, completion())
    async with OpenAIPolicy("m", server.url, backoff_s=0.01) as policy:
        (answer,) = await policy.generate(REQUEST)
    assert answer.text == "four"
    assert len(server.bodies) == 3
    assert server.bodies[0] == server.bodies[2]


async def test_retries_end_with_an_error_that_names_the_url(server: Server) -> None:
    server.answer = lambda body, number: (503, {"error": {"message": "out of capacity"}})
    async with OpenAIPolicy("m", server.url, retries=2, backoff_s=0.01) as policy:
        with pytest.raises(PolicyError, match=f"{server.url} failed after 3 attempts.*out of capacity"):
            await policy.generate(REQUEST)
    assert len(server.bodies) == 3


async def test_the_wait_between_attempts_doubles(server: Server) -> None:
    server.answer = lambda body, number: (500, {})
    start = time.perf_counter()
    async with OpenAIPolicy("m", server.url, retries=3, backoff_s=0.05) as policy:
        with pytest.raises(PolicyError):
            await policy.generate(REQUEST)
    assert 0.05 + 0.1 + 0.2 <= time.perf_counter() - start < 3.0


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_refusal_is_not_tried_again(server: Server, status: int) -> None:
    server.answer = lambda body, number: (status, {"error": {"message": "no such model"}})
    async with OpenAIPolicy("m", server.url) as policy:
        with pytest.raises(PolicyError, match=f"{server.url} failed: .*no such model"):
            await policy.generate(REQUEST)
    assert len(server.bodies) == 1


async def test_no_server_is_an_error_that_names_the_url() -> None:
    async with OpenAIPolicy("m", "http://127.0.0.1:9/v1", retries=1, backoff_s=0.01) as policy:
        with pytest.raises(PolicyError, match=r"http://127\.0\.0\.1:9/v1 failed after 2 attempts: APIConnectionError"):
            await policy.generate(REQUEST)


async def test_a_slow_server_times_out(server: Server) -> None:
    release = threading.Event()

    def slow(body: dict[str, Any], number: int) -> Answer:
        release.wait(5)
        return 200, completion()

    server.answer = slow
    async with OpenAIPolicy("m", server.url, timeout_s=0.2, retries=0) as policy:
        with pytest.raises(PolicyError, match="APITimeoutError"):
            await policy.generate(REQUEST)
    release.set()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (completion(reason="content_filter"), "'content_filter'"),
        ({**completion(), "choices": []}, "without choices"),
        (completion(text=None), "without content"),  # type: ignore[arg-type]
    ],
)
async def test_an_answer_that_is_none_is_an_error(server: Server, answer: dict[str, Any], message: str) -> None:
    server.answer = lambda body, number: (200, answer)
    async with OpenAIPolicy("m", server.url) as policy:
        with pytest.raises(PolicyError, match=message):
            await policy.generate(REQUEST)


async def test_concurrency_is_bounded(server: Server) -> None:
    def slow(body: dict[str, Any], number: int) -> Answer:
        time.sleep(0.05)
        return 200, completion()

    server.answer = slow
    async with OpenAIPolicy("m", server.url, max_concurrency=3) as policy:
        await asyncio.gather(*(policy.generate(REQUEST) for _ in range(12)))
    assert server.most == 3


def test_one_policy_serves_several_event_loops(server: Server) -> None:
    policy = OpenAIPolicy("m", server.url)
    for _ in range(2):
        assert asyncio.run(policy.generate(REQUEST))[0].text == "four"


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="retries"):
        OpenAIPolicy("m", "http://x/v1", retries=-1)
