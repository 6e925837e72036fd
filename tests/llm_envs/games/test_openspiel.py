"""The adapter of OpenSpiel: agreement with the library, hidden information, forfeits, rounds, chance, copies."""

from __future__ import annotations

import collections
import pickle
import random
import re
import subprocess
import sys

import pytest
from gymnasium import error
from pettingzoo.test import parallel_api_test, parallel_seed_test

pyspiel = pytest.importorskip("pyspiel")

import llm_envs  # noqa: E402
from llm_envs import testing  # noqa: E402
from llm_envs.games import openspiel_catalog as catalog  # noqa: E402
from llm_envs.games import openspiel_search as search  # noqa: E402
from llm_envs.games.openspiel_match import Match, Rules  # noqa: E402
from llm_envs.registration import NotParallelizable, UnknownArgument  # noqa: E402

VARIED = [
    ("tic_tac_toe", {}),
    ("connect_four", {"rows": 5, "columns": 5}),
    ("hex", {"board_size": 4}),
    ("chess", {}),
    ("backgammon", {}),
    ("kuhn_poker", {"players": 3}),
    ("leduc_poker", {}),
    ("liars_dice", {}),
    ("phantom_ttt", {}),
    ("goofspiel", {"num_cards": 5}),
    ("goofspiel", {"num_cards": 5, "imp_info": True}),
    ("oshi_zumo", {"coins": 10}),
    ("matrix_pd", {}),
    ("hanabi", {}),
    ("tiny_hanabi", {}),
    ("hearts", {}),
    ("crazy_eights", {"players": 3}),
    ("coop_box_pushing", {"horizon": 8}),
    ("pathfinding", {}),
    ("negotiation", {}),
    ("stones_and_gems", {}),
    ("misere", {"game": "tic_tac_toe"}),
]

SAMPLED = ("negotiation", "stones_and_gems")
"""Games that sample chance from a generator of their own: another state would meet other chances."""


def make(name, **parameters):
    return llm_envs.make(f"openspiel/{name}", order_enforcing=False, **parameters)


def started(name, deal=0, **parameters):
    env = make(name, **parameters)
    env.reset(seed=0, options={"task_index": deal})
    return env


def play_randomly(env, seed=0, limit=100_000, chosen=None):
    """Random legal texts, by number and by name in turn; yields before every move, and adds its number to `chosen`."""
    rng = random.Random(seed)
    for turn in range(limit):
        if not env.round_agents:
            return
        agent = env.agent_selection
        yield agent
        move = rng.choice(env.legal_actions(agent))
        if chosen is not None:
            chosen.append(int(move[1:-1]))
        if turn % 2:
            names = env.match.names(env.possible_agents.index(agent))
            name = names[int(move[1:-1])]
            if list(names.values()).count(name) == 1:
                move = f"I play [{name}]."
        env.step(move)
        assert "invalid_action" not in env.infos[agent], (move, env.infos[agent])


# ---- what OpenSpiel says ---------------------------------------------------------------------------------------------


class Follower:
    """A state of its own that follows another one's history, and notes the moves of the players."""

    def __init__(self, game):
        self.state = game.new_initial_state()
        self.done, self.played = 0, []

    def follow(self, history):
        state = self.state
        while self.done < len(history):
            width = state.num_players() if state.is_simultaneous_node() else 1
            moves = history[self.done : self.done + width]
            if state.is_chance_node():
                assert dict(state.chance_outcomes())[moves[0]] > 0
            else:
                self.played.extend(moves)
            if state.is_simultaneous_node():
                state.apply_actions(moves)
            else:
                state.apply_action(moves[0])
            self.done += width

    def movers(self):
        simultaneous = self.state.is_simultaneous_node()
        return range(self.state.num_players()) if simultaneous else [self.state.current_player()]


