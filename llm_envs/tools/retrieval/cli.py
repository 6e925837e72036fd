"""The commands ``llm-envs index`` and ``llm-envs serve-retriever``."""

from __future__ import annotations

import argparse
import logging
import sys

from llm_envs.tools.retrieval.base import RetrieverError
from llm_envs.tools.retrieval.index import KINDS, build_index, open_retriever
from llm_envs.tools.retrieval.server import DEFAULT_PORT, DEFAULT_TOPK, RetrieverServer


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both commands to the parser of ``llm-envs``."""
    index = commands.add_parser(
        "index",
        help="index a corpus for retrieval",
        description='Index a corpus: a .jsonl(.gz) file with one {"id", "title", "contents"} a line.',
    )
    index.add_argument("corpus", metavar="CORPUS.jsonl")
    index.add_argument("--retriever", choices=KINDS, default="bm25", help="kind of index (default: bm25)")
    index.add_argument("--out", required=True, metavar="FOLDER", help="the folder to make")
    index.add_argument("--k1", type=float, help="bm25: term frequency saturation (default: 0.9)")
    index.add_argument("--b", type=float, help="bm25: length normalisation (default: 0.4)")
    index.add_argument("--threads", type=int, help="lucene: threads of the indexer (default: 2)")
    index.add_argument("--model", help="dense: a sentence-transformers model")
    index.add_argument("--query-prefix", help='dense: goes before each query ("query: " for E5)')
    index.add_argument("--passage-prefix", help='dense: goes before each passage ("passage: " for E5)')
    index.set_defaults(run=_index)

    serve = commands.add_parser(
        "serve-retriever",
        help="serve an index over HTTP, as Search-R1 does",
        description="Serve a retriever: POST /retrieve {queries, topk, return_scores}, GET /health.",
    )
    serve.add_argument("--index", required=True, metavar="FOLDER", help="an index, or lucene:<prebuilt name>")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    serve.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"(default: {DEFAULT_PORT}; 0: a free one)")
    serve.add_argument("--topk", type=int, default=DEFAULT_TOPK, help="passages where a request does not say")
    serve.set_defaults(run=_serve)


def _index(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    names = ("k1", "b", "threads", "model", "query_prefix", "passage_prefix")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    console = Console(stderr=True)
    total = _count_lines(options.corpus)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar:
        task = bar.add_task("starting", total=total)
        folder = build_index(
            options.corpus,
            options.out,
            kind=options.retriever,
            progress=lambda stage, done: bar.update(task, description=stage, completed=done),
            **given,
        )
    console.print(f"{options.retriever} index of {options.corpus} in {folder}", highlight=False, markup=False)
    return 0


def _count_lines(corpus: str) -> int | None:
    """How many lines the file has, for the progress bar; None where counting would mean unpacking it first."""
    if not corpus.endswith(".jsonl"):
        return None
    try:
        with open(corpus, "rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return None  # whether it can be read is for the one who reads it to say


def _serve(options: argparse.Namespace) -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    retriever = open_retriever(options.index)
    try:
        server = RetrieverServer(retriever, options.host, options.port, topk=options.topk)
    except (OSError, OverflowError) as error:
        raise RetrieverError(f"cannot listen on {options.host}:{options.port}: {error}") from error
    with server:
        sys.stdout.write(f"serving {retriever.kind} at {server.url}/retrieve\n")
        sys.stdout.flush()
        server.serve_forever()
    return 0
