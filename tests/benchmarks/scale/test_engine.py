from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scale.costs import EngineCosts, engine_costs
from benchmarks.scale.engine import BarrierEngine, Engine
from trainers.capacity.devices import known_devices
from trainers.capacity.shapes import known_models
from trainers.capacity.timing import decode_features, prefill_features, rates_of

PLAIN = EngineCosts(
    fixed=0.5, row=0.01, token=0.0, weights=0.0, cache=0.001, overlap=False, start=0.2, prompt=0.0, read=0.003
)
numbers = st.floats(0, 1)
costs = st.builds(
    EngineCosts,
    fixed=st.floats(0.001, 1), row=numbers, token=numbers, weights=numbers, cache=numbers, overlap=st.booleans(),
    start=numbers, prompt=numbers, read=numbers, square=numbers,
)  # fmt: skip
arrivals = st.lists(
    st.tuples(st.floats(0, 50), st.integers(1, 40), st.integers(0, 20), st.integers(1, 30)), min_size=1, max_size=25
)


def serve(make, requests):
    """Submit (time, fresh, cached, completion) to an engine; returns it and when each was answered."""
    env = simpy.Environment()
    engine = make(env)
    ends = [None] * len(requests)

    def ask(i, at, *request):
        yield env.timeout(at)
        yield engine.submit(*request)
        ends[i] = env.now

    for i, request in enumerate(requests):
        env.process(ask(i, *request))
    env.run()
    return engine, ends


@given(cost=costs, count=st.integers(0, 60), rows=st.integers(1, 20), tokens=st.integers(0, 500))
def test_many_steps_at_once_are_the_sum_of_each(cost, count, rows, tokens):
    each = [cost.steps(1, rows, tokens + rows * step) for step in range(count)]
    assert cost.steps(count, rows, tokens) == pytest.approx(sum(each), rel=1e-9, abs=1e-9)


@given(cost=costs, count=st.integers(1, 60), rows=st.integers(1, 20), seconds=st.floats(0, 100))
def test_steps_begun_is_the_first_boundary_after(cost, count, rows, seconds):
    begun = cost.steps_begun(seconds, count, rows, 10)
    assert begun == count or cost.steps(begun, rows, 10) >= seconds
    assert begun == 0 or cost.steps(begun - 1, rows, 10) < seconds


def test_equal_answers_end_together_at_the_sum_of_their_steps():
    engine, ends = serve(lambda env: Engine(env, PLAIN, 8), [(0, 100, 0, 50)] * 4)
    reading = 0.2 + 0.003 * 400
    writing = sum(0.5 + 0.01 * 4 + 0.001 * (4 * 101 + 4 * step) for step in range(49))
    assert ends == pytest.approx([reading + writing] * 4)
    assert engine.busy == pytest.approx(reading + writing)
    assert engine.generated == 200


def test_who_is_too_many_waits_for_a_place():
    _, ends = serve(lambda env: Engine(env, dataclasses.replace(PLAIN, cache=0.0), 1), [(0, 10, 0, 3), (0, 10, 0, 3)])
    one = 0.2 + 0.03 + 2 * 0.51
    assert ends == pytest.approx([one, 2 * one])


def test_a_full_cache_holds_a_sequence_back():
    _, ends = serve(lambda env: Engine(env, dataclasses.replace(PLAIN, cache=0.0), 8, 20), [(0, 10, 0, 3)] * 2)
    one = 0.2 + 0.03 + 2 * 0.51
    assert ends == pytest.approx([one, 2 * one])
    with pytest.raises(ValueError, match="21 tokens in a cache of 20"):
        serve(lambda env: Engine(env, PLAIN, 8, 20), [(0, 10, 0, 11)])


def test_who_arrives_in_a_step_joins_after_it():
    flat = EngineCosts(1.0, 0, 0, 0, 0, False, 0, 0, 0)
    _, ends = serve(lambda env: Engine(env, flat, 8), [(0, 1, 0, 11), (2.5, 1, 0, 3)])
    assert ends == [10.0, 5.0]  # two steps from 3 on


