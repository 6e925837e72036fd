from __future__ import annotations

import hashlib
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llm_envs.tools.retrieval import Passage, RetrieverError, build_index, open_index
from llm_envs.tools.retrieval import dense as dense_module


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 12), st.integers(1, 7))
def test_blocks_find_what_one_sort_finds(seed, rows, k, block):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-2, 3, size=(rows, 3)).astype(np.float32)  # small whole numbers: many ties
    queries = rng.integers(-2, 3, size=(2, 3)).astype(np.float32)
    k = min(k, rows)
    before, dense_module._ROWS = dense_module._ROWS, block
    try:
        scores, places = dense_module._nearest(matrix, queries, k)
    finally:
        dense_module._ROWS = before
    exact = queries @ matrix.T
    order = np.argsort(-exact, axis=1, kind="stable")[:, :k]
    assert np.array_equal(places, order)
    assert np.array_equal(scores, np.take_along_axis(exact, order, 1))


class Hashed:
    """Stands in for a sentence-transformers model: a text is the sum of fixed vectors of its words."""

    def __init__(self, name):
        if name != "hashed":
            raise OSError(f"no model {name}")

    def encode(self, texts, batch_size, normalize_embeddings, show_progress_bar):
        assert normalize_embeddings
        assert not show_progress_bar
        vectors = np.stack([sum(map(self._word, text.lower().split()), np.zeros(64)) for text in texts])
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)

    def _word(self, word):
        seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big")
        return np.random.default_rng(seed).normal(size=64)


@pytest.fixture
def library(monkeypatch):
    module = types.ModuleType("sentence_transformers")
    module.SentenceTransformer = Hashed
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


def test_build_and_search(library, tmp_path):
    passages = [Passage(f"p{i}", "", f"alpha{i} beta{i}") for i in range(150)]
    told = []
    folder = build_index(
        passages, tmp_path / "index", kind="dense", model="hashed", query_prefix="query: ",
        progress=lambda stage, done: told.append(done),
    )  # fmt: skip
    assert told == [64, 128]
    retriever = open_index(folder)
    assert len(retriever) == 150
    first, second = retriever.search(["alpha77 beta77", "alpha3"], 2)
    assert first[0].id == "p77"
    assert 0.6 < first[0].score < 1  # the prefix is part of the query
    assert second[0].id == "p3"
    assert second[0].score > second[1].score
    assert len(retriever.search(["alpha"], 1000)[0]) == 150


def test_errors(library, tmp_path):
    with pytest.raises(
        RetrieverError, match=r"the model 'other' of the dense retriever cannot be loaded: no model other"
    ):
        build_index([Passage("a", "", "x")], tmp_path / "index", kind="dense", model="other")
    folder = build_index([Passage("a", "", "x")], tmp_path / "index", kind="dense", model="hashed")
    with pytest.raises(RetrieverError, match="'numpy' or 'faiss', got 'torch'"):
        dense_module.DenseRetriever(folder, backend="torch")


def test_a_real_model(tmp_path):
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "whale", "cat", "largest", "animal", "sea", "small"]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    fast.save_pretrained(tmp_path / "model")
    transformers.BertModel(config).save_pretrained(tmp_path / "model")
    passages = [Passage("p1", "", "whale largest animal sea"), Passage("p2", "", "cat small")]
    folder = build_index(passages, tmp_path / "index", kind="dense", model=str(tmp_path / "model"))
    (result,) = open_index(folder).search(["whale largest animal sea"], 2)
    assert result[0].id == "p1"
    assert result[0].score == pytest.approx(1.0, abs=1e-5)
