"""Which weights play which batch: by hand, under every timing, and what is left when something fails."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.batch import Batch
from trainers.config import ConfigError, PolicyConfig, load_config
from trainers.cursor import TaskCursor
from trainers.members import Member
from trainers.pipeline import OnPolicy, Overlapped, make_pipeline
from trainers.policies.base import Policy
from trainers.rollout.records import Episode, Turn
from trainers.run_folder import RunError
from trainers.run_metrics import Clock
from trainers.weight_sync import WeightSync

TASKS, BATCH = 50, 2


class Learner:
    """Its one weight is the number of updates that it has seen."""

    def __init__(self):
        self.model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.model.weight)

    def update(self):
        with torch.no_grad():
            self.model.weight.add_(1)


class Sampler(Policy):
    """Holds such a weight."""

    def __init__(self, name):
        super().__init__(name)
        self.weight = 0.0

    async def generate(self, request):
        raise AssertionError("the episodes here come from a script")


class Sync(WeightSync):
    """Puts the weight of a learner, or one that was set aside, into a sampler."""

    def __init__(self, policy, pause):
        self.policy, self._pause = policy, pause

    async def push(self, source, version):
        ((_, weight),) = source if isinstance(source, list) else source.model.named_parameters()
        await self._pause()
        self.policy.weight, self.policy.weight_version = weight.item(), version


class Script:
    """A collector: every episode is a turn that says which weights are in use when it is played."""

    def __init__(self, pause, broken=()):
        self._pause, self._broken = pause, broken
        self.in_flight = 0

    async def collect(self, team, cursor, update, learning):
        self.in_flight += 1
        try:
            episodes = []
            for task in cursor.next():
                await self._pause()
                turns = [
                    Turn(
                        "e", str(task), f"{name}_0", name, i, 0, "", "", weight_version=policy.weight_version,
                        info={"weight": policy.weight},
                    )
                    for i, (name, policy) in enumerate(team.items())
                ]  # fmt: skip
                episodes.append(Episode("e", "env", str(task), task, "", 0, 0, turns=turns))
            if update in self._broken:
                raise RunError("nothing could be played")
            return episodes, {}
        finally:
            self.in_flight -= 1


class Run:
    """A run without models, on a pipeline, whose pauses are drawn at random: some steps of the event loop each."""

    def __init__(self, seed=0, broken=(), start=0, saved=None, most=6, **values):
        policy = {"model": "any", "backend": "hf"}
        self.config = load_config({"env": {"id": "math-2agent"}, "policies": {"a": policy, "b": policy}, **values})
        self._rng, self._most = random.Random(seed), most
        self.script = Script(self.pause, broken)
        self.cursor = TaskCursor(TASKS, BATCH, seed=0)
        self.pipeline = make_pipeline(self.script, self.cursor, self.config)
        samplers = {name: Sampler(name) for name in ("a", "b", "frozen")}
        self.members = {
            name: Member(name, PolicyConfig(**policy), sampler, learner, None, None if learner is None else sync)
            for name, sampler in samplers.items()
            for learner in [None if name == "frozen" else Learner()]
            for sync in [Sync(sampler, self.pause)]
        }
        self.start = start
        if saved is not None:
            self.load(saved)
        self.trained, self.held, self.batches = [], [], []

    async def pause(self):
        for _ in range(self._rng.randint(0, self._most)):
            await asyncio.sleep(0)

    def load(self, saved):
        """Go on from what :meth:`save` returned."""
        saved = json.loads(saved)
        self.start = saved["update"]
        self.cursor.load_state_dict(saved["cursor"])
        self.pipeline.load_state(saved["batches"])
        for name, weight in saved["weights"].items():
            torch.nn.init.constant_(self.members[name].learner.model.weight, weight)

    def save(self, update):
        """What a checkpoint holds."""
        weights = {n: m.learner.model.weight.item() for n, m in self.members.items() if m.learner is not None}
        batches = self.pipeline.state()
        return json.dumps(
            {"update": update, "cursor": self.cursor.state_dict(), "batches": batches, "weights": weights}
        )

    async def play(self, hold=lambda update: False, until=None):
        """Train to the end, or until so many updates are done; returns the last state that was saved."""
        team = {name: member.policy for name, member in self.members.items()}
        for member in self.members.values():
            await member.push(self.start)
        self.pipeline.open(team, self.members, self.start)
        saved = None
        try:
            for update in range(self.start, self.config.updates if until is None else until):
                batch = await self.pipeline.batch(update, Clock())
                assert batch.update == update
                versions = self.pipeline.versions(update)
                self.batches.append([episode.task_index for episode in batch.episodes])
                self.trained += [
                    (update, turn.policy, versions[turn.policy] - turn.weight_version, turn.info["weight"])
                    for episode in batch.episodes
                    for turn in episode.turns
                ]
                learning = self.config.learning(update)
                await self.pipeline.run(lambda names=learning: [self.members[name].learner.update() for name in names])
                await self.pause()
                held = hold(update + 1) or update + 1 == self.config.updates
                await self.pipeline.push(update + 1, learning, Clock(), hold=held)
                if held:
                    assert self.script.in_flight == 0
                    for name in ("a", "b"):
                        member = self.members[name]
                        assert member.policy.weight == member.learner.model.weight.item()
                    saved = self.save(update + 1)
                    await self.pause()
                    assert self.script.in_flight == 0
        finally:
            await self.pipeline.close()
        return saved

    def played_by(self):
        """The weights of ``a`` that have played each batch."""
        return [sorted({weight for u, name, _, weight in self.trained if (u, name) == (update, "a")})
                for update in range(self.start, self.config.updates)]  # fmt: skip


# ---- the schedule ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("staleness", "versions"),
    [(0, [0, 1, 2, 3, 4, 5]), (1, [0, 0, 1, 2, 3, 4]), (2, [0, 0, 0, 1, 2, 3]), (9, [0, 0, 0, 0, 0, 0])],
)
async def test_which_weights_play_which_batch(staleness, versions):
    run = Run(max_staleness=staleness, updates=6)
    await run.play()
    assert run.played_by() == [[version] for version in versions]
    order = TaskCursor(TASKS, BATCH, seed=0)
    assert run.batches == [order.next() for _ in range(6)]


def test_without_staleness_nothing_runs_beside_an_update():
    assert type(Run().pipeline) is OnPolicy
    assert type(Run(max_staleness=1).pipeline) is Overlapped


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    staleness=st.integers(1, 4),
    every=st.integers(1, 5),
    mode=st.sampled_from(["finish", "continue"]),
)
def test_no_turn_is_older_than_the_bound(seed, staleness, every, mode):
    """Whatever takes how long, and whenever state is saved in between; with ``finish`` the versions are exact."""
    run = Run(seed, max_staleness=staleness, on_new_weights=mode, updates=8)
    asyncio.run(run.play(lambda update: update % every == 0))
    assert len(run.trained) == 8 * BATCH * 3
    for update, name, lag, weight in run.trained:
        assert 0 <= lag <= staleness
        if name == "frozen":
            assert (lag, weight) == (0, 0.0)
        else:
            assert weight == update - lag  # the version that a turn carries is that of the weights that wrote it
            if mode == "finish":
                assert lag == min(update, staleness)


async def test_new_weights_reach_episodes_that_are_under_way():
    """With ``continue`` some batch is played by two versions; with ``finish`` none is."""
    versions = {
        mode: [
            len(weights)
            for seed in range(20)
            for run in [Run(seed, max_staleness=1, on_new_weights=mode, updates=6, most=20)]
            for _ in [await run.play()]
            for weights in run.played_by()
        ]
        for mode in ("finish", "continue")
    }
    assert max(versions["continue"]) == 2
    assert set(versions["finish"]) == {1}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), staleness=st.integers(0, 3), every=st.integers(1, 4), cut=st.integers(1, 7))
def test_a_resumed_run_trains_on_the_same_turns(seed, staleness, every, cut):
    """It is stopped anywhere and goes on from the newest state: no episode is lost, none is there twice."""
    whole = Run(seed, max_staleness=staleness, updates=8)
    asyncio.run(whole.play(lambda update: update % every == 0))
    first = Run(seed + 1, max_staleness=staleness, updates=8)
    saved = asyncio.run(first.play(lambda update: update % every == 0, until=cut))
    second = Run(seed + 2, max_staleness=staleness, updates=8, saved=saved)
    asyncio.run(second.play(lambda update: update % every == 0))
    kept = second.start
    assert first.batches[:kept] + second.batches == whole.batches
    assert [row for row in first.trained if row[0] < kept] + second.trained == whole.trained


async def test_policies_that_take_turns_count_the_same_versions():
    """A policy that holds still has old weights under a new number, so its turns are no staler than the others'."""
    alternate = {"order": [["a"], ["b"]], "every": 3}
    run = Run(max_staleness=2, updates=9, alternate=alternate)
    await run.play()
    assert {(name, lag) for update, name, lag, _ in run.trained if update >= 2} == {("a", 2), ("b", 2), ("frozen", 0)}
    weights = {(update, name): weight for update, name, _, weight in run.trained}
    assert [weights[update, "a"] for update in range(9)] == [0, 0, 0, 1, 2, 3, 3, 3, 3]
    assert [weights[update, "b"] for update in range(9)] == [0, 0, 0, 0, 0, 0, 1, 2, 3]


