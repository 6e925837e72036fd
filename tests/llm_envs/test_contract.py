"""Every point of the contract has an environment that breaks it, and the check that notices."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import llm_envs
from llm_envs.core import Outcome, TextEnv
from llm_envs.parsing import InvalidAction, tag
from llm_envs.tasks import ListTaskSet, Task, stable_hash
from llm_envs.testing import ContractError, check_env

TASKS = ListTaskSet([Task(f"t/{i}", f"What is {i}+{i}?", str(2 * i)) for i in range(5)], name="t")


class Pair(TextEnv):
    """A guesser says a number, a judge says yes or no; two rounds. Keeps the contract."""

    metadata = {"name": "pair_v0", "render_modes": ["human", "ansi"], "is_parallelizable": False}
    names = ("guesser_0", "judge_0")

    def __init__(self, tasks=TASKS, **kwargs):
        examples = {self.names[0]: ("<say>2</say>", "2"), self.names[1]: ("<ok>yes</ok>", "<ok>no</ok>")}
        super().__init__(self.names, tasks, examples=examples, max_retries=1, **kwargs)

    def _start(self):
        self.said = []
        self.guess = None
        self.turns = 0
        return self.names[0]

    def _context(self, agent):
        return "\n".join([self.task.question, *self.said])

    def _instructions(self, agent):
        return "Say <say>number</say>." if agent == self.names[0] else "Say <ok>yes</ok> or <ok>no</ok>."

    def _play(self, agent, action):
        if agent == self.names[0]:
            self.guess = tag(action, "say")
            self.said.append(f"guess: {self.guess}")
            return Outcome(next=self.names[1])
        return self._after(tag(action, "ok", ("yes", "no")) == "yes")

    def _forfeit(self, agent):
        if agent == self.names[0]:
            self.guess = None
            return Outcome(next=self.names[1])
        return self._after(approved=False)

    def _after(self, approved):
        self.turns += 1
        solved = self.guess == self.task.answer
        if approved or self.turns == 2:
            rewards = {a: {"team": float(solved)} for a in self.names}
            return Outcome(rewards=rewards, terminated=approved, truncated=not approved, success=solved)
        return Outcome(next=self.names[0])

    def _oracle(self, agent):
        if agent == self.names[0]:
            return f"<say>{self.task.answer}</say>"
        return f"<ok>{'yes' if self.guess == self.task.answer else 'no'}</ok>"


class Twins(TextEnv):
    """Two agents say a number at once; both must be right. Keeps the contract."""

    metadata = {"name": "twins_v0", "render_modes": ["human", "ansi"], "is_parallelizable": True}
    names = ("twin_0", "twin_1")

    def __init__(self, **kwargs):
        super().__init__(self.names, TASKS, examples=dict.fromkeys(self.names, ("<say>2</say>", "2")), **kwargs)

    def _start(self):
        self.said = []
        self.now = {}
        return self.names

    def _context(self, agent):
        return "\n".join([self.task.question, *self.said])

    def _instructions(self, agent):
        return "Say <say>number</say>."

    def _play(self, agent, action):
        self.now[agent] = tag(action, "say")

    def _forfeit(self, agent):
        return None

    def _end_round(self):
        now, self.now = self.now, {}
        self.said.append(str(sorted(now.items())))
        solved = list(now.values()) == [self.task.answer] * 2
        if solved or len(self.said) == 2:
            rewards = {a: {"team": float(solved)} for a in self.names}
            return Outcome(rewards=rewards, terminated=solved, truncated=not solved, success=solved)
        return Outcome(next=self.names)

    def _oracle(self, agent):
        return f"<say>{self.task.answer}</say>"


class Duel(TextEnv):
    """Nim for two: take one or two stones; who takes the last one wins. Keeps the contract of a zero-sum game."""

    metadata = {
        "name": "duel_v0",
        "render_modes": ["human", "ansi"],
        "is_parallelizable": False,
        "zero_sum": True,
    }
    names = ("player_0", "player_1")
    stones = ListTaskSet([Task(f"nim/{i}", f"{i} stones.", "") for i in range(3, 8)], name="nim")

    def __init__(self, **kwargs):
        examples = dict.fromkeys(self.names, ("<take>1</take>", "<take>2</take>", "1"))
        super().__init__(self.names, self.stones, examples=examples, max_retries=1, invalid_penalty=0.0, **kwargs)

    def _start(self):
        self.left = int(self.task.question.split()[0])
        self.moves = []
        return self.names[0]

    def _context(self, agent):
        return "\n".join([self.task.question, *self.moves])

    def _instructions(self, agent):
        return "Say <take>1</take> or <take>2</take>."

    def _play(self, agent, action):
        return self._take(agent, int(tag(action, "take", ("1", "2"))))

    def _take(self, agent, taken):
        if taken > self.left:
            raise InvalidAction("There are not so many stones left.")
        self.left -= taken
        self.moves.append(f"{agent} takes {taken}")
        other = self.names[agent == self.names[0]]
        if self.left:
            return Outcome(next=other)
        return Outcome(rewards=self._paid(agent, other), terminated=True, success={agent})

    def _paid(self, winner, loser):
        return {winner: {"team": 1.0}, loser: {"team": -1.0}}

    def _forfeit(self, agent):
        other = self.names[agent == self.names[0]]
        info = {name: {"forfeit": agent} for name in self.names}
        return Outcome(rewards=self._paid(other, agent), terminated=True, info=info)

    def _oracle(self, agent):
        return f"<take>{self.left % 3 or 1}</take>"


def test_a_sound_environment_passes():
    check_env(Pair)
    check_env(Twins)
    check_env(Duel)


@pytest.mark.parametrize("env_id", sorted(llm_envs.registry))
def test_registered_environments_pass(env_id):
    check_env(env_id, episodes=3)


HOOKS = {
    "_start", "_context", "_instructions", "_play", "_end_round", "_forfeit", "_oracle", "_render_text", "_most_moves"
}  # fmt: skip


@pytest.mark.parametrize("env_id", sorted(llm_envs.registry))
def test_only_hooks_are_overridden(env_id):
    """A method of an environment that has the name of one of the base class's own would take its place unnoticed."""
    base = {name for name, value in vars(TextEnv).items() if callable(value) and name.startswith("_")} - HOOKS
    for kind in type(llm_envs.make(env_id).unwrapped).__mro__:
        if kind is TextEnv:
            break
        assert not {name for name in base & vars(kind).keys() if not name.startswith("__")}, kind