@pytest.mark.parametrize(("name", "parameters"), [pair for pair in VARIED if pair[0] not in SAMPLED])
def test_legality_and_turn_are_openspiels(name, parameters):
    """At every decision, both agree on who moves and on what is legal, and every move is the one that was asked for."""
    for seed in range(3):
        env = started(name, deal=seed, **parameters)
        other, chosen = Follower(pyspiel.load_game(str(env.match.game))), []
        for agent in play_randomly(env, seed, chosen=chosen):
            if env.round_agents == env._round:
                other.follow(env.match.state.history())
                assert env._round == tuple(env.possible_agents[p] for p in other.movers())
            player = env.possible_agents.index(agent)
            assert env.legal_actions(agent) == [f"[{move}]" for move in other.state.legal_actions(player)]
        other.follow(env.match.state.history())
        assert other.state.is_terminal()
        assert other.state.returns() == env.match.state.returns()
        assert other.played == chosen


@pytest.mark.parametrize(("name", "parameters"), VARIED)
def test_returns_and_outcome_are_openspiels(name, parameters):
    for seed in range(3):
        env = started(name, deal=seed, **parameters)
        paid = dict.fromkeys(env.possible_agents, 0.0)
        for _ in play_randomly(env, seed):
            for agent, reward in env.rewards.items():
                paid[agent] += reward
        returns = env.match.state.returns()
        for player, agent in enumerate(env.possible_agents):
            assert env.infos[agent]["return"] == pytest.approx(returns[player])
            assert paid[agent] + env.rewards[agent] == pytest.approx(returns[player])
            assert (env.terminations[agent], env.truncations[agent]) == (True, False)
            if env.match.rules.zero_sum:
                outcome = "win" if returns[player] > 1e-9 else "loss" if returns[player] < -1e-9 else "draw"
                assert env.infos[agent]["outcome"] == outcome


def test_chance_follows_the_distribution_and_the_deal():
    deals = collections.Counter(tuple(started("kuhn_poker", deal=i).match.state.history()) for i in range(600))
    assert len(deals) == 6
    assert all(70 < count < 130 for count in deals.values()), deals  # 100 expected, standard deviation 9
    assert started("backgammon", 7).match.state.history() == started("backgammon", 7).match.state.history()


def test_success_is_the_highest_return_or_a_perfect_score():
    env = started("matrix_pd")
    env.step("[1]")
    env.step("[0]")
    assert (env.succeeded, env.infos["player_0"]["return"], env.infos["player_1"]["return"]) == ({"player_0"}, 10, 0)
    env.reset(seed=1)
    env.step("[Defect]")
    env.step("[Defect]")
    assert not env.success
    env = started("matrix_coordination")
    env.step("[Left]")
    env.step("[Left]")
    assert env.succeeded == {"player_0", "player_1"}
    env.reset(seed=1)
    env.step("[0]")
    env.step("[1]")
    assert not env.success


# ---- hidden information ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker", "universal_poker", "hearts", "gin_rummy", "oh_hell"])
def test_an_observation_does_not_depend_on_what_is_hidden(name):
    """Every hidden card is dealt anew as far as the player could tell: it must not notice."""
    rng, changed = random.Random(0), 0
    for deal in range(6):
        env = started(name, deal)
        for agent in play_randomly(env, deal, limit=40):
            seen, fork = env.observe(agent), env.fork()
            fork.match.state = env.match.state.resample_from_infostate(env.possible_agents.index(agent), rng.random)
            changed += str(fork.match.state) != str(env.match.state)
            assert fork.observe(agent) == seen
    assert changed > 4


@pytest.mark.parametrize(
    ("name", "parameters", "deals"),
    [
        ("kuhn_poker", {}, 60),
        ("leduc_poker", {}, 80),
        ("phantom_ttt", {}, 60),
        ("goofspiel", {"num_cards": 3, "imp_info": True}, 60),
        ("first_sealed_auction", {}, 60),
        ("tiny_hanabi", {}, 30),
        ("turn_based_simultaneous_game", {"game": "matrix_rps"}, 20),
        ("normal_form_extensive_game", {"game": "kuhn_poker"}, 2),
    ],
)
def test_one_information_state_has_one_observation(name, parameters, deals):
    seen, again = {}, 0
    for deal in range(deals):
        env = started(name, deal, **parameters)
        for _ in play_randomly(env, deal):
            if env.round_agents != env._round:
                continue
            for player, agent in enumerate(env.possible_agents):
                key = (player, agent in env._round, env.match.state.information_state_string(player))
                text = str(env.observe(agent)).partition("Answer with")[0]
                again += key in seen
                assert seen.setdefault(key, text) == text
    assert again > 0


