"""Kuhn poker: every hand against OpenSpiel, the equilibria, and the oracle that plays one of them."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

import llm_envs
from llm_envs.games import kuhn_poker as rules
from llm_envs.tasks import Task

THIRD = Fraction(1, 3)
ALPHAS = [Fraction(0), Fraction(1, 10), THIRD]


def hands():
    """Every line that ends a hand, with the moves that lead to it."""

    def walk(line, moves):
        legal = rules.legal_moves(line)
        if not legal:
            yield line, moves
        for move in legal:
            yield from walk(line + rules.LETTERS[move], [*moves, move])

    return list(walk("", []))


def test_hands_by_hand():
    assert {line for line, _ in hands()} == {"kk", "kbf", "kbc", "bf", "bc"}
    king_queen = {line: rules.chips(line, (2, 1)) for line, _ in hands()}
    assert king_queen == {"kk": 1, "kbf": -1, "kbc": 2, "bf": 1, "bc": 2}
    jack_queen = {line: rules.chips(line, (0, 1)) for line, _ in hands()}
    assert jack_queen == {"kk": -1, "kbf": -1, "kbc": -2, "bf": 1, "bc": -2}
    assert all(rules.chips(line, (2, 1)) is None for line in rules.LINES)
    assert max(abs(rules.chips(line, cards)) for line, _ in hands() for cards in rules.DEALS) == rules.MOST_CHIPS


@pytest.mark.parametrize("cards", rules.DEALS)
def test_every_hand_agrees_with_openspiel(cards):
    """All 30 hands, by the rules and through the environment: whose turn, what is legal, who is paid what."""
    pyspiel = pytest.importorskip("pyspiel")
    game = pyspiel.load_game("kuhn_poker")
    env = llm_envs.make("kuhn-poker", tasks=[Task("mine/0", "A hand.", "", {"cards": cards})], order_enforcing=False)
    for line, moves in hands():
        state = game.new_initial_state()
        for card in cards:
            assert card in state.legal_actions()
            state.apply_action(card)
        env.reset(seed=0)
        so_far = ""
        for move in moves:
            assert not state.is_terminal()
            # OpenSpiel calls a check or a fold 0 (pass), a bet or a call 1 (bet).
            assert state.legal_actions() == [0, 1]
            legal = rules.legal_moves(so_far)
            assert sorted(legal, key=rules.is_aggressive) == sorted(legal, key=("check", "fold", "bet", "call").index)
            assert env.agent_selection == f"player_{state.current_player()}" == f"player_{len(so_far) % 2}"
            assert env.legal_actions(env.agent_selection) == [f"[{each}]" for each in legal]
            state.apply_action(int(rules.is_aggressive(move)))
            env.step(f"[{move}]")
            so_far += rules.LETTERS[move]
        assert state.is_terminal()
        assert so_far == line
        assert state.returns() == [rules.chips(line, cards), -rules.chips(line, cards)]
        assert [env.rewards[agent] for agent in env.possible_agents] == [won / 2 for won in state.returns()]
        winner = "player_0" if state.returns()[0] > 0 else "player_1"
        assert env.succeeded == {winner}


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_value_is_minus_one_eighteenth_and_nobody_can_do_better(alpha):
    strategy = rules.equilibrium(alpha)
    assert rules.expected_chips(strategy, strategy) == Fraction(-1, 18)
    assert rules.exploitability(strategy, strategy) == 0


def test_what_is_no_equilibrium_can_be_exploited():
    timid = dict.fromkeys(rules.equilibrium(), Fraction(0))
    bold = dict.fromkeys(rules.equilibrium(), Fraction(1))
    # The timid player always checks and folds: a bet wins the ante from it, always. As the first player it can be
    # bet out of every pot: 1 + 1 chips, halved. The bold one bets and calls everything.
    assert rules.exploitability(timid, timid) == 1
    assert rules.expected_chips(bold, timid) == 1
    assert rules.expected_chips(bold, bold) == 0
    for alpha in (Fraction(-1, 10), Fraction(1, 2)):
        with pytest.raises(ValueError, match="alpha must be from 0 to 1/3"):
            rules.equilibrium(alpha)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_exploitability_agrees_with_openspiel(alpha):
    """Its best responses, on our equilibrium and on a bent one."""
    pyspiel = pytest.importorskip("pyspiel")
    from open_spiel.python import policy
    from open_spiel.python.algorithms import exploitability

    game = pyspiel.load_game("kuhn_poker")
    for bend in (Fraction(0), Fraction(1, 5)):
        ours = {at: min(chance + bend, Fraction(1)) for at, chance in rules.equilibrium(alpha).items()}
        theirs = policy.TabularPolicy(game)
        for state in theirs.states:
            player = state.current_player()
            card = int(state.information_state_string(player)[0])
            pb = state.information_state_string(player)[1:]
            line = {"": "", "p": "k", "b": "b", "pb": "kb"}[pb]
            bet = float(ours[card, line])
            theirs.action_probability_array[theirs.state_index(state)] = [1 - bet, bet]
        expected = exploitability.exploitability(game, theirs)
        assert float(rules.exploitability(ours, ours)) == pytest.approx(expected, abs=1e-12)
        assert (expected > 0.01) == bool(bend)


def test_there_are_64_pure_strategies_a_seat():
    for seat in (0, 1):
        strategies = [tuple(sorted(strategy.items())) for strategy in rules.pure_strategies(seat)]
        assert len(set(strategies)) == 64
        assert all(len(line) % 2 == seat for strategy in strategies for (_, line), _ in strategy)


def test_the_oracle_plays_the_equilibrium_over_seeds():
    """Frequencies of the oracle's moves at every information set, within four standard deviations."""
    env = llm_envs.make("kuhn-poker", order_enforcing=False)
    counts: Counter[tuple[int, str, bool]] = Counter()
    for seed in range(12_000):
        env.reset(seed=seed)
        while env.round_agents:
            line = env._line
            cards = env.task.data["cards"]
            move = env.oracle(env.agent_selection)
            counts[cards[len(line) % 2], line, rules.is_aggressive(move[1:-1])] += 1
            env.step(move)
    for (card, line), chance in rules.equilibrium().items():
        yes, no = counts[card, line, True], counts[card, line, False]
        assert yes + no == 0 or abs(yes - (yes + no) * chance) <= 4 * float((yes + no) * chance * (1 - chance)) ** 0.5
    assert sum(counts[1, line, True] for line in ("b", "kb")) > 100


def test_the_oracle_repeats_itself_in_an_equal_episode_and_in_a_fork():
    env = llm_envs.make("kuhn-poker", order_enforcing=False)
    found = set()
    for seed in range(60):
        env.reset(seed=seed, options={"task_index": 3})
        moves = {env.oracle("player_0"), env.fork().oracle("player_0")}
        env.reset(seed=seed, options={"task_index": 3})
        assert moves == {env.oracle("player_0")}
        found |= moves
    jack = env.task.data["cards"][0] == 0
    assert (len(found) == 2) == jack  # only the jack's bet is left to chance


def test_the_mean_of_the_oracle_against_itself_is_the_value():
    env = llm_envs.make("kuhn-poker", order_enforcing=False)
    total, games = 0.0, 12_000
    for seed in range(games):
        env.reset(seed=seed)
        while env.round_agents:
            env.step(env.oracle(env.agent_selection))
        total += env.rewards["player_0"]
    assert abs(total / games - (-1 / 36)) < 4 * 0.72 / games**0.5  # a hand's standard deviation is about 0.72