# ---- one broken environment a point ---------------------------------------------------------------------------------


class CapitalName(Pair):
    metadata = {**Pair.metadata, "name": "Pair"}


class ConsumesObservation(Pair):
    def _context(self, agent):
        seen, self.said = self.said, []
        return "\n".join([self.task.question, *seen])


class RewritesHistory(Pair):
    def _context(self, agent):
        return "\n".join([self.task.question, *reversed(self.said)])

    def _after(self, approved):
        self.said.append(f"judged {approved}")
        return super()._after(approved)


class OpenRound(Twins):
    def _instructions(self, agent):
        return f"The other one said {self.now}."


class RaisesOnBadText(Pair):
    def _play(self, agent, action):
        return super()._play(agent, action) if "<" in action else Outcome(next=self.names[int(action)])


class NeverEnds(Pair):
    def _forfeit(self, agent):
        return Outcome(next=agent)


class MissingVerdictApproves(Pair):
    """Fails open: silence passes for a solved task."""

    def _forfeit(self, agent):
        return Outcome(terminated=True, success=True) if agent == self.names[1] else super()._forfeit(agent)


class HiddenReward(Pair):
    def _after(self, approved):
        outcome = super()._after(approved)
        self._cumulative_rewards[self.names[0]] += 0.5
        return outcome


class LatencyInInfos(Pair):
    clock = 0

    def _after(self, approved):
        outcome = super()._after(approved)
        LatencyInInfos.clock += 1
        return Outcome(outcome.next, outcome.rewards, outcome.terminated, outcome.truncated, outcome.success,
                       {self.names[0]: {"latency": LatencyInInfos.clock}})  # fmt: skip


class NoPenaltyPart(Pair):
    def _pay(self, paid):
        super()._pay({a: {k: v for k, v in parts.items() if k != "invalid"} for a, parts in paid.items()})


class BothFlags(Pair):
    def _after(self, approved):
        outcome = super()._after(approved)
        return Outcome(outcome.next, outcome.rewards, outcome.next is None, outcome.next is None, outcome.success)


class QuietSuccess(Pair):
    def _apply(self, outcome):
        super()._apply(outcome)
        for agent in self.agents:
            self.infos[agent]["success"] = False


class LeaksIntoNextEpisode(Pair):
    def _start(self):
        old = getattr(self, "said", [])
        start = super()._start()
        self.said = old
        return start


class IgnoresTaskIndex(Pair):
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)


class GlobalRandomness(Pair):
    def _start(self):
        start = super()._start()
        self.said = [f"lucky number {np.random.randint(10**9)}"]  # noqa: NPY002
        return start


class SharedFork(Pair):
    def fork(self):
        return copy.copy(self)


class OracleIsWrong(Pair):
    def _oracle(self, agent):
        return "<say>-1</say>" if agent == self.names[0] else super()._oracle(agent)