def test_a_parameter_that_hides_something_closes_the_history():
    assert "player_1: (P1)Bid" in history_of("goofspiel", num_cards=3)
    assert "Bid" not in history_of("goofspiel", num_cards=3, imp_info=True)
    assert "Bid" not in history_of("misere", game="goofspiel(num_cards=3,imp_info=true)")


def history_of(name, **parameters):
    env = started(name, **parameters)
    env.step(env.legal_actions("player_0")[0])
    env.step(env.legal_actions("player_1")[0])
    return env._context("player_0")


def test_what_is_open_is_told_in_order():
    env = started("tic_tac_toe")
    env.step("[4]")
    env.step("[x(0,0)]")  # not the name of a move of O
    assert "not one of your 8 legal moves" in env.infos["player_1"]["invalid_action"]
    env.step("[o(0,0)]")
    assert env._context("player_0").endswith("Moves so far:\nplayer_0: x(1,1)\nplayer_1: o(0,0)")
    assert "o..\n.x.\n..." in env.observe("player_0")
    assert "[1] x(0,1)" in env.observe("player_0")
    assert "It is not your turn." in env.observe("player_1")


def test_a_game_of_one_round_shows_its_payoffs():
    assert "5,5 0,10" in started("matrix_pd").observe("player_0")


def test_no_colours_and_no_brackets_in_names():
    assert "\x1b" not in started("twixt").observe("player_0")
    env = started("negotiation")
    names = env.match.names(env._seats[env.agent_selection]).values()
    assert any(name.startswith("Proposal: (") for name in names)
    assert not any("[" in name or "]" in name for name in names)


# ---- actions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "Pass", "[Pass] or [Bet]", "[0][1]", "[2]", "[-1]", "[0", "0]", "[]", "[[0]]", "[0.0]", "[pas]"]
)
def test_unusable_text(text):
    env = started("kuhn_poker")
    env.step(text)
    assert env.infos["player_0"]["invalid_action"]
    assert env.agent_selection == "player_0"
    assert env.infos["player_0"]["invalid_action"] in env.observe("player_0")


@pytest.mark.parametrize("text", ["[0]", "[ Pass ]", "[pass]", "I pass: [0]. Yes, [0].", "[00]"])
def test_usable_text(text):
    env = started("kuhn_poker")
    env.step(text)
    assert env.agent_selection == "player_1"


def test_a_name_that_is_a_number_stands_in_quotes():
    match = Match(Rules("oh_hell"), 3)
    while not any('"' in name for name in match.names(match.movers()[0]).values()):
        match.play([match.legal(match.movers()[0])[0]])
    env = started("oh_hell")
    env.match = match
    env._round = (f"player_{match.movers()[0]}",)
    names = match.names(match.movers()[0])
    move, name = next((move, name) for move, name in names.items() if name.startswith('"'))
    assert env._read(env._round[0], f"[{name}]") == move
    assert int(name.strip('"')) not in names or int(name.strip('"')) != move


def test_case_decides_between_names_that_differ_by_nothing_else(monkeypatch):
    env = started("kuhn_poker")
    monkeypatch.setattr(Match, "names", lambda self, player: {0: "bxc3", 1: "Bxc3", 2: "Kd1"})
    assert [env._read("player_0", f"[{name}]") for name in ("bxc3", "Bxc3", "kd1")] == [0, 1, 2]
    for text in ("[BXC3]", "[bxc3] [Bxc3]"):
        with pytest.raises(error.InvalidAction):
            env._read("player_0", text)


# ---- forfeits --------------------------------------------------------------------------------------------------------


def forfeit(name, **parameters):
    env = started(name, max_retries=0, **parameters)
    agent = env.agent_selection
    env.step("I refuse.")
    assert env.terminations[agent]
    assert not env.success
    assert env.infos[agent]["forfeit"] == agent
    return agent, {other: env.infos[other]["return"] for other in env.possible_agents}


