"""Records: exact round trips and what counts as team, local and penalty."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.rollout.records import Episode, Turn, episode_id

TEXT = st.text(st.characters(), max_size=20).filter(lambda text: not re.search("[\ud800-\udbff][\udc00-\udfff]", text))
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
COUNT = st.integers(0, 2**40)
PARTS = st.dictionaries(TEXT, NUMBER, max_size=3)
IDS = st.none() | st.lists(COUNT, max_size=4).map(tuple)
TURN = st.builds(
    Turn,
    episode=TEXT,
    task=TEXT,
    agent=TEXT,
    policy=TEXT,
    index=COUNT,
    agent_turn=COUNT,
    observation=TEXT,
    action=TEXT,
    prompt_ids=IDS,
    completion_ids=IDS,
    logprobs=st.none() | st.lists(NUMBER, max_size=4).map(tuple),
    finish_reason=st.sampled_from(["stop", "length"]),
    weight_version=COUNT,
    reward_parts=PARTS,
    invalid=st.none() | TEXT,
    masked=st.booleans(),
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    latency_s=NUMBER,
    info=st.dictionaries(TEXT, TEXT | NUMBER | st.none() | st.lists(TEXT, max_size=2), max_size=2),
)
EPISODE = st.builds(
    Episode,
    id=TEXT,
    env=TEXT,
    task=TEXT,
    task_index=COUNT,
    task_hash=TEXT,
    sample=COUNT,
    seed=COUNT,
    turns=st.lists(TURN, max_size=2),
    returns=PARTS,
    reward_parts=st.dictionaries(TEXT, PARTS, max_size=2),
    success=st.booleans(),
    terminated=st.booleans(),
    truncated=st.booleans(),
    error=st.none() | TEXT,
    wall_s=NUMBER,
)


@given(EPISODE)
def test_json_round_trip_is_exact(episode: Episode) -> None:
    line = episode.to_json()
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert Episode.from_json(line) == episode


@given(EPISODE)
def test_without_tokens_and_timings_the_rest_is_kept(episode: Episode) -> None:
    back = Episode.from_json(episode.to_json(tokens=False, timings=False))
    for turn in episode.turns:
        turn.prompt_ids = turn.completion_ids = turn.logprobs = None
        turn.latency_s = 0.0
    episode.wall_s = 0.0
    assert back == episode


def make_episode(**changes: object) -> Episode:
    values: dict[str, object] = {
        "id": "t#0", "env": "e-v0", "task": "t", "task_index": 0, "task_hash": "h", "sample": 0, "seed": 1, **changes,
    }  # fmt: skip
    return Episode(**values)  # type: ignore[arg-type]


def test_strange_text_survives() -> None:
    turn = Turn("t#0", "t", "a_0", "p", 0, 0, "nul \x00 lone \ud800 end \udfff", "line\u2028sep \x85 \U0001f600\r\n")
    back = Episode.from_json(make_episode(turns=[turn]).to_json())
    assert back.turns[0].observation == "nul \x00 lone \ud800 end \udfff"
    assert back.turns[0].action == "line\u2028sep \x85 \U0001f600\r\n"


def test_returns_by_kind_of_part() -> None:
    parts = {
        "solver_0": {"team": 1.0, "format": 0.2, "invalid": -0.1},
        "verifier_0": {"team": 1.0, "verdict": 0.5},
    }
    episode = make_episode(reward_parts=parts)
    assert episode.team_return == 1.0
    assert episode.local_return("solver_0") == pytest.approx(0.2)
    assert episode.penalty_return("solver_0") == pytest.approx(-0.1)
    assert episode.local_return("verifier_0") == pytest.approx(0.5)
    assert episode.penalty_return("verifier_0") == 0.0
    with pytest.raises(KeyError, match="no agent 'critic_0'"):
        episode.local_return("critic_0")


def test_team_return_of_unequal_shares_is_their_mean() -> None:
    assert make_episode(reward_parts={"a_0": {"team": 1.0}, "b_0": {"team": -1.0}}).team_return == 0.0
    assert make_episode().team_return == 0.0


def test_turn_rewards_by_kind() -> None:
    turn = Turn("t#0", "t", "a_0", "p", 0, 0, "o", "a", reward_parts={"team": 1.0, "x": 0.25, "invalid": -0.5})
    assert (turn.reward, turn.team_reward, turn.local_reward, turn.penalty) == (0.75, 1.0, 0.25, -0.5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_cannot_hold_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="'t#0'"):
        make_episode(returns={"a_0": value}).to_json()


def test_what_is_no_episode_is_refused() -> None:
    with pytest.raises(ValueError, match="not list"):
        Episode.from_json("[]")
    with pytest.raises(ValueError, match="task_hash"):
        Episode.from_json('{"id": "t#0"}')
    record = json.loads(make_episode().to_json())
    with pytest.raises(ValueError, match="colour"):
        Episode.from_dict({**record, "colour": "red"})


def test_episode_id() -> None:
    assert episode_id("gsm8k/test/7", 2) == "gsm8k/test/7#2"
