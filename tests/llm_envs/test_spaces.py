from __future__ import annotations

import json

import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.spaces import FreeText, TextObs


@given(st.text())
def test_text_obs_is_an_ordinary_string(text):
    observation = TextObs(text)
    assert observation == text
    assert hash(observation) == hash(text)
    assert type(str(observation)) is str
    assert json.loads(json.dumps(observation)) == text
    assert observation.dtype == np.dtype(str)


@given(st.text(max_size=30), st.integers(0, 10), st.integers(0, 30))
def test_contains_is_the_length_bound(text, low, extra):
    space = FreeText(low + extra, min_length=low)
    assert space.contains(text) == (low <= len(text) <= low + extra)
    assert space.contains(space.sample())


def test_samples_are_seeded_and_come_from_the_examples():
    spaces = [FreeText(10, examples=("a", "b", "c"), seed=5) for _ in range(2)]
    draws = [[space.sample() for _ in range(50)] for space in spaces]
    assert draws[0] == draws[1]
    assert set(draws[0]) == {"a", "b", "c"}


def test_it_is_a_text_space_with_a_short_repr():
    space = FreeText(7, examples=("a",))
    assert isinstance(space, gymnasium.spaces.Text)
    assert repr(space) == "FreeText(0, 7, examples=1)"
    assert space == FreeText(7, examples=("a",))
    assert space != FreeText(8, examples=("a",))
    assert not space.is_np_flattenable


@pytest.mark.parametrize("bounds", [(3, 4), (3, -1)])
def test_bad_bounds(bounds):
    with pytest.raises(gymnasium.error.InvalidBound, match=r"0 <= min_length <= max_length"):
        FreeText(bounds[0], min_length=bounds[1])


def test_example_outside_the_bounds_is_named():
    with pytest.raises(gymnasium.error.InvalidBound, match="'too long'"):
        FreeText(3, examples=("too long",))


def test_masks_are_refused():
    with pytest.raises(gymnasium.error.Error, match="no character set"):
        FreeText(3).sample(mask=(1, None))