def test_a_forfeit_pays_the_worst_utility():
    assert forfeit("tic_tac_toe") == ("player_0", {"player_0": -1, "player_1": 1})
    assert forfeit("kuhn_poker", players=3) == ("player_0", {"player_0": -2, "player_1": 1, "player_2": 1})
    agent, returns = forfeit("hearts")  # general-sum, from 0 to 36: the others keep the nothing that they have
    assert returns == dict.fromkeys(returns, 0.0)
    agent, returns = forfeit("tiny_bridge_2p")
    assert set(returns.values()) == {-40}  # cooperative: for everybody
    agent, returns = forfeit("bargaining")
    assert returns[agent] == 0


def test_a_forfeit_takes_back_what_was_earned():
    env = started("repeated_game", stage_game="matrix_pd", num_repetitions=3, max_retries=0)
    env.step("[Cooperate]")
    env.step("[Cooperate]")
    assert env.rewards == {"player_0": 5, "player_1": 5}
    env.step("[Cooperate]")
    env.step("I refuse.")
    assert env.rewards == {"player_0": 0, "player_1": -5}
    assert [env.infos[agent]["return"] for agent in env.possible_agents] == [5, 0]


def test_a_round_is_played_again_and_then_forfeited():
    env = started("goofspiel", num_cards=3)
    deal = env.match.state.history()
    env.step("[2]")
    env.step("nonsense")
    assert (env.agent_selection, env.match.state.history()) == ("player_0", deal)
    assert "Bid" not in env._context("player_1")
    env.step("[1]")
    env.step("[1]")
    assert env.match.state.history()[len(deal) : len(deal) + 2] == [1, 1]
    for text in ("nonsense", "[0]", "nonsense", "[0]"):
        env.step(text)
    assert env.infos["player_1"]["forfeit"] == "player_0"
    assert [env.infos[a]["return"] for a in env.possible_agents] == [-1, 1]
    env.reset(seed=1)
    for _ in range(4):
        env.step("nonsense")
    assert env.infos["player_1"]["forfeit"] == "player_0, player_1"
    assert [env.infos[a]["outcome"] for a in env.possible_agents] == ["draw", "draw"]
    assert not env.success


def test_turn_limit_truncates():
    env = started("go", turn_limit=3)
    assert len(list(play_randomly(env))) == 3
    assert (env.terminations["player_0"], env.truncations["player_0"], env.success) == (False, True, False)
    for bad in (0, True, 1.5):
        with pytest.raises(error.Error, match="turn_limit"):
            make("go", turn_limit=bad)


# ---- the contract ----------------------------------------------------------------------------------------------------

EXCEPT_ORACLE = [check for check in testing.CHECKS if check is not testing.check_oracle]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("tic_tac_toe", {}),
        ("kuhn_poker", {"players": 3}),
        ("goofspiel", {"num_cards": 3}),
        ("matrix_pd", {}),
        ("tiny_hanabi", {}),
        ("hanabi", {"players": 3}),
        ("coop_box_pushing", {"horizon": 4}),
        ("catch", {}),
        ("pathfinding", {"players": 1}),
        ("negotiation", {}),
        ("crazy_eights", {"players": 3, "max_turns": 10}),
        ("misere", {"game": "kuhn_poker"}),
    ],
)
def test_contract(name, parameters):
    make_env = testing.env_maker(f"openspiel/{name}", **parameters)
    for check in EXCEPT_ORACLE:
        check(make_env, 2)


def test_the_whole_contract_where_the_oracle_is_exact():
    testing.check_env("openspiel/tic_tac_toe", episodes=1)


@pytest.mark.parametrize("name", ["kuhn_poker", "goofspiel", "negotiation", "stones_and_gems", "backgammon"])
def test_copies_and_pickles_go_their_own_way(name):
    env = started(name)
    for _ in play_randomly(env, 3, limit=4 if env.rules.simultaneous else 1):
        pass
    before = (str(env.match.state), env.match.state.history())
    copies = [env.fork(), env.fork(), pickle.loads(pickle.dumps(env))]
    for copied in copies:
        for _ in play_randomly(copied, 9, limit=200):
            pass
    assert (str(env.match.state), env.match.state.history()) == before
    assert len({str(copied.match.state) for copied in copies}) == 1
    assert copies[0].match.state.history() != before[1]