class EchoPays(Pair):
    """Routing by a substring: the prompt's own example is taken for an answer."""

    def _play(self, agent, action):
        if agent == self.names[1] and "yes" in action and "no" in action:
            return Outcome(terminated=True, success=True, rewards={a: {"team": 1.0} for a in self.names})
        return super()._play(agent, action)


class SameSplits(Pair):
    def __init__(self, split="train", **kwargs):
        super().__init__(tasks=ListTaskSet(list(TASKS), name="t", split=split), **kwargs)


class SkipsDeadSteps(Pair):
    """Ends the episode without letting the others take their dead step, so their last reward never reaches them."""

    def step(self, action):
        super().step(action)
        if self.agents and not self.round_agents:
            self.agents = self.agents[:1]
            self.agent_selection = self.agents[0]


class LateReward(Pair):
    """The final reward of the agent that does not act is wiped before its dead step."""

    def _apply(self, outcome):
        super()._apply(outcome)
        if not self.round_agents:
            self._cumulative_rewards[self.names[0]] = 0.0
            self.infos[self.names[0]]["reward_parts"] = {}


class PaysTheWinnerOnly(Duel):
    def _paid(self, winner, loser):
        return {winner: {"team": 1.0}}


class OneSidedPenalty(Duel):
    """Nobody gets what unusable text costs."""

    def __init__(self):
        super().__init__()
        self.invalid_penalty = -0.1


class GiftIsSuccess(Duel):
    def _forfeit(self, agent):
        outcome = super()._forfeit(agent)
        return Outcome(None, outcome.rewards, terminated=True, success=set(self.names) - {agent}, info=outcome.info)


class LoserIsToldOfSuccess(Duel):
    def _apply(self, outcome):
        super()._apply(outcome)
        for agent in self.agents:
            self.infos[agent]["success"] = self.success


class CountsNobody(Duel):
    def _apply(self, outcome):
        super()._apply(outcome)
        self.succeeded = frozenset()


class ForfeitIsADraw(Duel):
    def _forfeit(self, agent):
        return Outcome(terminated=True)


class AnyDigitCounts(Duel):
    """Lenient parsing: a tag that was cut off or turned round is still a move."""

    def _play(self, agent, action):
        digits = [int(c) for c in action if c in "12"]
        return self._take(agent, digits[0]) if digits else super()._play(agent, action)


class SecondPlayerHasNoOracle(Duel):
    def _oracle(self, agent):
        return super()._oracle(agent) if agent == self.names[0] else "<take>9</take>"


class OracleGivesUp(Duel):
    def _play(self, agent, action):
        return self._forfeit(agent) if "2" in action else super()._play(agent, action)


class EndsAtALimit(Duel):
    def _play(self, agent, action):
        outcome = super()._play(agent, action)
        return outcome if outcome.next else Outcome(rewards=outcome.rewards, truncated=True)


@pytest.mark.parametrize(
    ("broken", "point"),
    [
        (CapitalName, 1),
        (ConsumesObservation, 2),
        (RewritesHistory, 2),
        (OpenRound, 2),
        (RaisesOnBadText, 3),
        (NeverEnds, 3),
        (MissingVerdictApproves, 3),
        (HiddenReward, 4),
        (LatencyInInfos, 4),
        (NoPenaltyPart, 4),
        (BothFlags, 5),
        (QuietSuccess, 5),
        (LeaksIntoNextEpisode, 6),
        (IgnoresTaskIndex, 6),
        (GlobalRandomness, 6),
        (SharedFork, 7),
        (OracleIsWrong, 8),
        (EchoPays, 8),
        (SameSplits, 9),
        (SkipsDeadSteps, 10),
        (LateReward, 10),
        (PaysTheWinnerOnly, 4),
        (OneSidedPenalty, 4),
        (GiftIsSuccess, 3),
        (LoserIsToldOfSuccess, 5),
        (CountsNobody, 5),
        (ForfeitIsADraw, 8),
        (AnyDigitCounts, 8),
        (SecondPlayerHasNoOracle, 8),
        (OracleGivesUp, 8),
        (EndsAtALimit, 8),
    ],
)
def test_a_broken_point_is_noticed(broken, point):
    with pytest.raises(ContractError) as caught:
        check_env(broken)
    assert caught.value.point == point, str(caught.value)


def test_a_fault_in_a_split_is_not_taken_for_an_environment_without_splits():
    class Faulty(Pair):
        def __init__(self, split="train", **kwargs):
            super().__init__(**kwargs)
            if split == "test":
                raise TypeError("unhashable type: 'list'")

    with pytest.raises(TypeError, match="unhashable"):
        check_env(Faulty)


