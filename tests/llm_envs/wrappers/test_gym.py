"""One seat as a gymnasium environment: gymnasium's own checker on every id, other seats by name, early rewards."""

from __future__ import annotations

import warnings

import pytest
from gymnasium import error
from gymnasium.utils.env_checker import check_env

import llm_envs
from llm_envs.core import Outcome, TextEnv
from llm_envs.parsing import InvalidAction
from llm_envs.tasks import ListTaskSet, Task
from llm_envs.wrappers.gym import MAX_SKIPPED, SingleAgentView

SEATS = [(env_id, seat) for env_id in llm_envs.registry for seat in llm_envs.make(env_id).possible_agents]

ALLOWED = ("No render fps was declared", "Not able to test alternative render modes")
"""Text is not drawn in frames, and a view has no gymnasium spec to be made anew from."""


@pytest.mark.parametrize(("env_id", "seat"), SEATS)
def test_gymnasiums_checker_passes(env_id, seat):
    policies = (None,) if len(llm_envs.make(env_id).possible_agents) == 1 else ("oracle", "random")
    for others in policies:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_env(llm_envs.as_gym(env_id, agent=seat, others=others, render_mode="ansi"))
        for warning in caught:
            assert any(text in str(warning.message) for text in ALLOWED), str(warning.message)


class Late(TextEnv):
    """first_0 says yes or no; yes pays second_0, which then speaks, no ends the episode with nothing."""

    metadata = {"name": "late_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}

    def __init__(self, **kwargs):
        agents = ("first_0", "second_0")
        super().__init__(
            agents, ListTaskSet([Task("t/0", "?", "")]), examples=dict.fromkeys(agents, ("yes", "no")), **kwargs
        )

    def _start(self):
        return "first_0"

    def _context(self, agent):
        return "?"

    def _instructions(self, agent):
        return "Say yes or no."

    def _play(self, agent, action):
        if action not in ("yes", "no"):
            raise InvalidAction("yes or no")
        if agent == "second_0" or action == "no":
            return Outcome(terminated=True, rewards={"second_0": {"own": 1.0 if action == "yes" else 0.0}})
        return Outcome(next="second_0", rewards={"second_0": {"gift": 2.0, "own": 0.5}})

    def _oracle(self, agent):
        return "yes"


def test_what_a_seat_is_paid_before_its_first_turn_reaches_it():
    seat = SingleAgentView(Late(), agent="second_0", others="oracle")
    for _ in range(2):
        _, info = seat.reset(seed=0)
        assert info["reward_parts"] == {"gift": 2.0, "own": 0.5}
        _, reward, terminated, _, info = seat.step("yes")
        assert (reward, terminated, info["reward_parts"]) == (3.5, True, {"gift": 2.0, "own": 1.5})
    seat.reset(seed=0)
    assert seat.step("no")[1] == 2.5


def test_episodes_without_a_turn_are_skipped():
    said = iter(["no", "no", "yes"])
    seat = SingleAgentView(Late(), agent="second_0", others=lambda env, agent: next(said))
    _, info = seat.reset(seed=0)
    assert info["skipped"] == 2
    assert seat.step("yes")[1] == 3.5
    with pytest.raises(error.Error, match=f"{MAX_SKIPPED} episodes in a row ended before second_0's first turn"):
        SingleAgentView(Late(), agent="second_0", others=lambda env, agent: "no").reset(seed=0)


def test_rewards_add_up_to_the_return_of_the_seat():
    for seat in ("player_0", "player_1"):
        env = llm_envs.as_gym("openspiel/leduc_poker", agent=seat, others="random")
        for seed in range(20):
            env.reset(seed=seed)
            total, over = 0.0, False
            while not over:
                _, reward, terminated, truncated, info = env.step(env.env.legal_actions(seat)[0])
                total, over = total + reward, terminated or truncated
            assert total == info["return"]


def episode(env, seed):
    observation, _ = env.reset(seed=seed)
    seen, over = [str(observation)], False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(env.env.legal_actions(env.agent)[0])
        seen += [str(observation), reward]
        over = terminated or truncated
    return seen


@pytest.mark.parametrize("others", ["random", "oracle", "mcts:sims=10", "minimax"])
def test_others_by_name_play_the_same_for_the_same_seed(others):
    one, two = (llm_envs.as_gym("openspiel/tic_tac_toe", agent="player_1", others=others) for _ in range(2))
    assert episode(one, 3) == episode(two, 3) == episode(one, 3)
    if others == "random":
        assert len({str(episode(one, seed)[0]) for seed in range(12)}) > 4


def test_errors_of_the_other_seats():
    with pytest.raises(error.MissingArgument, match="others='oracle'"):
        llm_envs.as_gym("math-2agent", agent="solver_0")
    with pytest.raises(error.Error, match="Did you mean 'random'"):
        llm_envs.as_gym("tictactoe", agent="player_0", others="randon")
    with pytest.raises(error.Error, match="minimax cannot play"):
        llm_envs.as_gym("openspiel/kuhn_poker", agent="player_0", others="minimax")
    with pytest.raises(error.Error, match=r"`others` must be a name or a function .*actual value: 5"):
        llm_envs.as_gym("tictactoe", agent="player_0", others=5)


def test_arguments_for_an_environment_that_is_made_are_refused():
    env = llm_envs.make("tictactoe")
    for arguments in ({"max_retries": 4}, {"render_mode": "ansi"}):
        with pytest.raises(error.Error, match=f"made already, {next(iter(arguments))} would change nothing"):
            SingleAgentView(env, agent="player_0", others="random", **arguments)
    with pytest.raises(error.Error, match="shows text environments, got int"):
        SingleAgentView(3, agent="player_0", others="random")


def test_as_gym_is_an_attribute_of_the_package():
    assert "as_gym" in llm_envs.__all__
    with pytest.raises(AttributeError, match="no attribute 'as_gim'"):
        _ = llm_envs.as_gim
