"""Indexes on disk: a folder that says what it holds, built from a corpus and opened by its path."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from llm_envs.tools.retrieval.base import Passage, Retriever, RetrieverError
from llm_envs.tools.retrieval.bm25 import BM25Retriever, Progress
from llm_envs.tools.retrieval.cache import CachedRetriever
from llm_envs.tools.retrieval.corpus import read_corpus

DESCRIPTION = "retriever.json"
FORMAT = 1
KINDS = ("bm25", "lucene", "dense")
_OPTIONS = {
    "bm25": ("k1", "b"),
    "lucene": ("threads",),
    "dense": ("model", "query_prefix", "passage_prefix"),
}


def build_index(
    corpus: Path | str | Iterable[Passage],
    out: Path | str,
    *,
    kind: str = "bm25",
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Index a corpus. The folder appears once it is complete; what was built half is removed.

    Args:
        corpus: A file (:mod:`llm_envs.tools.retrieval.corpus`) or passages.
        out: The folder to make. It must not exist.
        kind: ``"bm25"``, ``"lucene"`` or ``"dense"``.
        progress: Told how far it is: ``progress(stage, passages so far)``.
        **options: Of the kind: ``k1``, ``b`` (bm25); ``threads`` (lucene); ``model``, ``query_prefix``,
            ``passage_prefix`` (dense).

    Returns:
        The folder.

    Raises:
        RetrieverError: The corpus cannot be read, the folder is there, an option is unknown, or something is missing.
    """
    if kind not in KINDS:
        raise RetrieverError(f"there is no retriever {kind!r} that builds an index; there are: {', '.join(KINDS)}")
    unknown = [name for name in options if name not in _OPTIONS[kind]]
    if unknown:
        raise RetrieverError(f"{kind} has no option {unknown[0]!r}; it has: {', '.join(_OPTIONS[kind])}")
    if kind == "dense" and "model" not in options:
        raise RetrieverError("a dense index needs model=…, a sentence-transformers model (--model)")
    out = Path(out).expanduser()
    if out.exists():
        raise RetrieverError(f"{out} is there already; remove it or give another folder")
    passages = read_corpus(corpus) if isinstance(corpus, str | os.PathLike) else corpus
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise RetrieverError(f"cannot write beside {out}: {error}") from error
    try:
        _builder(kind)(passages, work, progress=progress, **options)
        description = {"format": FORMAT, "kind": kind, "options": options}
        (work / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        work.chmod(0o755)
        work.rename(out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return out


def _builder(kind: str) -> Any:
    if kind == "bm25":
        return BM25Retriever.build
    if kind == "lucene":
        from llm_envs.tools.retrieval.lucene import LuceneRetriever

        return LuceneRetriever.build
    from llm_envs.tools.retrieval.dense import DenseRetriever

    return DenseRetriever.build


def open_index(folder: Path | str) -> Retriever:
    """The retriever of a folder that :func:`build_index` made, or of a bare index of Lucene.

    Raises:
        RetrieverError: It is no index, or something it needs is missing.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise RetrieverError(f"there is no index folder {folder} (looked in {Path.cwd()}); `llm-envs index` makes one")
    path = folder / DESCRIPTION
    if not path.is_file():
        if any(folder.glob("segments_*")):
            from llm_envs.tools.retrieval.lucene import LuceneRetriever

            return LuceneRetriever(folder)
        raise RetrieverError(f"{folder} is no index: it has no {DESCRIPTION}; `llm-envs index` makes one")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        kind, version = description["kind"], description["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RetrieverError(f"{path} cannot be read ({error}); build the index again") from error
    if version != FORMAT or kind not in KINDS:
        raise RetrieverError(f"{folder} is an index of format {version!r}, kind {kind!r}; build it again")
    try:
        if kind == "bm25":
            return BM25Retriever.open(folder)
        if kind == "lucene":
            from llm_envs.tools.retrieval.lucene import INDEX, LuceneRetriever

            return LuceneRetriever(folder / INDEX)
        from llm_envs.tools.retrieval.dense import DenseRetriever

        return DenseRetriever(folder)
    except (OSError, ValueError) as error:
        raise RetrieverError(f"the index {folder} is not complete ({error}); build it again") from error


def open_retriever(retriever: str | os.PathLike[str]) -> Retriever:
    """The retriever that a user names, with a cache; one for each name in this process.

    Args:
        retriever: The folder of an index, ``http://host:port`` (a server), or ``lucene:<name>`` (a prebuilt index of
            pyserini).

    Raises:
        RetrieverError: It cannot be opened. A server is only asked when something is searched.
    """
    name = os.fspath(retriever)
    if name.startswith(("http://", "https://", "lucene:")):
        return _open(name, 0)
    folder = Path(name).expanduser().resolve()
    description = folder / DESCRIPTION
    return _open(str(folder), description.stat().st_mtime_ns if description.is_file() else 0)


@lru_cache(maxsize=16)
def _open(name: str, built: int) -> Retriever:
    """``built`` tells an index from one that was built anew in its place."""
    if name.startswith(("http://", "https://")):
        from llm_envs.tools.retrieval.http import HttpRetriever

        return CachedRetriever(HttpRetriever(name))
    if name.startswith("lucene:"):
        from llm_envs.tools.retrieval.lucene import LuceneRetriever

        return CachedRetriever(LuceneRetriever.prebuilt(name.removeprefix("lucene:")))
    return CachedRetriever(open_index(name))
