"""Busy seconds of an engine, and when engines change hands."""

from __future__ import annotations

import logging

import pytest

from trainers.scheduling.division import NoDivisionError
from trainers.scheduling.load import Balancer, BusyTime


def test_seconds_in_which_requests_overlap_count_once():
    now = 0.0
    busy = BusyTime(lambda: now)
    busy.begin()
    now = 2.0
    busy.begin()
    now = 3.0
    busy.end(tokens=5)
    now = 5.0
    busy.end(tokens=7)
    now = 9.0
    busy.begin()
    now = 10.0
    busy.end(tokens=1)
    assert busy.take() == (6.0, 13)
    assert busy.take() == (0.0, 0)


def test_a_request_that_still_runs_counts_on_both_sides():
    now = 0.0
    busy = BusyTime(lambda: now)
    busy.begin()
    now = 2.0
    assert busy.take() == (2.0, 0)
    now = 3.0
    busy.end(tokens=4)
    assert busy.take() == (1.0, 4)


def test_a_pool_starts_with_equal_shares():
    balancer = Balancer(["solver", "verifier"], 5, every=1, gain=0.1)
    assert balancer.shares == {"solver": 3, "verifier": 2}
    assert balancer.held == {0: "solver", 1: "solver", 2: "solver", 3: "verifier", 4: "verifier"}
    with pytest.raises(NoDivisionError):
        Balancer(["a", "b", "c"], 2, every=1, gain=0.1)


def test_engines_go_to_who_is_loaded_after_so_many_updates(caplog):
    balancer = Balancer(["solver", "verifier"], 4, every=2, gain=0.1)
    with caplog.at_level(logging.INFO):
        assert balancer.measured({"solver": 9.0, "verifier": 2.0}) == {}
        assert balancer.measured({"solver": 11.0, "verifier": 2.0}) == {3: "solver"}
    assert balancer.shares == {"solver": 3, "verifier": 1}
    assert "solver 2 -> 3, verifier 2 -> 1" in caplog.text
    assert "10 (solver), 2 (verifier)" in caplog.text
    assert "3.33 s in place of 5 s" in caplog.text
    assert [balancer.numbers(name) for name in ("solver", "verifier")] == [[0, 1, 3], [2]]
    # And back, when the load turns; what was measured before the change is no part of it.
    balancer.measured({"solver": 2.0, "verifier": 10.0})
    assert balancer.measured({"solver": 2.0, "verifier": 10.0}) == {1: "verifier", 3: "verifier"}


def test_a_small_gain_is_no_reason_to_move():
    load = {"solver": 24.0, "verifier": 10.0}  # 12 s with two engines each, 10 s with three and one
    assert Balancer(["solver", "verifier"], 4, every=1, gain=0.2).measured(load) == {}
    assert Balancer(["solver", "verifier"], 4, every=1, gain=0.1).measured(load) == {3: "solver"}
    assert Balancer(["solver", "verifier"], 4, every=1, gain=0.1).measured({"solver": 0.0, "verifier": 0.0}) == {}
