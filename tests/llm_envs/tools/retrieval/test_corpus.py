from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.tools.retrieval import Passage, RetrieverError
from llm_envs.tools.retrieval.corpus import PassageStore, contents_of, make_passage, read_corpus

ROWS = [
    {"id": "a", "title": "Ada Lovelace", "contents": "Ada Lovelace\nShe wrote a program."},
    {"id": "b", "contents": '"Blue whale"\nThe largest animal.'},
    {"id": 3, "title": "Cat", "text": "A small animal.\nIt sleeps."},
    {"contents": "No title at all."},
    {"id": "e", "contents": "First line\nis no title without quotes"},
]
PASSAGES = [
    Passage("a", "Ada Lovelace", "She wrote a program."),
    Passage("b", "Blue whale", "The largest animal."),
    Passage("3", "Cat", "A small animal.\nIt sleeps."),
    Passage("3", "", "No title at all."),
    Passage("e", "", "First line\nis no title without quotes"),
]


def write(path, rows):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz"])
def test_forms_of_a_row(tmp_path, name):
    rows = [row for row in ROWS if row.get("id") != 3]
    assert list(read_corpus(write(tmp_path / name, rows))) == [
        PASSAGES[0],
        PASSAGES[1],
        Passage("2", "", "No title at all."),  # the number of the line, from 0
        PASSAGES[4],
    ]
    assert list(read_corpus(write(tmp_path / "one.jsonl", [ROWS[2]]))) == [PASSAGES[2]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("{", r"c\.jsonl:1: not valid JSON"),
        ("[1]", r"c\.jsonl:1: expected an object with id, title and contents, got list"),
        ('{"id": "a", "body": "x"}', r"no text in the columns contents, text; the columns are: id, body"),
        ('{"id": "a", "title": 3, "text": "x"}', "the title must be text, got 3"),
        ('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}', r"c\.jsonl:2: the id 'a' comes twice"),
        ("\n\n", "is empty"),
    ],
)
def test_a_bad_corpus_is_named(tmp_path, lines, message):
    path = tmp_path / "c.jsonl"
    path.write_text(lines)
    with pytest.raises(RetrieverError, match=message):
        list(read_corpus(path))


def test_files_that_are_no_corpus(tmp_path):
    with pytest.raises(RetrieverError, match=r"there is no corpus file .*nothing\.jsonl"):
        list(read_corpus(tmp_path / "nothing.jsonl"))
    (tmp_path / "c.csv").write_text("id,text\n")
    with pytest.raises(RetrieverError, match=r"a corpus is a \.jsonl or \.jsonl\.gz file"):
        list(read_corpus(tmp_path / "c.csv"))
    (tmp_path / "latin.jsonl").write_bytes('{"id": "a", "text": "é"}'.encode("latin-1"))
    with pytest.raises(RetrieverError, match="not UTF-8"):
        list(read_corpus(tmp_path / "latin.jsonl"))


ONE_LINE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=30).map(
    lambda text: " ".join(text.split())
)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(title=ONE_LINE, text=ANY_TEXT)
def test_a_passage_survives_the_wire_format(title, text):
    passage = Passage("x", title, text)
    assert make_passage("x", None, contents_of(passage)) == passage


@given(st.lists(st.tuples(ONE_LINE, ANY_TEXT), min_size=1, max_size=5))
def test_a_store_gives_back_what_was_written(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("store")
    passages = [Passage(str(i), title, text) for i, (title, text) in enumerate(rows)]
    assert list(PassageStore.write(folder, passages)) == passages
    store = PassageStore(folder)
    assert [store.get(i) for i in range(len(store))] == passages
    assert store.get(0, 2.5).score == 2.5


def test_real_corpus(shared_data):
    passages = list(read_corpus(shared_data / "search" / "wiki" / "corpus.jsonl"))
    assert len(passages) == 6119
    assert passages[0].title == "Teutberga"
    assert passages[0].text.startswith("Teutberga( died 11 November 875)")