SCRIPT = """
import llm_envs, random
for name in ("kuhn_poker", "negotiation", "tarok", "bridge_uncontested_bidding", "stones_and_gems", "goofspiel"):
    parameters = {"num_redeals": 1} if name.startswith("bridge") else {}
    env = llm_envs.make(f"openspiel/{name}", **parameters).unwrapped
    env.reset(seed=4)
    rng = random.Random(1)
    while env.round_agents:
        print(env.observe(env.agent_selection))
        env.step(rng.choice(env.legal_actions(env.agent_selection)))
    print(env.infos)
"""


def test_same_seed_same_game_in_every_process():
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) > 10_000


def test_deals_differ_where_the_game_samples_chance_itself():
    seen = {str(started("negotiation", deal).match.state) for deal in range(8)}
    assert len(seen) == 8


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("goofspiel", {"num_cards": 4}), ("matrix_rps", {}), ("matching_pennies_3p", {}), ("markov_soccer", {})],
)
def test_parallel_form(name, parameters):
    parallel_api_test(llm_envs.make_parallel(f"openspiel/{name}", **parameters), num_cycles=30)
    parallel_seed_test(lambda: llm_envs.make_parallel(f"openspiel/{name}", **parameters), num_cycles=20)


def test_every_node_of_a_simultaneous_game_is_a_round_of_all():
    for name in catalog.names():
        entry = catalog.entry(name)
        if not entry.simultaneous or name == "nfg_game":
            continue
        env = started(name, **entry.example)
        assert llm_envs.spec(f"openspiel/{name}").parallelizable
        for _ in play_randomly(env, limit=300):
            assert env._round == tuple(env.possible_agents)


# ---- the oracle ------------------------------------------------------------------------------------------------------


def value(state, player):
    """Value of a position for `player` by plain minimax, without any cut-off."""
    if state.is_terminal():
        return state.player_return(player)
    values = [value(state.child(move), player) for move in state.legal_actions()]
    return max(values) if state.current_player() == player else min(values)


def test_the_oracle_plays_a_best_move_where_it_solves():
    rng = random.Random(0)
    checked = 0
    for name, parameters in [("tic_tac_toe", {}), ("nim", {"pile_sizes": "1;2;3"}), ("dots_and_boxes", {})]:
        rules = Rules(name, parameters)
        for _ in range(6):
            state = rules.game.new_initial_state()
            while not state.is_terminal() and len(state.legal_actions()) > 6:
                state.apply_action(rng.choice(state.legal_actions()))
            if state.is_terminal():
                continue
            match = Match(rules, 0)
            match.state = state.clone()
            player = state.current_player()
            move = search.best_move(match, player, 0)
            assert value(state.child(move), player) == value(state, player)
            assert match.state.history() == state.history()
            checked += 1
    assert checked > 8


def test_a_tree_that_is_too_large_is_searched_not_solved(monkeypatch):
    monkeypatch.setattr(search, "MAX_NODES", 10)
    match = Match(Rules("tic_tac_toe"), 0)
    for move in (4, 1, 3):
        match.play([move])
    assert search.best_move(match, 1, 5) == 5  # the only move that does not lose at once
    assert search.best_move(match, 1, 5) == search.best_move(match, 1, 5)


def test_the_oracle_moves_legally_in_any_game():
    for name, parameters in VARIED:
        env = started(name, **parameters)
        for _ in range(2):
            if env.round_agents:
                agent = env.agent_selection
                move = env.oracle(agent)
                assert move == env.oracle(agent)
                env.step(move)
                assert "invalid_action" not in env.infos[agent]
        idle = next((a for a in env.possible_agents if a not in env._round), None)
        if idle is not None:
            assert env.oracle(idle) == ""


