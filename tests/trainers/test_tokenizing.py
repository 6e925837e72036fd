"""Small tokenizers: bytes, words, and the words and signs of given texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.tokenizing import UnknownTextError, build_tokenizer, byte_tokenizer, encode_known, pieces, word_tokenizer

TEXT = "You are at r3c2, the goal is at r2c1.\n  0 1\n0 . #\n1 A .\nGo: [r2c2, r2c1] (or not)"
TOKENIZER = build_tokenizer([TEXT])


def test_byte_tokenizer_encodes_any_text() -> None:
    tokenizer = byte_tokenizer()
    for text in ("plain", "naïve — 日本語 🙂", "tab\tand\nnew line  two spaces ", ""):
        ids = tokenizer(text)["input_ids"]
        assert len(ids) == len(text.encode())
        assert tokenizer.decode(ids) == text
    assert tokenizer("<|im_end|>")["input_ids"] == [tokenizer.eos_token_id] == [1]


def test_word_tokenizer_has_one_token_a_word() -> None:
    tokenizer = word_tokenizer(["go", "left", "go"])
    assert tokenizer("left go nowhere")["input_ids"] == [7, 6, tokenizer.unk_token_id]
    assert tokenizer.decode([7, 6]) == "left go"
    assert len(tokenizer) == 8
    with pytest.raises(ValueError, match="'two words'"):
        word_tokenizer(["two words"])


def test_words_and_signs_are_single_tokens() -> None:
    assert pieces("[r2c2, r2c1]") == ["[", "r2c2", ", ", "r2c1", "]"]
    ids = TOKENIZER("[r2c1, r2c2]")["input_ids"]
    assert TOKENIZER.convert_ids_to_tokens(ids) == ["[", "r2c1", ", ", "r2c2", "]"]
    # The cell is the same token wherever it stands, and the space between words takes none.
    assert len(TOKENIZER("You are at r2c1")["input_ids"]) == 4
    assert TOKENIZER("at r2c1")["input_ids"][1] == ids[1]


@pytest.mark.parametrize("text", [TEXT, "r2c1  r2c1", " at\n\n at ", "[[,,]]", ".. . .A", ", ,at,at , at", ""])
def test_texts_come_back_unchanged(text: str) -> None:
    ids = encode_known(TOKENIZER, text)
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == text


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=12))
def test_whatever_tokens_a_model_strings_together_make_a_text_with_tokens(ids: list[int]) -> None:
    text = TOKENIZER.decode(ids, skip_special_tokens=True)
    again = encode_known(TOKENIZER, text)
    assert TOKENIZER.decode(again, skip_special_tokens=True) == text


@settings(max_examples=100, deadline=None)
@given(st.text("ab1_ .,[\n\t'", min_size=1, max_size=30))
def test_a_tokenizer_says_the_text_that_it_was_built_from(text: str) -> None:
    tokenizer = build_tokenizer([text])
    assert tokenizer.decode(encode_known(tokenizer, text)) == text


def test_a_text_without_tokens_is_an_error_that_names_it() -> None:
    assert TOKENIZER.unk_token_id in TOKENIZER("at r9c9")["input_ids"]
    with pytest.raises(UnknownTextError, match=r"no token for 'r9c9' in 'at r9c9, the'"):
        encode_known(TOKENIZER, "at r9c9, the")
    assert encode_known(byte_tokenizer(), "any text 🙂")


def test_what_a_vocabulary_cannot_be_taken_from() -> None:
    with pytest.raises(ValueError, match="no text"):
        build_tokenizer([])
    with pytest.raises(ValueError, match="needs the character"):
        build_tokenizer(["a \u2581 b"])
