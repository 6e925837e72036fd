"""Scripted players of games as policies: legal, repeatable, and refused where they do not know the game."""

from __future__ import annotations

from typing import Any

import pytest

import llm_envs
from trainers.policies import PolicyError, PolicySpecError, Request, Sampling, make_policy, parse_spec
from trainers.team import TeamError, assign_players

pytest.importorskip("pyspiel")


@pytest.fixture
def game() -> Any:
    env = llm_envs.make("tictactoe").unwrapped
    env.reset(seed=0)
    env.step("[4]")
    return env


def ask(env: Any, seed: int, n: int = 1) -> Request:
    agent = env.agent_selection
    return Request(str(env.observe(agent)), agent, Sampling(), seed=seed, n=n, env=env)


@pytest.mark.parametrize("spec", ["random", "minimax", "mcts", "mcts:sims=20,seed=1"])
async def test_moves_are_legal_and_depend_on_the_seed_alone(game: Any, spec: str) -> None:
    policy = make_policy(spec)
    texts = [(await policy.generate(ask(game, seed)))[0].text for seed in range(20)]
    assert set(texts) <= set(game.legal_actions("player_1"))
    assert texts == [(await make_policy(spec).generate(ask(game, seed)))[0].text for seed in range(20)]
    several = await policy.generate(ask(game, 3, n=4))
    assert len(several) == 4
    assert several[0].text == texts[3]
    if spec == "minimax":
        assert set(texts) == {"[0]", "[2]", "[6]", "[8]"}  # only a corner holds the draw against the centre


async def test_random_plays_legal_moves_only_where_they_are_listed(game: Any) -> None:
    examples = set(game.action_space("player_1").examples)
    assert not examples <= set(game.legal_actions("player_1"))
    policy = make_policy("random")
    seen = {(await policy.generate(ask(game, seed)))[0].text for seed in range(200)}
    assert seen == set(game.legal_actions("player_1"))


async def test_unknown_games_are_refused_before_and_at_the_request() -> None:
    env = llm_envs.make("math-2agent").unwrapped
    policy = make_policy("minimax")
    with pytest.raises(PolicyError, match="They know: tictactoe"):
        policy.check(env)
    env.reset(seed=0)
    with pytest.raises(PolicyError, match="policy 'minimax': OpenSpiel does not know math-2agent-v0"):
        await policy.generate(ask(env, 0))
    with pytest.raises(PolicyError, match=r"Request\.env"):
        await policy.generate(Request("hi", "player_0", Sampling(), seed=0))
    make_policy("random").check(env)  # has an answer for any environment


def test_specs_and_options() -> None:
    assert parse_spec("mcts:sims=5").target == "sims=5"
    assert parse_spec("minimax").target == ""
    assert make_policy("mcts:sims=5", seed=2).opponent.seed == 2  # type: ignore[attr-defined]
    for spec, message in (
        ("mcts:", "needs something after the colon"),
        ("mcts:simz=5", "has no option 'simz'. Did you mean 'sims'?"),
        ("minimax:depth=0", "`depth` must be an integer of 1 or more"),
    ):
        with pytest.raises(PolicySpecError) as caught:
            make_policy(spec)
        assert message in str(caught.value)


def test_options_reach_a_searching_player_by_its_role_alone() -> None:
    specs = ["player_0=mcts", "player_1=hf:m"]
    players = assign_players(specs, {"*": {"device": "cpu"}, "player_0": {"sims": 5}})
    assert players["player_0"].options == {"sims": 5}
    assert players["player_1"].options == {"device": "cpu"}
    with pytest.raises(TeamError, match="take those of their own role"):
        assign_players(["mcts"], {"*": {"sims": 5}})
