"""Negotiation: trades by hand, laws of trading, the environment's turns, and the sensible trader."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llm_envs
from llm_envs.games import negotiation as rules
from llm_envs.games.negotiation import Deal, Trade
from llm_envs.tasks import Task, TaskError

HOLDINGS = ((5, 4, 3, 2), (1, 2, 3, 4))
VALUES = ((10, 20, 30, 50), (12, 20, 25, 40))

amounts = st.tuples(*[st.integers(0, 20)] * 4)
values = st.tuples(*[st.integers(1, 60)] * 4)


@st.composite
def trades(draw):
    """A trade with something on either side and nothing on both."""
    sides = draw(st.lists(st.sampled_from("gwn"), min_size=4, max_size=4).filter(lambda s: "g" in s and "w" in s))
    units = draw(st.tuples(*[st.integers(1, 20)] * 4))
    gives, wants = (tuple(n * (side == s) for n, side in zip(units, sides, strict=True)) for s in "gw")
    return Trade(gives, wants)


def negotiation(holdings=HOLDINGS, values=VALUES, **arguments):
    task = Task("mine/0", "A negotiation.", "", {"holdings": holdings, "values": values})
    env = llm_envs.make("negotiation", tasks=[task], order_enforcing=False, **arguments)
    env.reset(seed=0)
    return env


# ---- trades ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "trade"),
    [
        ("2 wood -> 1 iron", Trade((2, 0, 0, 0), (0, 0, 1, 0))),
        ("1 gold, 10 wood->3 stone", Trade((10, 0, 0, 1), (0, 3, 0, 0))),
        (" 1 iron  ->  1 wood , 1 stone ", Trade((0, 0, 1, 0), (1, 1, 0, 0))),
    ],
)
def test_trades_are_read(text, trade):
    assert rules.parse_trade(text) == trade


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2 wood", "one arrow"),
        ("2 wood -> 1 iron -> 1 gold", "one arrow"),
        ("2 wood -> ", "no number"),
        (" -> 1 iron", "no number"),
        ("wood -> 1 iron", "no number"),
        ("0 wood -> 1 iron", "no number"),
        ("02 wood -> 1 iron", "no number"),
        ("-1 wood -> 1 iron", "no number"),
        ("1.5 wood -> 1 iron", "no number"),
        ("1000 wood -> 1 iron", "no number"),
        ("٢ wood -> 1 iron", "no number"),
        ("two wood -> 1 iron", "no number"),
        ("2 wood 1 gold -> 1 iron", "no number"),
        ("2 woods -> 1 iron", "There is no woods"),
        ("2 wood -> 1 sheep", "There is no sheep"),
        ("1 wood, 1 wood -> 1 iron", "wood stands twice"),
        ("1 wood -> 1 iron, 2 wood", "give and want wood"),
    ],
)
def test_what_is_no_trade_is_refused_with_the_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        rules.parse_trade(text)
    env = negotiation()
    env.step(f"[offer: {text}]")
    assert reason in env.infos["player_0"]["invalid_action"]
    assert env.agent_selection == "player_0"


def test_gains_by_hand():
    trade = Trade((2, 0, 0, 0), (0, 0, 0, 1))  # 2 wood for 1 gold
    assert rules.gain(trade, VALUES[0]) == 50 - 20
    assert rules.gain(rules.reverse(trade), VALUES[1]) == 24 - 40
    assert rules.exchange(trade, *HOLDINGS) == ((3, 4, 3, 3), (3, 2, 3, 3))
    assert rules.edge(trade, VALUES[0]) == 30 + (40 - 20)
    assert rules.missing(trade, *HOLDINGS) is None
    assert rules.missing(Trade((6, 0, 0, 0), (0, 0, 0, 1)), *HOLDINGS) == "You hold 5 wood: 6 are not there."
    assert rules.missing(Trade((1, 0, 0, 0), (0, 0, 0, 5)), *HOLDINGS) == (
        "The other player holds 4 gold: 5 are not there."
    )


@given(trades())
def test_text_and_trade_are_the_same_thing(trade):
    assert rules.parse_trade(rules.trade_text(trade)) == trade


@given(trades(), amounts, amounts, values)
def test_laws_of_trading(trade, own, other, worth):
    if rules.missing(trade, own, other) is not None:
        assert any(n > has for n, has in zip((*trade.gives, *trade.wants), (*own, *other), strict=True))
        return
    mine, theirs = rules.exchange(trade, own, other)
    assert min(*mine, *theirs) >= 0
    assert [a + b for a, b in zip(mine, theirs, strict=True)] == [a + b for a, b in zip(own, other, strict=True)]
    assert rules.worth(mine, worth) - rules.worth(own, worth) == rules.gain(trade, worth)
    assert rules.gain(rules.reverse(trade), worth) == -rules.gain(trade, worth)
    assert rules.exchange(rules.reverse(trade), mine, theirs) == (own, other)


@given(st.randoms(use_true_random=False))
def test_deals_are_playable_and_values_lie_within_30_percent(rng):
    deal = rules.check_deal(rules.draw_deal(rng))
    assert all(4 <= n <= 12 for side in deal.holdings for n in side)
    for side in deal.values:
        assert all(0.7 * usual - 1 < n <= 1.3 * usual for n, usual in zip(side, rules.USUAL_VALUES, strict=True))


@pytest.mark.parametrize(
    ("holdings", "worth"),
    [
        (HOLDINGS[:1], VALUES),
        (((1, 2, 3), (1, 2, 3)), VALUES),
        (((1, 2, 3, -1), HOLDINGS[1]), VALUES),
        (HOLDINGS, ((0, 1, 1, 1), VALUES[1])),
        (HOLDINGS, ((1.5, 1, 1, 1), VALUES[1])),
    ],
)
def test_deals_that_cannot_be_played_are_refused(holdings, worth):
    with pytest.raises(ValueError, match=r"must be two times 4 whole numbers"):
        rules.check_deal(Deal(holdings, worth))
    with pytest.raises(TaskError, match=r"mine/0 cannot be played: `(holdings|values)` must be"):
        negotiation(holdings, worth)


@given(amounts, amounts, values, st.integers(0, 3))
def test_the_best_offer_is_the_best_of_all_simple_ones(own, other, worth, skip):
    """By trying them all; then without the best ones."""
    tried: set[Trade] = set()
    for _ in range(skip + 1):
        good = [
            trade
            for trade in rules.simple_trades(own, other, 20)
            if rules.gain(trade, rules.USUAL_VALUES) < 0 and rules.edge(trade, worth) > 0 and trade not in tried
        ]
        best = max(good, key=lambda trade: rules.edge(trade, worth), default=None)
        assert rules.best_offer(own, other, worth, frozenset(tried)) == best
        if best is not None:
            tried.add(best)


# ---- the environment ------------------------------------------------------------------------------------------------


def test_a_negotiation_by_hand():
    env = negotiation(max_turns=4)
    assert "What a unit is worth to you: wood 10, stone 20, iron 30, gold 50." in env.observe("player_0")
    assert "Turn 1 of 4" in env.observe("player_0")
    env.step("I like gold. [offer: 2 wood -> 1 gold]")
    assert "player_0 offers you 2 wood for 1 gold." in env.observe("player_1")
    assert "offers you" not in env.observe("player_0")
    env.step("[accept]")
    assert "What your trades have gained you: 30." in env.observe("player_0")
    assert "What your trades have gained you: -16." in env.observe("player_1")
    assert "You hold 3 wood, 4 stone, 3 iron, 3 gold. player_1 holds 3 wood, 2 stone, 3 iron, 3 gold." in env.observe(
        "player_0"
    )
    env.step("[pass]")
    env.step("[pass]")
    assert env.terminations == {"player_0": True, "player_1": True}
    assert env.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert [env.infos[agent]["gain"] for agent in env.possible_agents] == [30, -16]
    assert env.succeeded == {"player_0"}


def test_both_may_gain_and_the_one_who_gains_more_wins():
    env = negotiation(max_turns=2)
    env.step("[offer: 3 iron -> 2 gold]")  # player_0: 100 - 90; player_1: 75 - 80
    env.step("[accept]")
    assert [env.infos[agent]["gain"] for agent in env.possible_agents] == [10, -5]
    env = negotiation(max_turns=2)
    env.step("[offer: 4 wood -> 2 stone]")  # player_0: 40 - 40; player_1: 48 - 40
    env.step("[accept]")
    assert [env.infos[agent]["outcome"] for agent in env.possible_agents] == ["loss", "win"]


def test_no_trade_is_a_draw():
    env = negotiation(max_turns=3)
    env.step("[offer: 2 wood -> 1 gold]")
    env.step("[deny]")
    env.step("[pass]")
    assert env.rewards == {"player_0": 0.0, "player_1": 0.0}
    assert env.infos["player_0"]["outcome"] == "draw"
    assert not env.success


def test_answers_need_an_offer_and_an_offer_an_answer():
    env = negotiation()
    for text, reason in (("[accept]", "no offer to answer"), ("[offer: 1 wood -> 1 iron]", None)):
        env.step(text)
        assert reason is None or reason in env.infos["player_0"]["invalid_action"]
    env.step("[pass]")
    assert "an offer to answer" in env.infos["player_1"]["invalid_action"]
    env.step("[offer: 1 iron -> 3 wood]")  # a counter-offer denies the first one
    env.step("[accept]")
    assert "You hold 2 wood, 4 stone, 4 iron, 2 gold." in env.observe("player_0")
    env.step("[deny]")
    assert "no offer to answer" in env.infos["player_1"]["invalid_action"]


def test_what_is_not_there_cannot_be_offered_or_asked_for():
    for text, reason in (
        ("6 wood -> 1 gold", "You hold 5 wood"),
        ("1 wood -> 5 gold", "The other player holds 4 gold"),
    ):
        env = negotiation()
        env.step(f"[offer: {text}]")
        assert reason in env.infos["player_0"]["invalid_action"]


def test_the_history_shows_the_canonical_offer():
    env = negotiation()
    env.step("[Offer: 1  gold,2 wood->1 iron]")
    assert env.observe("player_1").split("\n\n")[1] == "Moves so far:\nplayer_0: [offer: 2 wood, 1 gold -> 1 iron]"


def test_listed_actions_are_legal_and_small():
    env, rng = llm_envs.make("negotiation", order_enforcing=False), random.Random(0)
    for seed in range(5):
        env.reset(seed=seed)
        while env.round_agents:
            agent = env.agent_selection
            legal = env.legal_actions(agent)
            assert len(set(legal)) == len(legal) <= 50
            assert legal[0] == "[pass]" or legal[:2] == ["[accept]", "[deny]"]
            for move in legal:
                fork = env.fork()
                fork.step(move)
                assert "invalid_action" not in fork.infos[agent]
            env.step(rng.choice(legal))


@pytest.mark.parametrize("turns", [1, 101, "10"])
def test_bad_lengths_are_refused(turns):
    with pytest.raises(llm_envs.registration.error.Error, match="`max_turns` must be an integer from 2 to 100"):
        llm_envs.make("negotiation", max_turns=turns)


def test_the_trader_wins_against_random_and_against_eager_opponents():
    env, rng = llm_envs.make("negotiation", order_enforcing=False), random.Random(0)
    for kind in ("random", "eager"):
        results: Counter[str] = Counter()
        for seed in range(60):
            env.reset(seed=seed)
            me = f"player_{seed % 2}"
            while env.round_agents:
                agent = env.agent_selection
                legal = env.legal_actions(agent)
                env.step(env.oracle(agent) if agent == me else legal[0] if kind == "eager" else rng.choice(legal))
            results[env.infos[me]["outcome"]] += 1
        assert results["win"] > results["loss"] + 15, (kind, results)


def test_two_traders_come_to_terms():
    env = llm_envs.make("negotiation", order_enforcing=False)
    results: Counter[str] = Counter()
    for seed in range(60):
        env.reset(seed=seed)
        while env.round_agents:
            env.step(env.oracle(env.agent_selection))
        results[env.infos["player_0"]["outcome"]] += 1
    assert min(results["win"], results["loss"]) > 10
    assert results["draw"] < 20
