"""The division of devices: each once, every group served, the best there is, and more for who has more to do."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.scheduling.division import Device, Group, Learner, NoDivisionError, divide, moves

LOADS = st.integers(0, 40).map(float)
MEMORY = st.sampled_from([1.0, 2.0, 3.0])


@st.composite
def cases(draw, *, most=8, wide=True):
    devices = [Device(10 + i, memory) for i, memory in enumerate(draw(st.lists(MEMORY, min_size=1, max_size=most)))]
    widths = st.integers(1, 2) if wide else st.just(1)
    groups = [
        Group(f"g{i}", *values)
        for i, values in enumerate(draw(st.lists(st.tuples(LOADS, MEMORY, widths), min_size=1, max_size=3)))
    ]
    return devices, groups


learners = st.builds(
    Learner, LOADS, memory=st.sampled_from([0.0, 2.0, 6.0]), working=st.sampled_from([0.0, 1.0]), beside=st.booleans()
)


def fits(devices, demands):
    """Whether devices can be given to demands of so many bytes each: by trying, the largest first."""
    free = sorted(device.memory for device in devices)
    for need in sorted(demands, reverse=True):
        chosen = next((memory for memory in free if memory >= need), None)
        if chosen is None:
            return False
        free.remove(chosen)
    return True


def best(devices, groups, learner=None):
    """The least seconds of an update over all divisions, or None: every number of engines and of learners is tried."""
    found = []
    for counts in itertools.product(range(1, len(devices) + 1), repeat=len(groups)):
        for taken in range(1, len(devices) + 1) if learner else [0]:
            demands = [g.memory for g, n in zip(groups, counts, strict=True) for _ in range(n * g.width)]
            demands += [learner.need(taken)] * taken if learner else []
            if len(demands) > len(devices) or not fits(devices, demands):
                continue
            rollout = max(g.load / n for g, n in zip(groups, counts, strict=True))
            learning = learner.load / taken if learner else 0.0
            found.append(max(rollout, learning) if learner and learner.beside else rollout + learning)
    return min(found, default=None)


@given(cases(), st.none() | learners)
@settings(max_examples=300, deadline=None)
def test_no_division_is_faster_and_none_is_given_where_there_is_none(case, learner):
    devices, groups = case
    expected = best(devices, groups, learner)
    if expected is None:
        with pytest.raises(NoDivisionError):
            divide(devices, groups, learner)
        return
    assert divide(devices, groups, learner).seconds == pytest.approx(expected)


@given(cases(most=12), st.none() | learners)
@settings(max_examples=300, deadline=None)
def test_every_device_has_one_owner_that_it_is_large_enough_for(case, learner):
    devices, groups = case
    try:
        found = divide(devices, groups, learner)
    except NoDivisionError:
        return
    memory = {device.id: device.memory for device in devices}
    owned = [*(i for engines in found.engines.values() for engine in engines for i in engine), *found.learners]
    assert len(set(owned)) == len(owned)
    assert set(owned) <= set(memory)
    for group in groups:
        assert found.counts[group.name] >= 1
        assert all(len(engine) == group.width for engine in found.engines[group.name])
        assert all(memory[i] >= group.memory for engine in found.engines[group.name] for i in engine)
    assert bool(found.learners) == (learner is not None)
    if learner is not None:
        assert all(memory[i] >= learner.need(len(found.learners)) for i in found.learners)


@given(cases(most=12, wide=False), st.integers(0, 2), st.integers(1, 30))
@settings(max_examples=300, deadline=None)
def test_who_has_more_to_do_never_gets_fewer(case, which, more):
    devices, groups = case
    which %= len(groups)
    try:
        before = divide(devices, groups).counts
    except NoDivisionError:
        return
    name, load = groups[which].name, groups[which].load + more
    changed = [Group(g.name, load if g.name == name else g.load, g.memory, g.width) for g in groups]
    assert divide(devices, changed).counts[name] >= before[name]


@given(cases(most=12), st.none() | learners, st.randoms())
@settings(max_examples=100, deadline=None)
def test_it_repeats(case, learner, random):
    devices, groups = case
    try:
        found = divide(devices, groups, learner)
    except NoDivisionError:
        return
    assert divide(devices, groups, learner) == found
    shuffled = random.sample(devices, len(devices))
    assert divide(shuffled, groups, learner).counts == found.counts


def test_devices_go_where_the_load_is():
    found = divide([Device(i) for i in range(4)], [Group("solver", 30.0), Group("verifier", 10.0)])
    assert found.engines == {"solver": [(0,), (1,), (2,)], "verifier": [(3,)]}
    assert (found.rollout, found.learning, found.seconds) == (10.0, 0.0, 10.0)


def test_equal_loads_give_equal_shares():
    found = divide([Device(i) for i in range(5)], [Group("a", 1.0), Group("b", 1.0)])
    assert found.counts == {"a": 3, "b": 2}
    assert divide([Device(0), Device(1)], [Group("a", 0.0), Group("b", 0.0)]).counts == {"a": 1, "b": 1}


def test_learners_take_what_makes_the_update_fastest():
    devices = [Device(i) for i in range(8)]
    after = divide(devices, [Group("solver", 40.0)], Learner(10.0))
    assert (after.counts["solver"], len(after.learners)) == (5, 3)
    assert after.seconds == pytest.approx(40 / 5 + 10 / 3)
    beside = divide(devices, [Group("solver", 40.0)], Learner(10.0, beside=True))
    assert (beside.counts["solver"], len(beside.learners), beside.seconds) == (6, 2, pytest.approx(40 / 6))


def test_a_learner_that_fits_only_when_divided_gets_as_many_as_it_needs():
    devices = [Device(i, memory=80.0) for i in range(4)]
    found = divide(devices, [Group("solver", 100.0, memory=20.0)], Learner(1.0, memory=200.0))
    assert len(found.learners) == 3
    with pytest.raises(NoDivisionError, match="learners need at least one"):
        divide(devices, [Group("solver", 100.0, memory=20.0)], Learner(1.0, memory=300.0))


def test_too_few_devices_are_refused_with_what_is_needed():
    with pytest.raises(NoDivisionError, match=r"1 devices do not hold one engine of every group \(a 1, b 2 with 3 b"):
        divide([Device(0, 4.0)], [Group("a", 1.0), Group("b", 1.0, 3.0, width=2)])
    with pytest.raises(ValueError, match="a device is named twice"):
        divide([Device(0), Device(0)], [Group("a", 1.0)])
    with pytest.raises(ValueError, match="loads are not negative"):
        divide([Device(0)], [Group("a", -1.0)])


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), st.data())
@settings(max_examples=100, deadline=None)
def test_moves_are_the_fewest_that_reach_the_shares(groups, data):
    held = dict(enumerate(groups))
    names = sorted(set(groups))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(held)), min_size=len(names) - 1, max_size=len(names) - 1)))
    edges = [0, *cuts, len(held)]
    counts = {name: edges[i + 1] - edges[i] for i, name in enumerate(names)}
    changed = moves(held, counts)
    after = {**held, **changed}
    assert {name: sum(group == name for group in after.values()) for name in names} == counts
    assert all(held[slot] != group for slot, group in changed.items())
    has = {name: groups.count(name) for name in names}
    assert len(changed) == sum(max(0, counts[name] - has[name]) for name in names)


def test_moves_to_another_number_of_devices_are_refused():
    with pytest.raises(ValueError, match="2 devices are held"):
        moves({0: "a", 1: "b"}, {"a": 1, "b": 2})