async def test_a_prolonged_run_starts_with_the_newest_weights():
    run = Run(max_staleness=2, updates=4)
    saved = await run.play()
    assert json.loads(saved)["batches"] == []  # nothing was played that no update would have trained on
    longer = Run(max_staleness=2, updates=8, saved=saved)
    await longer.play()
    assert longer.played_by() == [[4], [4], [4], [5]]


# ---- when something is wrong ----------------------------------------------------------------------------------------


async def test_a_batch_that_cannot_be_played_stops_the_run_when_its_update_comes():
    """Updates before it are made, and the state that is saved stands before its tasks."""
    run = Run(max_staleness=2, updates=8, broken={4})
    saved = {}

    def hold(update):
        saved[update] = None
        return update == 3

    with pytest.raises(RunError, match="nothing could be played"):
        await run.play(hold)
    assert max(saved) == 4  # four updates were made
    order = TaskCursor(TASKS, BATCH, seed=0)
    tasks = [order.next() for _ in range(5)]
    assert run.batches == tasks[:4]
    assert run.cursor.next() == tasks[4]


@pytest.mark.parametrize("staleness", [1, 2])
async def test_closing_breaks_off_a_batch_and_gives_its_tasks_back(staleness):
    run = Run(max_staleness=staleness, updates=8, most=200)
    await run.play(until=1)
    assert run.script.in_flight == 0
    order = TaskCursor(TASKS, BATCH, seed=0)
    played = 1 + len(run.pipeline.state())
    for _ in range(played):
        order.next()
    assert run.cursor.next() == order.next()
    await run.pipeline.close()  # twice does no harm


