"""The order of tasks: every task once an epoch, the same order for a seed, resumable anywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.cursor import TaskCursor


def take(cursor, batches):
    return [cursor.next() for _ in range(batches)]


def test_an_epoch_has_every_task_once_and_the_next_another_order():
    cursor = TaskCursor(size=12, batch=4, seed=3)
    epochs = [[task for batch in take(cursor, 3) for task in batch] for _ in range(3)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_what_fills_no_batch_is_skipped():
    cursor = TaskCursor(size=5, batch=3, seed=0)
    first, second = take(cursor, 2)
    assert (cursor.epoch, cursor.position) == (1, 3)
    assert len(set(first)) == len(set(second)) == 3


@given(st.integers(1, 40), st.data())
def test_a_batch_has_different_tasks_and_resumes_anywhere(size, data):
    batch = data.draw(st.integers(1, size))
    seed = data.draw(st.integers(0, 2**63 - 1))
    before = data.draw(st.integers(0, 10))
    cursor = TaskCursor(size, batch, seed)
    whole = take(cursor, before + 5)
    assert all(len(set(tasks)) == batch and set(tasks) <= set(range(size)) for tasks in whole)
    stopped = TaskCursor(size, batch, seed)
    take(stopped, before)
    resumed = TaskCursor(size, batch, seed)
    resumed.next()  # where it was does not matter
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert take(resumed, 5) == whole[before:]


def test_the_order_depends_on_the_seed():
    assert take(TaskCursor(50, 10, 0), 5) == take(TaskCursor(50, 10, 0), 5) != take(TaskCursor(50, 10, 1), 5)


def test_tasks_are_plain_numbers():
    assert all(type(task) is int for task in TaskCursor(5, 5, 0).next())


def test_a_batch_larger_than_the_set_is_an_error():
    with pytest.raises(ValueError, match=r"6 different tasks cannot come from 5 tasks. Lower tasks_per_update"):
        TaskCursor(5, 6, 0)
