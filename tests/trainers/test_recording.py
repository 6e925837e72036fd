"""What a training run leaves of the episodes it was trained on: which, how much, and never twice."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from benchmarks.viewer.source import Source
from trainers.api import train
from trainers.config import RecordConfig
from trainers.learner import Learner, NonFiniteGradient
from trainers.recording import Recorder
from trainers.rollout.records import Episode, Turn
from trainers.run_folder import EPISODES_FILE, RunError


def read(run_dir):
    """The recorded episodes."""
    return [Episode.from_json(line) for line in (run_dir / EPISODES_FILE).read_text(encoding="ascii").splitlines()]


def updates(run_dir):
    return [episode.update for episode in read(run_dir)]


def episode(number=0, *, text="four", info=None, turns=2):
    """An episode of two policies."""
    key = f"task/{number}#0"
    names = ["solver", "verifier"] * turns
    return Episode(
        id=key, env="math-2agent-v0", task=f"task/{number}", task_index=number, task_hash=str(number), sample=0, seed=1,
        turns=[
            Turn(key, f"task/{number}", f"{names[i]}_0", names[i], i, i // 2, "?", text, (1,), (2,), (-0.5,),
                 info=info or {})
            for i in range(turns)
        ],
        returns={"solver_0": 1.0, "verifier_0": 1.0}, wall_s=3.0,
    )  # fmt: skip


def write(run_dir, batches, **settings):
    """Record batches of episodes as updates 1, 2, ….

    The advantages are 0, 1, 2, … over the turns of a batch.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(run_dir, RecordConfig(**settings), resume_after=0)
    for update, batch in enumerate(batches, start=1):
        advantages = np.arange(sum(len(one.turns) for one in batch), dtype=np.float64)
        recorder.write(update, batch, advantages, kept=None, learning=["solver", "verifier"])
    return run_dir


def test_a_run_records_its_first_last_and_every_so_many_updates(recipe, tmp_path):
    result = train(recipe(updates=5, record={"every": 2, "episodes": 6}), out=tmp_path / "run")
    records = read(result.run_dir)
    assert [one.update for one in records] == [1] * 6 + [2] * 6 + [4] * 6 + [5] * 6
    assert [one.sample for one in records[:6]] == [0, 1, 2, 3, 0, 1]  # the group of a task, then the next
    assert len({one.task for one in records[:4]}) == 1
    turns = [turn for one in records for turn in one.turns]
    assert all(turn.advantage is not None for turn in turns)
    assert any(turn.advantage for turn in turns)
    assert all(turn.prompt_ids is None and turn.logprobs is None for turn in turns)
    group = [one.turns[0].advantage for one in records[:4]]
    assert sum(group) == pytest.approx(0, abs=1e-6)
    assert Source(result.run_dir).index()["columns"]["update"][::6] == [1, 2, 4, 5]


def test_trees_are_recorded_whole(recipe, tmp_path):
    values = recipe(updates=1, algorithm={"preset": "at_grpo"})
    result = train(values, out=tmp_path / "run")
    (first, *_) = records = read(result.run_dir)
    assert len(records) == 4
    assert all(one.tree for one in records)
    siblings = [turn for turn in first.turns if turn.index == 0]
    assert [turn.candidate for turn in siblings] == [0, 1, 2, 3]
    assert [turn.chosen for turn in siblings].count(True) == 1
    assert sum(turn.advantage for turn in siblings) == pytest.approx(0, abs=1e-5)


def test_none_and_frozen(recipe, tmp_path):
    values = recipe(updates=1)
    values["policies"]["verifier"] = {"backend": "oracle", "trainable": False}
    advantages = {}
    for turn in [turn for one in read(train(values, out=tmp_path / "some").run_dir) for turn in one.turns]:
        advantages.setdefault(turn.agent, set()).add(turn.advantage)
    assert advantages["verifier_0"] == {None}
    assert None not in advantages["solver_0"]
    without = train({**values, "record": {"every": 0}}, out=tmp_path / "none")
    assert not (without.run_dir / EPISODES_FILE).exists()


def test_a_run_with_records_learns_what_one_without_learns(recipe, runs, tmp_path):
    for name, every in (("with", 1), ("without", 0)):
        train(recipe(record={"every": every}), out=tmp_path / name)
    assert runs.metrics(tmp_path / "with") == runs.metrics(tmp_path / "without")
    for policy in ("solver", "verifier"):
        assert runs.same(runs.weights(tmp_path / "with", policy), runs.weights(tmp_path / "without", policy))


def test_a_killed_run_that_goes_on_has_every_record_once(recipe, runs, tmp_path):
    """Checkpoints are every third update and records every second, so some are made again and none is there twice."""
    values = recipe(updates=8, record={"every": 2}, checkpoint={"every": 3, "keep": 2})
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(values, out=whole)
    rng = random.Random(0)
    runs.kill(values, cut, after=5, delay=rng.uniform(0, 0.05))
    with (cut / EPISODES_FILE).open("a", encoding="ascii") as file:
        file.write('{"id": "torn')
    train(values, out=cut, resume=True)
    assert updates(whole) == sorted([1, 2, 4, 6, 8] * 8)
    assert (cut / EPISODES_FILE).read_bytes() == (whole / EPISODES_FILE).read_bytes()
    assert runs.metrics(cut) == runs.metrics(whole)