async def test_a_failed_update_ends_the_run_while_a_batch_is_in_flight():
    run = Run(max_staleness=1, updates=4)

    def fail():
        raise ZeroDivisionError

    run.members["a"].learner.update = fail
    with pytest.raises(ZeroDivisionError):
        await run.play()
    assert run.script.in_flight == 0


def test_a_batch_is_read_back_unchanged():
    turn = Turn("e", "t", "a_0", "a", 0, 0, "o", "\ud800", (1, 2), (3,), (-0.1 / 3,), "length", 7, {"team": 1e-9})
    episode = Episode("e", "env", "t", 3, "h", 1, 2, turns=[turn], returns={"a_0": 0.1}, tree=True, wall_s=0.5)
    batch = Batch(4, [episode], {"train/refills": 1.0}, 0.25, 0.5)
    assert Batch.from_dict(json.loads(json.dumps(batch.to_dict()))) == batch
    assert batch.tokens == 0


# ---- the configuration ----------------------------------------------------------------------------------------------


def config(loss=None, policy=None, **values):
    one = {"model": "any", "backend": "hf", **(policy or {})}
    return load_config(
        {"env": {"id": "math-1agent"}, "policies": {"solver": one}, "algorithm": {"loss": loss or {}}, **values}
    )


@pytest.mark.parametrize("loss", [{}, {"importance": "sequence"}, {"importance": "off", "reference": "sampler"}])
def test_losses_that_correct_for_staleness_are_taken(loss):
    assert config(loss, max_staleness=3).max_staleness == 3


@pytest.mark.parametrize(
    ("loss", "policy"),
    [
        ({"importance": "off"}, {}),
        ({"importance": "off", "reference": "sampler", "kind": "reinforce"}, {}),
        ({}, {"loss": {"importance": "off"}}),
    ],
)
def test_losses_that_do_not_are_refused_unless_allowed(loss, policy):
    with pytest.raises(ConfigError, match=r"max_staleness is 1.*policies\.solver.*importance=token"):
        config(loss, policy, max_staleness=1)
    assert config(loss, policy, max_staleness=1, uncorrected_staleness=True).uncorrected_staleness
    assert config(loss, policy).max_staleness == 0
    assert config(loss, {**policy, "trainable": False, "loss": {}}, max_staleness=1).max_staleness == 1


@pytest.mark.parametrize(("name", "value"), [("on_new_weights", "continue"), ("uncorrected_staleness", True)])
def test_settings_without_effect_are_refused(name, value):
    with pytest.raises(ConfigError, match=f"{name} has no effect while max_staleness is 0"):
        config(**{name: value})
    assert getattr(config(max_staleness=1, **{name: value}), name) == value


def test_what_is_no_staleness():
    with pytest.raises(ConfigError, match=r"max_staleness: .*greater than or equal to 0"):
        config(max_staleness=-1)
    with pytest.raises(ConfigError, match=r"on_new_weights: .*'finish' or 'continue'"):
        config(max_staleness=1, on_new_weights="stop")
    with pytest.raises(ConfigError, match="Did you mean `max_staleness`"):
        config(max_stalenes=1)