# ---- ids and errors --------------------------------------------------------------------------------------------------


def test_ids():
    env = llm_envs.make("openspiel/hex", board_size=3)
    assert env.unwrapped.spec.id == "openspiel/hex-v0"
    assert env.metadata["name"] == "openspiel_hex_v0"
    env.reset(seed=0)
    assert env.unwrapped.task.id.startswith("openspiel/hex/all/")
    assert llm_envs.spec("openspiel/hex-v0") == llm_envs.spec("openspiel/hex")
    one, two = (make("hex", board_size=size).tasks.fingerprint for size in (3, 4))
    assert one != two
    assert len(make("hex", task_options={"size": 5}).tasks) == 5


@pytest.mark.parametrize(
    ("env_id", "kwargs", "kind", "message"),
    [
        ("openspiel/kuhn_pokr", {}, error.NameNotFound, "Did you mean: `openspiel/kuhn_poker`"),
        ("openspiel/zzz", {}, error.NameNotFound, "no game `zzz`. It has: 2048"),
        ("openspiel/hex-v3", {}, error.VersionNotFound, "v0"),
        ("openspeil/hex", {}, error.NamespaceNotFound, "Did you mean: `openspiel`"),
        ("openspiel/hex", {"bord_size": 3}, UnknownArgument, "Did you mean: `board_size`"),
        ("openspiel/hex", {"turn_limt": 3}, UnknownArgument, "Did you mean: `turn_limit`"),
        ("openspiel/hex", {"board_size": "3"}, error.Error, "must be of type int"),
        ("openspiel/hex", {"swap": 1}, error.Error, "must be of type bool"),
        ("openspiel/hex", {"board_size": -3}, error.Error, "`board_size` of `hex` must be 1 or more"),
        ("openspiel/connect_four", {"rows": 0}, error.Error, "`rows` of `connect_four` must be 1 or more"),
        (
            "openspiel/goofspiel",
            {"num_cards": 0},
            error.Error,
            "OpenSpiel cannot start goofspiel with {'num_cards': 0}",
        ),
        ("openspiel/nim", {"pile_sizes": "0"}, error.Error, "Nobody can move in OpenSpiel's nim"),
        ("openspiel/kuhn_poker(players=3)", {}, error.Error, "make('openspiel/kuhn_poker', players=3)"),
        ("openspiel", {}, error.NameNotFound, "`openspiel/<game>`; `llm-envs list openspiel`"),
        ("openspiel/kuhn_poker", {"players": 99}, error.Error, "OpenSpiel refuses kuhn_poker"),
        ("openspiel/kuhn_poker", {"invalid_penalty": -1.0}, error.Error, "must be 0 in a zero-sum game"),
        ("openspiel/mfg_garnet", {}, error.Error, "mean-field"),
        ("openspiel/crossword", {}, error.Error, "structures"),
        ("openspiel/misere", {}, error.MissingArgument, "game='tic_tac_toe'"),
        ("openspiel/misere", {"game": "tictactoe"}, error.NameNotFound, "Did you mean: `openspiel/tic_tac_toe`"),
        ("openspiel/misere", {"game": 3}, error.Error, "must be the name of a game"),
        ("openspiel/misere", {"game": "negotiation"}, error.Error, "cannot be seeded"),
        ("openspiel/efg_game", {}, error.MissingArgument, "filename"),
        ("openspiel/tarok", {"rng_seed": 3}, error.Error, "is decided by the deal"),
        ("openspiel/hex", {"tasks": "poker"}, error.Error, "no task set 'poker'"),
    ],
)
def test_errors_name_the_value_and_the_fix(env_id, kwargs, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        llm_envs.make(env_id, **kwargs)


def test_turn_based_games_have_no_parallel_form():
    with pytest.raises(NotParallelizable, match="`openspiel/hex-v0` is turn-based"):
        llm_envs.make_parallel("openspiel/hex")


def test_without_openspiel_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(error.DependencyNotInstalled, match=r"llm-envs\[games\]"):
        llm_envs.make("openspiel/hex")
    assert "math-2agent-v0" in llm_envs.registry