def test_a_refused_reset_changes_nothing():
    env, twin = Pair(), Pair()
    for each in (env, twin):
        each.reset(seed=0)
    for options, seed in (({"task_index": 10**9}, 7), ({"task_index": 10**9}, None), ({}, -1)):
        with pytest.raises(llm_envs.registration.error.Error, match="actual value"):
            env.reset(seed=seed, options=options)
    assert env.np_random.random() == twin.np_random.random()
    env.reset()
    twin.reset()
    assert (env.task, env.np_random.random()) == (twin.task, twin.np_random.random())


def test_a_turn_for_nobody_is_refused():
    class Lost(Pair):
        def _start(self):
            super()._start()
            return "nobody_0"

    with pytest.raises(TypeError, match=r"Lost gives the turn to 'nobody_0'"):
        Lost().reset(seed=0)


def test_malformed_agent_name_is_refused():
    class Bad(Pair):
        names = ("Guesser", "judge_0")

    with pytest.raises(llm_envs.registration.error.Error, match=r"Malformed agent name: 'Guesser'.*solver_0"):
        Bad()


def test_reason_reaches_the_agent_and_retries_are_bounded():
    env = Pair()
    env.reset(seed=0)
    env.step("nothing useful")
    assert env.agent_selection == "guesser_0"  # one retry
    assert env.rewards["guesser_0"] == -0.1
    assert env.infos["guesser_0"]["reward_parts"] == {"invalid": -0.1}
    assert env.infos["guesser_0"]["invalid_action"] == "No <say> tag was found. Write <say>…</say>."
    assert "No <say> tag was found" in env.observe("guesser_0")
    assert "No <say> tag was found" not in env.observe("judge_0")
    env.step("still nothing")
    assert env.agent_selection == "judge_0"  # forfeited
    env.step("<ok>no</ok>")
    assert "No <say> tag was found" in env.observe("guesser_0")  # until it acts again
    env.step("<say>1</say>")
    assert "invalid_action" not in env.infos["guesser_0"]
    assert "could not be used" not in env.observe("guesser_0")


def test_invalid_action_is_a_gymnasium_error():
    assert issubclass(InvalidAction, llm_envs.registration.error.InvalidAction)


def test_success_belongs_to_the_winner_by_play():
    env = Duel(render_mode="ansi")
    env.reset(options={"task_index": 1})  # four stones: the first player leaves three
    while env.round_agents:
        env.step(env.oracle(env.agent_selection))
    assert env.success
    assert env.succeeded == {"player_0"}
    assert {agent: env.infos[agent]["success"] for agent in env.agents} == {"player_0": True, "player_1": False}
    assert env.rewards == {"player_0": 1.0, "player_1": -1.0}
    assert env.render().endswith("Won by player_0.")


def test_a_forfeit_pays_and_is_no_success():
    env = Duel(render_mode="ansi")
    env.reset(seed=0)
    env.step("pass")
    env.step("pass")
    assert not env.success
    assert env.succeeded == frozenset()
    assert not any(env.infos[agent]["success"] for agent in env.agents)
    assert env.rewards == {"player_0": -1.0, "player_1": 1.0}
    assert env.render().endswith("Nobody won by play.")


@pytest.mark.parametrize(
    ("success", "message"),
    [("player_0", r"not the text 'player_0'"), ({"player_7"}, r"gives success to \['player_7'\]; the agents are")],
)
def test_success_of_a_stranger_is_refused(success, message):
    class Odd(Duel):
        def _forfeit(self, agent):
            return Outcome(terminated=True, success=success)

    env = Odd()
    env.reset(seed=0)
    env.step("pass")
    with pytest.raises(TypeError, match=message):
        env.step("pass")


def test_success_for_all_names_all():
    env = Pair()
    env.reset(seed=0)
    while env.round_agents:
        assert not env.succeeded
        env.step(env.oracle(env.agent_selection))
    assert env.succeeded == set(env.possible_agents)


def test_the_seed_of_an_episode_is_a_stable_hash():
    env = Pair()
    for seed in (0, 9, 10, 2**64):
        env.reset(seed=seed)
        assert env._episode_seed == stable_hash("episode", seed, 0)
        env.reset()
        assert env._episode_seed == stable_hash("episode", seed, 1)


@pytest.mark.parametrize("spawn", [0, 2])
def test_generators_of_forks_go_on_alike_and_apart(spawn):
    env = Pair()
    env.reset(seed=0)
    unused = env.fork()
    first = env.np_random.random()
    env.np_random.spawn(spawn)
    fork = env.fork()
    second = fork.fork()  # before the first fork ever draws
    drawn = [env.np_random.random() for _ in range(3)]
    assert [fork.np_random.random() for _ in range(3)] == drawn
    assert [second.np_random.random() for _ in range(3)] == drawn
    assert unused.np_random.random() == first
    assert fork.np_random.spawn(1)[0].random() == env.np_random.spawn(1)[0].random()
    env.reset(seed=0)
    assert env.np_random.random() == first
