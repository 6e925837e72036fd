"""The retriever's server dies in the middle of a run: nothing is made up, nothing is lost, the run can be finished."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.cli import main
from benchmarks.results import read_lines
from llm_envs.search.atlas import atlas_retriever
from llm_envs.tools.retrieval import Passage, Retriever, RetrieverError
from llm_envs.tools.retrieval.http import HttpRetriever
from llm_envs.tools.retrieval.server import RetrieverServer

TASKS = 40


class Mortal(Retriever):
    """Answers a number of queries and fails from then on."""

    kind = "mortal"

    def __init__(self, inner: Retriever, life: int) -> None:
        self.inner, self.life = inner, life

    def _search(self, queries: list[str], k: int) -> list[list[Passage]]:
        self.life -= len(queries)
        if self.life < 0:
            raise RetrieverError("the server is going down")
        return self.inner.search(queries, k)


@contextmanager
def serving(retriever: Retriever, port: int = 0) -> Iterator[RetrieverServer]:
    with RetrieverServer(retriever, port=port) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_an_outage_fails_episodes_and_resume_finishes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpRetriever.__init__, "__kwdefaults__", {"timeout_s": 5.0, "retries": 2, "wait_s": 0.01})
    out = tmp_path / "run"
    whole = atlas_retriever("test")
    with serving(Mortal(whole, 30)) as server:
        command = ["run", "search-2agent", "--policy", "oracle", "-n", str(TASKS), "--concurrency", "2", "--quiet"]
        status = main([*command, "--env", f"retriever={server.url}", "--out", str(out)])
        port = server.server_port
    said = capsys.readouterr().err
    assert status == 1
    assert "failed after 3 attempts" in said
    assert f"Go on with: llm-bench run --resume --out {out}" in said
    stored = list(read_lines(out, "episodes.jsonl"))
    assert 0 < len(stored) < TASKS
    assert all(record["success"] for record in stored)
    failed = list(read_lines(out, "errors.jsonl"))
    assert failed
    assert all("RetrieverError" in record["error"] for record in failed)
    before = set((out / "episodes.jsonl").read_text().splitlines())
    with serving(whole, port):
        assert main(["run", "--resume", "--out", str(out), "--quiet"]) == 0
    assert before < set((out / "episodes.jsonl").read_text().splitlines())
    stored = list(read_lines(out, "episodes.jsonl"))
    assert len({record["task"] for record in stored}) == TASKS
    assert all(record["success"] for record in stored)
    assert "going down" not in json.dumps(stored)