def test_what_stopped_a_run_is_recorded(recipe, tmp_path, monkeypatch):
    backward = Learner._backward

    def poisoned(self, samples, part, *args):
        loss = backward(self, samples, part, *args)
        if self.updates == 2:
            next(iter(self._trainable.values())).grad[0, 0] = torch.nan
        return loss

    values = recipe(updates=4)
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "_backward", poisoned)
        with pytest.raises(NonFiniteGradient):
            train(values, out=tmp_path / "run")
    assert sorted(set(updates(tmp_path / "run"))) == [1, 3]
    train(values, out=tmp_path / "run", resume=True)
    assert sorted(set(updates(tmp_path / "run"))) == [1, 4]


def test_an_update_takes_no_more_room_than_it_may(tmp_path):
    batch = [episode(0, text="x" * 3000), episode(1, text="y" * 200_000), episode(2), episode(3, text="z" * 900_000)]
    records = read(write(tmp_path, [batch], max_mib=0.02))
    assert [one.task_index for one in records] == [0, 2]  # a later one that fits is there
    assert [turn.advantage for turn in records[1].turns] == [4.0, 5.0]  # its own, not those of what was left out
    assert (tmp_path / EPISODES_FILE).stat().st_size <= 0.02 * 2**20


def test_what_json_cannot_hold_is_left_out_and_said(tmp_path, caplog):
    write(tmp_path, [[episode(0, info={"x": object()}), episode(1, info={"x": float("nan")}), episode(2)]])
    assert [one.task_index for one in read(tmp_path)] == [2]
    assert "Episode task/0#0 of update 1 is not recorded" in caplog.text
    assert "Episode task/1#0 of update 1 is not recorded" in caplog.text


def test_turns_that_an_update_leaves_out_have_no_advantage(tmp_path):
    one = episode(0, turns=4)
    one.turns[0].masked = True
    recorder = Recorder(tmp_path, RecordConfig(), resume_after=0)
    kept = np.array([True, True, False, True])
    advantages = np.array([1.0, 2.0, 3.0, np.nan])
    recorder.write(1, [one], advantages, kept=kept, learning=["solver", "verifier"])
    assert [turn.advantage for turn in read(tmp_path)[0].turns] == [None, 2.0, None, None]


@pytest.mark.parametrize("after", range(5))
def test_going_on_drops_what_is_later(tmp_path, after):
    write(tmp_path, [[episode(0), episode(1)] for _ in range(4)])
    with (tmp_path / EPISODES_FILE).open("ab") as file:
        file.write(b'{"id": "task/0#0", "upd')
    Recorder(tmp_path, RecordConfig(), resume_after=after)
    assert updates(tmp_path) == [update for update in (1, 2, 3, 4) for _ in range(2) if update <= after]


def test_a_full_disk_leaves_whole_lines_and_says_what_to_do(tmp_path, monkeypatch):
    write(tmp_path, [[episode(0)]])
    before = (tmp_path / EPISODES_FILE).read_bytes()
    recorder = Recorder(tmp_path, RecordConfig(), resume_after=1)
    opened = type(tmp_path).open

    class Full:
        """A file that takes ten bytes, and then no more."""

        def __init__(self, file):
            self._file, self._room = file, 10

        def __enter__(self):
            return self

        def __exit__(self, *args):
            self._file.close()

        def __getattr__(self, name):
            return getattr(self._file, name)

        def write(self, data):
            if not self._room:
                raise OSError(28, "No space left on device")
            self._room = 0
            return self._file.write(bytes(data[:10]))

    monkeypatch.setattr(type(tmp_path), "open", lambda path, *a, **k: Full(opened(path, *a, **k)))
    with pytest.raises(RunError, match=r"episodes of update 2 .*No space left.*record\.every=0"):
        recorder.write(2, [episode(1)], np.zeros(2), kept=None, learning=["solver"])
    monkeypatch.undo()
    assert (tmp_path / EPISODES_FILE).read_bytes() == before


def test_records_of_something_else_are_not_touched(recipe, tmp_path):
    out = tmp_path / "demos"
    out.mkdir()
    (out / EPISODES_FILE).write_text(json.dumps({"id": "x"}) + "\n")
    with pytest.raises(RunError, match=r"episodes\.jsonl is there, of something else"):
        train(recipe(), out=out)
    with pytest.raises(RunError, match="line 1 is no record of an update"):
        Recorder(out, RecordConfig(), resume_after=3)
    assert (out / EPISODES_FILE).read_text() == '{"id": "x"}\n'
