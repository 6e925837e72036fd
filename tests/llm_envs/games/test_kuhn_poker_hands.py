"""Kuhn poker of several hands: who begins, what is paid, what stays hidden; and that one hand is what it was."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import re
from collections import Counter

import pytest
from gymnasium import error
from pettingzoo.test import api_test, render_test, seed_test

import llm_envs
from llm_envs.games import kuhn_poker as rules
from llm_envs.games import opponents_positions
from llm_envs.games.opponents import MCTS
from llm_envs.tasks import Task, TaskError
from llm_envs.testing import check_env

PLAYERS = ("player_0", "player_1")
PLAYED = int(os.environ.get("LLM_ENVS_TEST_GAMES", "10000"))
FINISHED = [
    ("[check]", "[check]"),
    ("[bet]", "[fold]"),
    ("[bet]", "[call]"),
    ("[check]", "[bet]", "[fold]"),
    ("[check]", "[bet]", "[call]"),
]


def game(*dealt, **arguments):
    """Hands with these cards, one pair a hand: of player_0 and of player_1."""
    mine = Task("mine/0", "Hands.", "", {"hands": dealt})
    env = llm_envs.make("kuhn-poker", hands=len(dealt), tasks=[mine], order_enforcing=False, **arguments)
    env.reset(seed=0)
    return env


def play(env, *moves):
    """Play the moves and return who made them."""
    movers = []
    for move in moves:
        movers.append(int(env.agent_selection[-1]))
        env.step(move)
        assert "invalid_action" not in env.infos[f"player_{movers[-1]}"]
    return movers


# ---- results --------------------------------------------------------------------------------------------------------


def test_three_hands_by_hand():
    env = game((2, 1), (0, 2), (1, 0))
    assert play(env, "[bet]", "[call]") == [0, 1]  # K against Q, called: +2
    assert play(env, "[check]", "[bet]", "[fold]") == [1, 0, 1]  # player_1 begins, and folds its K: +1
    assert env.rewards == {"player_0": 0.0, "player_1": 0.0}
    assert play(env, "[check]") == [0]
    assert env.round_agents == ("player_1",)
    assert play(env, "[check]") == [1]  # Q against J, checked: +1
    assert env.rewards == {"player_0": 4 / 6, "player_1": -4 / 6}
    assert env.infos["player_0"]["outcome"] == "win"
    assert env.infos["player_0"]["reward_parts"] == {"team": 4 / 6}
    assert env.succeeded == {"player_0"}
    assert env.observe("player_1").endswith(
        "Moves so far:"
        "\nplayer_0: [bet]\nplayer_1: [call]"
        "\nHand 1: showdown, player_0: K, player_1: Q. player_0 wins 2. Chips: player_0 +2, player_1 -2."
        "\nplayer_1: [check]\nplayer_0: [bet]\nplayer_1: [fold]"
        "\nHand 2: fold. player_0 wins 1. Chips: player_0 +3, player_1 -3."
        "\nplayer_0: [check]\nplayer_1: [check]"
        "\nHand 3: showdown, player_0: Q, player_1: J. player_0 wins 1. Chips: player_0 +4, player_1 -4."
        "\n\nThe game is over: you lost."
    )


def test_a_draw_is_nobodys_success():
    env = game((2, 1), (2, 1))
    play(env, "[check]", "[check]")  # +1
    assert play(env, "[bet]", "[fold]") == [1, 0]  # player_0 folds its K: -1
    assert env.rewards == {"player_0": 0.0, "player_1": 0.0}
    assert {info["outcome"] for info in env.infos.values()} == {"draw"}
    assert env.succeeded == frozenset()
    assert "Chips: player_0 0, player_1 0." in env.observe("player_0")


def test_the_best_and_the_worst_are_one_and_minus_one():
    for first, sign in (((2, 0), 1.0), ((0, 2), -1.0)):
        env = game(*[first] * 4)
        play(env, *["[bet]", "[call]"] * 4)
        assert env.rewards == {"player_0": sign, "player_1": -sign}


@pytest.mark.parametrize("seat", [0, 1])
def test_a_forfeit_costs_the_whole_game_however_far_one_is_ahead(seat):
    ahead = (2, 0) if seat == 0 else (0, 2)
    env = game(ahead, ahead, ahead)
    play(env, "[bet]", "[call]", "[bet]", "[call]", *["[check]"] * seat)
    agent, other = PLAYERS[seat], PLAYERS[1 - seat]
    assert env.agent_selection == agent
    env.step("hm")
    env.step("hm")
    assert env.rewards == {agent: -1.0, other: 1.0}
    assert env.infos[other]["forfeit"] == agent
    assert env.succeeded == frozenset()


def chips_of(transcript, dealt):
    """What player_0 wins, worked out from who said what: its own account of pots and cards."""
    total, left = 0, list(transcript)
    for number, cards in enumerate(dealt):
        paid, folded, checks = [1, 1], None, 0
        beginner = number % 2
        assert left[0][0] == f"player_{beginner}"
        while folded is None and checks < 2:
            agent, move = left.pop(0)
            seat = int(agent[-1])
            if move == "[check]":
                checks += 1
            elif move == "[fold]":
                folded = seat
            else:
                paid[seat] += 1
                if move == "[call]":
                    break
        winner = 1 - folded if folded is not None else int(cards[1] > cards[0])
        total += paid[1] if winner == 0 else -paid[0]
    assert not left
    return total


def test_random_games_are_zero_sum_and_pay_what_was_won():
    rng = random.Random(0)
    envs = {hands: llm_envs.make("kuhn-poker", hands=hands, order_enforcing=False) for hands in (2, 3, 5)}
    ends = Counter()
    for number in range(PLAYED):
        env = envs[hands := rng.choice((2, 3, 5))]
        env.reset(seed=number)
        bad = rng.random() < 0.1
        while env.round_agents:
            legal = env.legal_actions(env.agent_selection)
            env.step("hm" if bad and rng.random() < 0.3 else rng.choice(legal))
            assert sum(env.rewards.values()) == 0.0
        infos = env.infos
        if "forfeit" in infos["player_0"]:
            ends["forfeit"] += 1
            assert env.rewards[infos["player_0"]["forfeit"]] == -1.0
            continue
        said = [(agent, text) for agent, text in env.transcript if text != "hm"]
        won = chips_of(said, env.task.data["hands"])
        assert env.rewards == {"player_0": won / (2 * hands), "player_1": -won / (2 * hands)}
        outcome = "draw" if won == 0 else "win" if won > 0 else "loss"
        assert infos["player_0"]["outcome"] == outcome
        assert env.succeeded == {"draw": set(), "win": {"player_0"}, "loss": {"player_1"}}[outcome]
        ends[outcome] += 1
    assert min(ends[end] for end in ("win", "loss", "draw", "forfeit")) > PLAYED / 100, ends


# ---- what is hidden -------------------------------------------------------------------------------------------------


def shown(env, agent):
    return str(env.observe(agent)), str(env.infos.get(agent)), tuple(env.legal_actions(agent))


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("third", [(), ("[check]",), ("[bet]",), ("[check]", "[bet]"), ("[bet]", "[fold]")])
def test_the_others_cards_are_not_to_be_seen_in_any_hand(seat, third):
    """Two hands end by folds, the third goes on: whatever the other holds and held, a player sees the same."""
    agent = PLAYERS[seat]
    folds = (("[bet]", "[fold]"), ("[check]", "[bet]", "[fold]"))
    for own in itertools.product(range(3), repeat=3):
        seen = set()
        for others in itertools.product(*({0, 1, 2} - {card} for card in own)):
            pairs = zip(own, others, strict=True) if seat == 0 else zip(others, own, strict=True)
            env = game(*pairs)
            views = [shown(env, agent)]
            for move in (*folds[0], *folds[1], *third):
                env.step(move)
                views.append(shown(env, agent))
            seen.add(tuple(views))
        assert len(seen) == 1
    assert "showdown" not in env.observe(agent)


@pytest.mark.parametrize("seat", [0, 1])
def test_a_showdown_tells_the_cards_of_its_own_hand_alone(seat):
    agent = PLAYERS[seat]
    seen = {}
    for others in itertools.product((0, 1), repeat=3):
        own = (2, 2, 2)
        env = game(*(zip(own, others, strict=True) if seat == 0 else zip(others, own, strict=True)))
        play(env, "[bet]", "[fold]", "[check]", "[check]", "[check]")
        seen.setdefault(others[1], set()).add(shown(env, agent))
    assert [len(views) for views in seen.values()] == [1, 1]
    assert seen[0] != seen[1]


def test_ones_own_cards_are_remembered():
    env = game((2, 1), (0, 2), (1, 0))
    assert "Your card is K. This is hand 1 of 3. Legal moves: [check] [bet]\n" in env.observe("player_0")
    assert "Your card is Q. This is hand 1 of 3. It is the turn of player_0." in env.observe("player_1")
    play(env, "[bet]", "[fold]")
    assert "Your card is J. This is hand 2 of 3. Your cards before: K. It is the turn of player_1" in env.observe(
        "player_0"
    )
    play(env, "[bet]", "[fold]")
    assert "Your card is J. This is hand 3 of 3. Your cards before: Q, K. It is" in env.observe("player_1")


def test_the_context_only_grows():
    env = llm_envs.make("kuhn-poker", hands=4, order_enforcing=False)
    rng = random.Random(0)
    for seed in range(30):
        env.reset(seed=seed)
        before = dict.fromkeys(PLAYERS, "")
        while env.round_agents:
            for agent in PLAYERS:
                context = env._context(agent)
                assert context.startswith(before[agent])
                before[agent] = context
            env.step(rng.choice(env.legal_actions(env.agent_selection)))


# ---- the oracle and the opponents -----------------------------------------------------------------------------------


def test_the_oracle_plays_the_equilibrium_in_every_hand():
    env = llm_envs.make("kuhn-poker", hands=3, order_enforcing=False)
    counts = Counter()
    together = Counter()
    for seed in range(3_000):
        env.reset(seed=seed)
        bluffs = []
        number, line = 0, ""
        while env.round_agents:
            agent = env.agent_selection
            card = env.task.data["hands"][number][int(agent[-1])]
            move = env.oracle(agent)
            aggressive = rules.is_aggressive(move[1:-1])
            counts[number, card, line, aggressive] += 1
            if (card, line) == (0, ""):
                bluffs.append((number, aggressive))
            env.step(move)
            line += rules.LETTERS[move[1:-1]]
            if not rules.legal_moves(line):
                number, line = number + 1, ""
        assert number == 3
        if len(bluffs) == 3:
            together[tuple(bluff for _, bluff in bluffs)] += 1
    for number in range(3):
        for (card, line), chance in rules.equilibrium().items():
            yes, no = counts[number, card, line, True], counts[number, card, line, False]
            spread = 4 * float((yes + no) * chance * (1 - chance)) ** 0.5
            assert abs(yes - (yes + no) * chance) <= spread
        assert counts[number, 0, "", True] > 100
    assert len(together) >= 6  # hands are decided one by one, not all of them alike


def test_every_hand_is_the_game_that_openspiel_knows():
    pytest.importorskip("pyspiel")
    dealt = ((2, 1), (0, 2), (1, 0))
    for lines in itertools.product(FINISHED, repeat=2):
        env = game(*dealt)
        for number, line in enumerate((*lines, ("[check]", "[bet]"))):
            for so_far, move in enumerate(line):
                position = opponents_positions.read(env, env.agent_selection)
                first, second = dealt[number] if number % 2 == 0 else dealt[number][::-1]
                assert position.state.history()[:2] == [first, second]
                assert len(position.state.history()) == 2 + so_far
                assert position.state.current_player() == position.player == so_far % 2
                assert {position.text(each) for each in position.state.legal_actions()} == set(
                    env.legal_actions(env.agent_selection)
                )
                env.step(move)


def test_mcts_calls_with_the_king_and_folds_the_jack_in_a_later_hand():
    pytest.importorskip("pyspiel")
    for card, move in ((2, "[call]"), (0, "[fold]")):
        env = game((0, 1), (card, 1))
        play(env, "[bet]", "[call]", "[bet]")
        assert env.agent_selection == "player_0"
        assert MCTS(sims=200).choose(env, "player_0", seed=1) == move


# ---- arguments and deals --------------------------------------------------------------------------------------------


def test_it_keeps_the_contract():
    check_env("kuhn-poker-v0", hands=3)


@pytest.mark.filterwarnings("ignore:Observation")
@pytest.mark.filterwarnings("ignore:Action space")
def test_it_passes_the_tests_of_pettingzoo():
    api_test(llm_envs.make("kuhn-poker", hands=3), num_cycles=50)
    seed_test(lambda: llm_envs.make("kuhn-poker", hands=3), num_cycles=50)
    render_test(lambda render_mode: llm_envs.make("kuhn-poker", hands=3, render_mode=render_mode))


@pytest.mark.parametrize("hands", [0, 26, -1, 1.0, True, "3"])
def test_bad_numbers_of_hands_are_refused(hands):
    with pytest.raises(error.Error, match="`hands` must be an integer from 1 to 25, actual value"):
        llm_envs.make("kuhn-poker", hands=hands)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"cards": (2, 0)},
        {"hands": 1},
        {"hands": []},
        {"hands": [[0, 1], [1, 1]]},
        {"hands": [[0, 1], [1, 3]]},
        {"hands": [[0, 1], 2]},
        {"hands": [[0, 1], {"a": 1}]},
        {"hands": [[0, 1]]},
        {"hands": [[0, 1]] * 3},
    ],
)
def test_a_deal_that_cannot_be_played_is_refused(data):
    env = llm_envs.make("kuhn-poker", hands=2, tasks=[Task("mine/0", "Hands.", "", data)])
    with pytest.raises(TaskError, match=r"mine/0.*hands"):
        env.reset(seed=0)


def test_the_first_hands_of_a_deal_are_the_same_however_many_follow():
    one, two, five = (llm_envs.make("kuhn-poker", hands=hands).unwrapped.tasks for hands in (1, 2, 5))
    for i in range(200):
        assert one[i].data["cards"] == two[i].data["hands"][0]
        assert two[i].data["hands"] == five[i].data["hands"][:2]
    counts = Counter(pair for i in range(1000) for pair in five[i].data["hands"])
    assert set(counts) == set(rules.DEALS)
    assert all(abs(count - 5000 / 6) < 4 * (5000 * 5 / 36) ** 0.5 for count in counts.values())
    assert len({tasks.fingerprint for tasks in (one, two, five)}) == 3


@pytest.mark.parametrize(("opening", "mover"), [(["[bet]", "[fold]"], 1), (["[check]", "[check]", "[bet]"], 0)])
def test_an_opening_may_reach_into_the_next_hand(opening, mover):
    data = {"hands": [[2, 1], [0, 2]], "opening": opening}
    env = llm_envs.make("kuhn-poker", hands=2, tasks=[Task("mine/0", "", "", data)], order_enforcing=False)
    env.reset(seed=0)
    assert env.agent_selection == f"player_{mover}"
    played = game((2, 1), (0, 2))
    play(played, *opening)
    assert env.observe("player_0") == played.observe("player_0")


def test_rendering_shows_every_hand():
    env = game((2, 1), (0, 2), render_mode="ansi")
    play(env, "[bet]", "[fold]")
    assert env.render().endswith(
        "Cards of hand 1: player_0: K, player_1: Q\nCards of hand 2: player_0: J, player_1: K\n"
        "Chips: player_0 +1, player_1 -1."
    )


# ---- one hand -------------------------------------------------------------------------------------------------------


def test_one_hand_is_what_it_was():
    """Everything that is shown and paid in every hand of every deal, and the deals: results stay comparable."""
    env = llm_envs.make("kuhn-poker", order_enforcing=False)
    digest = hashlib.sha256(env.tasks.fingerprint.encode())
    for index in range(60):
        for line in FINISHED:
            env.reset(seed=index, options={"task_index": index})
            digest.update(env.task.hash.encode())
            for move in line:
                digest.update(str(env.state()).encode())
                digest.update(env.oracle(env.agent_selection).encode())
                for agent in PLAYERS:
                    digest.update(str(env.observe(agent)).encode())
                env.step(move)
            for agent in PLAYERS:
                digest.update(f"{env.observe(agent)}{env.rewards[agent]}{env.infos[agent]}".encode())
    assert digest.hexdigest()[:16] == "c250e591a53c18a4"
    assert not re.search(r"hand \d", env.observe("player_0"))
