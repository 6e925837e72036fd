"""The OpenAI-compatible policy against vLLM's own server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainers.policies import PolicyError, Request, Sampling, make_policy

pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that serves the tiny model as `tiny`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(tiny_model),
        "--port",
        str(port),
    ]
    command += ["--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager", "--host", "127.0.0.1"]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    environment = {**os.environ, "TORCH_COMPILE_DISABLE": "1"}
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=environment) as server:
        try:
            deadline = time.monotonic() + 240
            while not _healthy(port):
                assert server.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(timeout=60)


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


async def test_a_vllm_server_answers_like_the_model(url: str, tiny_model: Path) -> None:
    greedy = Request("hello", "a_0", Sampling(max_tokens=12, temperature=0.0), seed=3)
    sampled = Request("hello", "a_0", Sampling(max_tokens=12, top_k=50, stop=("never",)), seed=3, n=3)
    async with make_policy(f"openai:tiny@{url}") as served, make_policy(f"hf:{tiny_model}") as local:
        (answer,) = await served.generate(greedy)
        (expected,) = await local.generate(greedy)
        # The server leaves out a character whose bytes are not all there at the end.
        assert answer.text == expected.text.rstrip("\N{REPLACEMENT CHARACTER}")
        assert answer.finish_reason == expected.finish_reason
        assert answer.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
        assert (answer.prompt_tokens, answer.completion_tokens) == (expected.prompt_tokens, expected.completion_tokens)
        three = await served.generate(sampled)
        assert len({completion.text for completion in three}) == 3
        assert await served.generate(sampled) == three  # the server honours the seed
        with pytest.raises(PolicyError, match=r"failed: BadRequestError.*maximum context length"):
            await served.generate(Request("x" * 2000, "a_0", Sampling(max_tokens=4), seed=0))
    async with make_policy(f"openai:absent@{url}") as absent:
        with pytest.raises(PolicyError, match="absent"):
            await absent.generate(greedy)
