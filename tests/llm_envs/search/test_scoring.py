"""Exact match and F1, worked out by hand, and their laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.search.scoring import exact_match, f1, normalize


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The Eiffel Tower", "eiffel tower"),
        ("  a   cat, an owl & the dog!  ", "cat owl dog"),
        ("U.S.A.", "usa"),
        ("Jean-Luc O'Neill's", "jeanluc oneills"),
        ("theatre another", "theatre another"),  # articles are words
        ("1,945", "1945"),
        ("Mladá Boleslav", "mladá boleslav"),
        ("the the", ""),
        ("", ""),
    ],
)
def test_normalize(text, normalized):
    assert normalize(text) == normalized


@pytest.mark.parametrize(
    ("answer", "golds", "match"),
    [
        ("Paris", ["Paris"], True),
        ("the PARIS.", ["Paris"], True),
        ("1 April 1940", ["April 1, 1940", "1 April 1940"], True),
        ("1", ["1945"], False),  # no substring credit, either way
        ("1945", ["1"], False),
        ("Paris, France", ["Paris"], False),
        ("Paris", ["Paris, France"], False),
        ("Paris or London", ["Paris"], False),
        ("Paris London", ["Paris", "London"], False),
        ("not Paris", ["Paris"], False),
        ("parís", ["Paris"], False),
        ("", ["Paris"], False),
        ("the", ["Paris"], False),
        ("a", ["The The"], False),  # nothing is left of either: compared as they stand
        ("the  THE", ["The The"], True),
        ("", ["!!!"], False),
        ("!!!", ["!!!"], True),
        ("x", [], False),
    ],
)
def test_exact_match(answer, golds, match):
    assert exact_match(answer, golds) is match


@pytest.mark.parametrize(
    ("answer", "golds", "score"),
    [
        ("Paris", ["Paris"], 1.0),
        ("in Paris", ["Paris"], 2 / 3),  # precision 1/2, recall 1
        ("Oceanside New York", ["Oceanside, Long Island, New York"], 3 / 4),  # precision 1, recall 3/5
        ("tower tower", ["Eiffel tower"], 1 / 2),  # one of two, one of two: repetition does not count twice
        ("Oceanside", ["Oceanside, New York", "Oceanside"], 1.0),  # the best alias
        ("London", ["Paris"], 0.0),
        ("", ["Paris"], 0.0),
        ("the", ["the"], 1.0),
        ("the", ["an"], 0.0),
        ("x", [], 0.0),
    ],
)
def test_f1(answer, golds, score):
    assert f1(answer, golds) == pytest.approx(score)


TEXT = st.text(max_size=30)


@given(TEXT, st.lists(TEXT, max_size=4))
def test_laws(answer, golds):
    value = f1(answer, golds)
    assert 0 <= value <= 1
    if exact_match(answer, golds):
        assert value == 1
    assert exact_match(answer, [*golds, answer])
    assert f1(answer, [*golds, "another"]) >= value
    assert normalize(normalize(answer)) == normalize(answer) or "\u0130" in answer


@given(TEXT, TEXT)
def test_f1_is_symmetric(one, other):
    assert f1(one, [other]) == pytest.approx(f1(other, [one]))


def test_one_text_is_no_list_of_answers():
    with pytest.raises(TypeError, match="sequence of answers"):
        exact_match("P", "Paris")
    with pytest.raises(TypeError, match="sequence of answers"):
        f1("P", "Paris")