def test_a_cached_prefix_is_not_read():
    _, ends = serve(lambda env: Engine(env, PLAIN, 8), [(0, 10, 990, 1)])
    assert ends == pytest.approx([0.2 + 0.03])


@given(cost=costs, requests=arrivals, rows=st.integers(1, 8))
@settings(deadline=None)
def test_laws_hold_for_any_arrivals(cost, requests, rows):
    engine, ends = serve(lambda env: Engine(env, cost, rows, 120), requests)
    assert engine.finished == len(requests)
    assert engine.generated == sum(request[3] for request in requests)
    # Little's law on the sample path: what is in the system, integrated, is what all have waited.
    marks = sorted([(request[0], 1) for request in requests] + [(end, -1) for end in ends])
    inside = area = last = 0.0
    for at, change in marks:
        area += inside * (at - last)
        inside, last = inside + change, at
    assert engine.waited == pytest.approx(area, rel=1e-9, abs=1e-9)
    # An engine is not busy for longer than there is, and nobody is faster than alone.
    assert engine.busy <= last + 1e-9
    for (at, fresh, cached, completion), end in zip(requests, ends, strict=True):
        squares = (fresh + cached) ** 2 - cached**2
        alone = cost.prefill(1, fresh, squares) + cost.steps(completion - 1, 1, fresh + cached + 1)
        assert end - at >= alone - 1e-6
    assert engine.row_seconds <= rows * engine.busy + 1e-9


@given(requests=arrivals)
@settings(deadline=None)
def test_one_event_for_many_steps_gives_what_step_after_step_gives(requests):
    class OneByOne(Engine):
        def _decode(self):
            seconds = self.costs.steps(1, len(self._running), self._context)
            self._count(seconds, len(self._running))
            yield self.env.timeout(seconds)
            self._step += 1
            self._context += len(self._running)

    _, fast = serve(lambda env: Engine(env, PLAIN, 4), requests)
    _, slow = serve(lambda env: OneByOne(env, PLAIN, 4), requests)
    assert fast == pytest.approx(slow)


def test_a_queue_of_one_place_waits_as_m_d_1():
    """Mean wait ρ·s / (2·(1 − ρ)) of Poisson arrivals and equal service (Pollaczek-Khinchine)."""
    service, load, count = 1.0, 0.6, 10_000
    flat = EngineCosts(0, 0, 0, 0, 0, False, service, 0, 0)
    times = np.cumsum(np.random.default_rng(0).exponential(service / load, count))
    engine, _ = serve(lambda env: Engine(env, flat, 1), [(at, 1, 0, 1) for at in times])
    expected = load * service / (2 * (1 - load))
    assert engine.waited / count - service == pytest.approx(expected, rel=0.08)
    assert engine.busy / times[-1] == pytest.approx(load, rel=0.04)


def test_a_barrier_waits_for_all_and_serves_the_longest():
    flat = EngineCosts(1.0, 0, 0, 0, 0, False, 0, 0, 0)

    def make(env):
        engine = BarrierEngine(env, flat, 8)
        engine.join()
        engine.join()
        return engine

    engine, ends = serve(make, [(0, 1, 0, 3), (7, 1, 0, 5)])
    assert ends == [11.0, 11.0]
    assert engine.busy == 4.0


def test_costs_are_those_of_the_planner():
    shape = known_models()["Qwen/Qwen3-4B"][0]
    rates = rates_of(known_devices()["H100"], "vllm")
    cost = engine_costs(shape, rates, 2)
    for rows, context in ((1, 10), (64, 2000), (256, 100)):
        planned = rates.decode.seconds(decode_features(shape, rows, context, 2))
        assert cost.steps(1, rows, rows * context) == pytest.approx(planned)
    planned = rates.prefill.seconds(prefill_features(shape, 4, 1000, half=True))
    assert cost.prefill(4, 4000, 4 * 1000**2) == pytest.approx(planned)
