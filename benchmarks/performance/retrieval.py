"""How long a search takes: BM25 in this process at two sizes, over HTTP on this machine, and in batches."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence

from benchmarks.performance.measure import Measurement
from llm_envs.search.atlas import World
from llm_envs.tools.retrieval.base import Retriever
from llm_envs.tools.retrieval.bm25 import BM25Retriever
from llm_envs.tools.retrieval.http import HttpRetriever
from llm_envs.tools.retrieval.server import RetrieverServer

__all__ = ["measure_retrieval"]

K = 3
BATCH = 64
SMALL, LARGE = 10_000, 100_000
SMALL_TARGET_MS, LARGE_TARGET_MS, HTTP_TARGET_MS, BATCH_TARGET = 1.0, 12.0, 3.0, 3.0


def measure_retrieval(small: int = SMALL, large: int = LARGE, repeats: int = 3) -> list[Measurement]:
    """Ask questions of a generated world, each once a try, for the best of ``repeats`` tries.

    Args:
        small: Documents of the corpus that everything is measured on.
        large: Documents of the corpus that BM25 is measured on as well.
        repeats: Number of tries.
    """
    measurements = []
    retriever, queries = _corpus(large)
    value = min(_median_ms(retriever, queries) for _ in range(repeats))
    measurements.append(Measurement(f"bm25, {large:,} passages, median", value, "ms", LARGE_TARGET_MS, at_most=True))
    retriever, queries = _corpus(small)
    alone = min(_median_ms(retriever, queries) for _ in range(repeats))
    measurements.insert(0, Measurement(f"bm25, {small:,} passages, median", alone, "ms", SMALL_TARGET_MS, at_most=True))
    with RetrieverServer(retriever, port=0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            client = HttpRetriever(server.url)
            served = min(_median_ms(client, queries) for _ in range(repeats))
            single = min(_seconds(lambda: [client.search([query], K) for query in queries]) for _ in range(repeats))
            batched = min(_seconds(lambda: client.search(queries, K)) for _ in range(repeats))
        finally:
            server.shutdown()
            thread.join()
    measurements.append(Measurement("HTTP on this machine, added", served - alone, "ms", HTTP_TARGET_MS, at_most=True))
    name = f"HTTP, one query at a time / {BATCH} in a batch"
    measurements.append(Measurement(name, single / batched, "x", BATCH_TARGET))
    return measurements


def _corpus(documents: int) -> tuple[Retriever, list[str]]:
    world = World("train", 0, documents)
    rng = random.Random(0)
    queries = [world.draw(rng, hops=1 + number % 3).question for number in range(BATCH)]
    return BM25Retriever.from_passages(world.passages()), queries


def _median_ms(retriever: Retriever, queries: Sequence[str]) -> float:
    return 1000 * statistics.median(_seconds(lambda query=query: retriever.search([query], K)) for query in queries)  # type: ignore[misc]


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
