"""What every two-player game keeps: one bracketed move, a retry, a forfeit, sums of 0, nothing private given away."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter

import pytest
from gymnasium import error
from hypothesis import given, settings
from hypothesis import strategies as st

import llm_envs
from llm_envs.games.base import bracketed, check_integer, listed
from llm_envs.parsing import InvalidAction
from llm_envs.tasks import Task

GAMES = ("tictactoe", "connect-four", "kuhn-poker", "negotiation")
PLAYED = int(os.environ.get("LLM_ENVS_TEST_GAMES", "10000"))
"""Random games of each kind."""

OTHER = {"player_0": "player_1", "player_1": "player_0"}


def bare(name, **arguments):
    return llm_envs.make(name, order_enforcing=False, **arguments)


# ---- reading a move -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("[4]", "[4]"),
        ("I take the centre: [ 4 ].", "[4]"),
        ("[4] is best, so [4]", "[4]"),
        ("[Check]", "[check]"),
        ("[offer:  2 Wood ->\n1 iron]", "[offer: 2 wood -> 1 iron]"),
        ("]4[ [4]", None),
        ("[[4]]", None),
        ("[4", None),
        ("4]", None),
        ("[4] or [5]", None),
        ("[4] [", None),
        ("[]", None),
        ("[ ]", None),
        ("4", None),
        ("", None),
        ("[4][]", None),
    ],
)
def test_one_move_in_brackets(text, move):
    if move is None:
        with pytest.raises(InvalidAction, match=r"[Bb]racket"):
            bracketed(text)
    else:
        assert bracketed(text) == move


@given(st.text(alphabet="[]4 5\n\ud800é", max_size=12))
def test_a_move_is_read_only_where_one_stands(text):
    try:
        move = bracketed(text)
    except InvalidAction:
        return
    assert move[0] == "["
    assert move[-1] == "]"
    inside = text.split("[")[1].split("]")[0]
    assert " ".join(inside.split()) == move[1:-1]
    assert {part.split("]")[0].strip() for part in text.split("[")[1:]} == {inside.strip()} or len(inside.split()) > 1


def test_long_lists_are_cut():
    moves = [f"[{i}]" for i in range(30)]
    assert listed(moves[:2]) == "[0] [1]"
    assert listed(moves).endswith("[19] … (30 in all)")


@pytest.mark.parametrize("value", [-1, 5, True, 1.0, "1"])
def test_bad_integers_are_refused(value):
    with pytest.raises(error.Error, match=r"`opening_moves` must be an integer from 0 to 4, actual value"):
        check_integer("opening_moves", value, 0, 4)
    with pytest.raises(error.Error, match="opening_moves"):
        llm_envs.make("tictactoe", opening_moves=value)


# ---- retries, forfeits, ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("seat", [0, 1])
def test_one_retry_then_forfeit(name, seat):
    env = bare(name)
    env.reset(seed=1)
    if seat:
        env.step(env.legal_actions("player_0")[0])
    agent, other = f"player_{seat}", f"player_{1 - seat}"
    assert env.agent_selection == agent
    env.step("I do not know")
    assert env.agent_selection == agent
    assert env.rewards == {"player_0": 0.0, "player_1": 0.0}
    assert "could not be used" in env.observe(agent)
    assert "could not be used" not in env.observe(other)
    env.step("[nonsense]")
    assert env.terminations == {"player_0": True, "player_1": True}
    assert env.rewards == {agent: -1.0, other: 1.0}
    assert not env.success  # a gift is no success
    assert not env.succeeded
    for each, outcome in ((agent, "loss"), (other, "win")):
        assert env.infos[each]["outcome"] == outcome
        assert env.infos[each]["forfeit"] == agent
        assert env.infos[each]["success"] is False
        assert env.infos[each]["reward_parts"]["team"] == env.rewards[each]
        assert f"{agent}: forfeits" in env.observe(each)
        assert env.legal_actions(each) == []


@pytest.mark.parametrize("name", GAMES)
def test_a_valid_retry_goes_on_and_restores_the_retry(name):
    env = bare(name, max_retries=1)
    env.reset(seed=2)
    seen = Counter()
    while env.round_agents:
        agent = env.agent_selection
        env.step("[no] [yes]")
        assert "2 different moves" in env.infos[agent]["invalid_action"]
        assert env.agent_selection == agent
        env.step(f"I play this: {env.legal_actions(agent)[-1]}")
        assert "invalid_action" not in env.infos[agent]
        seen[agent] += 1
    assert min(seen.values()) >= 1
    assert "forfeit" not in env.infos["player_0"]


@pytest.mark.parametrize("name", GAMES)
def test_without_retries_the_first_bad_text_forfeits(name):
    env = bare(name, max_retries=0)
    env.reset(seed=0)
    env.step("")
    assert env.infos["player_1"]["forfeit"] == "player_0"


def play_at_random(env, seed, rng):
    """Legal, illegal, ambiguous and empty texts, with retries; checks every step. Returns how the game ended."""
    env.reset(seed=seed)
    total = dict.fromkeys(OTHER, 0.0)
    bad = 0
    while env.round_agents:
        agent = env.agent_selection
        legal = env.legal_actions(agent)
        assert legal
        assert env.legal_actions(OTHER[agent]) == []
        draw = rng.random()
        if draw < 0.9:
            text = rng.choice(legal)
        elif draw < 0.93:
            text = f"thinking … {rng.choice(legal)}"
        else:
            text = rng.choice(["[99]", "", "[a] [b]", "[", "[call] [bet]", "no", "[offer: 99 gold -> 1 wood]"])
        env.step(text)
        refused = "invalid_action" in env.infos[agent]
        assert refused == (draw >= 0.93)
        bad = bad + 1 if refused else 0
        assert sum(env.rewards.values()) == 0.0
        for each, value in env.rewards.items():
            total[each] += value
        if bad == 2:
            assert not env.round_agents
    infos = env.infos
    assert total["player_0"] == -total["player_1"]
    assert all(env.terminations.values())
    assert not any(env.truncations.values())
    outcomes = tuple(infos[agent]["outcome"] for agent in OTHER)
    assert outcomes in (("win", "loss"), ("loss", "win"), ("draw", "draw"))
    sign = {"win": 1, "draw": 0, "loss": -1}
    for agent, outcome in zip(OTHER, outcomes, strict=True):
        assert (total[agent] > 0) - (total[agent] < 0) == sign[outcome]
        assert infos[agent]["success"] == (outcome == "win" and bad < 2) == (agent in env.succeeded)
        assert ("forfeit" in infos[agent]) == (bad == 2)
    return ("forfeit" if bad == 2 else "play", *outcomes)


@pytest.mark.parametrize("name", GAMES)
def test_random_games_are_zero_sum(name):
    env, rng = bare(name), random.Random(name)
    ends = Counter(play_at_random(env, seed, rng) for seed in range(PLAYED))
    for first, second in (("win", "loss"), ("loss", "win")):
        for how in ("play", "forfeit"):
            assert ends[how, first, second] > PLAYED / 500, ends
    if name != "connect-four":  # where one random game in 400 is a draw
        assert (ends["play", "draw", "draw"] > 0) == (name != "kuhn-poker")
    assert ends["forfeit", "draw", "draw"] == 0


@pytest.mark.parametrize("name", GAMES)
def test_oracles_play_legal_moves_and_never_lose_to_silence(name):
    env = bare(name)
    for seed in range(20):
        env.reset(seed=seed)
        while env.round_agents:
            agent = env.agent_selection
            move = env.oracle(agent)
            assert env.oracle(agent) == move
            env.step(move)
            assert "invalid_action" not in env.infos[agent]
        assert "forfeit" not in env.infos["player_0"]
        assert env.oracle("player_0") == ""


@pytest.mark.parametrize("name", GAMES)
def test_the_dead_steps_carry_the_result_to_both(name):
    env = llm_envs.make(name)
    rng = random.Random(3)
    for seed in range(30):
        env.reset(seed=seed)
        earned = dict.fromkeys(OTHER, 0.0)
        for agent in env.agent_iter():
            _, reward, termination, truncation, _ = env.last()
            earned[agent] += reward
            over = termination or truncation
            env.step(None if over else rng.choice(env.unwrapped.legal_actions(agent)))
        assert earned["player_0"] == -earned["player_1"]


# ---- what is shown --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GAMES)
def test_observations_hold_rules_moves_and_whose_turn_it_is_and_not_what_was_said(name):
    env = bare(name)
    env.reset(seed=4)
    moves = []
    rng = random.Random(0)
    while env.round_agents:
        agent = env.agent_selection
        mine, theirs = env.observe(agent), env.observe(OTHER[agent])
        shared = env.rules + "".join(f"\n{who}: {move}" for who, move in moves)
        for text, who in ((mine, agent), (theirs, OTHER[agent])):
            assert text.startswith(shared + "\n\n")
            assert f"You are {who}" in text
            assert "secret thought" not in text
        assert "square brackets" in mine
        assert "square brackets" not in theirs
        assert f"It is the turn of {agent}." in theirs
        if name != "negotiation":
            assert f"Legal moves: {' '.join(env.legal_actions(agent))}\n" in mine
        moves.append((agent, rng.choice(env.legal_actions(agent))))
        env.step(f"secret thought {moves[-1][1]}")
    for agent in OTHER:
        won = {"win": "you won", "draw": "a draw", "loss": "you lost"}[env.infos[agent]["outcome"]]
        assert env.observe(agent).endswith(f"The game is over: {won}.")


def kuhn_env(cards):
    env = bare("kuhn-poker", tasks=[Task("mine/0", "A hand.", "", {"cards": cards})])
    env.reset(seed=0)
    return env


@pytest.mark.parametrize("moves", [(), ("[check]",), ("[bet]",), ("[check]", "[bet]")])
def test_the_other_card_is_not_to_be_seen(moves):
    """Whatever the other holds, a player sees the same, until a showdown tells."""
    for seat, own in itertools.product((0, 1), range(3)):
        seen = set()
        for other in {0, 1, 2} - {own}:
            env = kuhn_env((own, other) if seat == 0 else (other, own))
            agent, shown = f"player_{seat}", []
            for text in ("nonsense", *moves, "[nonsense]"):
                env.step(text)
                shown.append((str(env.observe(agent)), str(env.infos[agent]), tuple(env.legal_actions(agent))))
            seen.add(tuple(shown))
        assert len(seen) == 1
        assert all(f"Your card is {'JQK'[own]}." in text for text, _, _ in seen.pop() if "is over" not in text)


@pytest.mark.parametrize("fold", [("[bet]", "[fold]"), ("[check]", "[bet]", "[fold]")])
def test_a_fold_shows_no_card(fold):
    for seat, own in itertools.product((0, 1), range(3)):
        seen = set()
        for other in {0, 1, 2} - {own}:
            env = kuhn_env((own, other) if seat == 0 else (other, own))
            for move in fold:
                env.step(move)
            seen.add((str(env.observe(f"player_{seat}")), str(env.infos[f"player_{seat}"])))
        assert len(seen) == 1


VALUES = st.tuples(*[st.integers(7, 52)] * 4)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 999), others=st.lists(VALUES, min_size=2, max_size=2), seat=st.sampled_from((0, 1)))
def test_the_other_values_are_not_to_be_seen(seed, others, seat):
    """Whatever a unit is worth to the other, a player sees the same until the game is over."""
    deal = bare("negotiation").tasks[seed].data
    envs = []
    for other in others:
        values = (deal["values"][0], other) if seat == 0 else (other, deal["values"][1])
        data = {"holdings": deal["holdings"], "values": values}
        envs.append(bare("negotiation", tasks=[Task("mine/0", "A negotiation.", "", data)]))
        envs[-1].reset(seed=0)
    rng, agent = random.Random(seed), f"player_{seat}"
    while envs[0].round_agents:
        mover = envs[0].agent_selection
        assert len({str(env.observe(agent)) for env in envs}) == 1
        assert len({str(env.infos[agent]) for env in envs}) == 1
        assert len({tuple(env.legal_actions(mover)) for env in envs}) == 1
        text = rng.choice([*envs[0].legal_actions(mover), "[offer: 99 gold -> 1 wood]", "[accept]"])
        for env in envs:
            env.step(text)
    assert all(not env.round_agents for env in envs)


@pytest.mark.parametrize("name", ["kuhn-poker", "negotiation"])
def test_no_private_value_stands_in_a_statement(name):
    assert len({task.question for task in bare(name).tasks[:50]}) == 1


# ---- openings, forks, rendering -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "plies"), [("tictactoe", 1), ("tictactoe", 4), ("connect-four", 7)])
def test_openings_vary_by_deal_and_are_part_of_the_history(name, plies):
    env = bare(name, opening_moves=plies)
    found = set()
    for index in range(40):
        env.reset(options={"task_index": index})
        opening = env.task.data["opening"]
        found.add(opening)
        assert len(opening) == plies
        assert env.agent_selection == f"player_{plies % 2}"
        lines = [f"player_{i % 2}: {move}" for i, move in enumerate(opening)]
        assert "\n".join(["Moves so far:", *lines]) in env.observe("player_0")
        if name == "tictactoe":
            assert not set(opening) & set(env.legal_actions(env.agent_selection))
    assert len(found) > 5
    rng = random.Random(0)
    assert Counter(play_at_random(env, seed, rng)[0] for seed in range(50))["play"] > 10


@pytest.mark.parametrize("opening", [["[9]"], ["[0]", "[0]"], ["[0]", "[3]", "[1]", "[4]", "[2]"]])
def test_an_opening_must_be_playable(opening):
    env = bare("tictactoe", tasks=[Task("mine/0", "A game.", "", {"opening": opening})])
    with pytest.raises(error.Error, match="opening of the task mine/0 must be legal moves"):
        env.reset(seed=0)


@pytest.mark.parametrize("name", GAMES)
def test_forks_go_their_own_way(name):
    rng = random.Random(1)
    for seed in range(10):
        env = bare(name)
        env.reset(seed=seed)
        while env.round_agents:
            agent = env.agent_selection
            before = str(env.observe(agent)), env.legal_actions(agent)
            for move in env.legal_actions(agent)[:9]:
                fork = env.fork()
                fork.step(move)
                assert f"{agent}: {move}" in fork.observe(agent)
            assert (str(env.observe(agent)), env.legal_actions(agent)) == before
            env.step(rng.choice(env.legal_actions(agent)))


def test_rendering_shows_the_table():
    env = bare("kuhn-poker", render_mode="ansi")
    env.reset(options={"task_index": 0})
    cards = ["JQK"[card] for card in env.task.data["cards"]]
    assert f"Cards: player_0: {cards[0]}, player_1: {cards[1]}" in env.render()
    env.step("I bluff. [bet]")
    env.step("[fold]")
    assert "I bluff. [bet]" in env.render()
    assert env.render().endswith("Won by player_0.")
    assert env.state() == env.render()
