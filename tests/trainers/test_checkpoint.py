"""Checkpoints appear whole or not at all, the newest stay, and what is damaged is said."""

from __future__ import annotations

import json
import os
import resource
import shutil

import pytest
import torch

from trainers import checkpoint
from trainers.checkpoint import CheckpointError, complete, load, save

STATE = {"cursor": {"epoch": 0, "position": 4}}


def policies(value=1.0):
    return {"solver": {"weights": {"w": torch.full((300,), value)}, "steps": 3}}


def names(run_dir):
    return sorted(path.name for path in (run_dir / "checkpoints").iterdir())


def test_what_is_saved_is_loaded(tmp_path):
    folder = save(tmp_path, 7, STATE, {**policies(), "verifier.v2": {"steps": 1}}, keep=1)
    trainer, learners = load(folder)
    assert trainer == {"update": 7, **STATE}
    assert torch.equal(learners["solver"]["weights"]["w"], torch.full((300,), 1.0))
    assert learners["solver"]["steps"] == 3
    assert learners["verifier.v2"] == {"steps": 1}
    assert names(tmp_path) == ["update-000007"]


def test_the_newest_are_kept_in_order_of_their_number(tmp_path):
    for update in (1, 2, 10, 1_000_000):
        save(tmp_path, update, STATE, policies(), keep=3)
    assert [path.name for path in complete(tmp_path)] == ["update-000002", "update-000010", "update-1000000"]
    assert names(tmp_path) == ["update-000002", "update-000010", "update-1000000"]


def test_a_run_without_checkpoints_has_none(tmp_path):
    assert complete(tmp_path) == []


def test_a_stopped_state_is_no_checkpoint_and_drops_none(tmp_path):
    for update in (1, 2):
        save(tmp_path, update, STATE, policies(), keep=2)
    save(tmp_path, 2, STATE, policies(5.0), keep=1, stopped=True)
    save(tmp_path, 2, STATE, policies(6.0), keep=1, stopped=True)
    assert names(tmp_path) == ["stopped-000002", "update-000001", "update-000002"]
    assert [path.name for path in complete(tmp_path)] == ["update-000001", "update-000002"]
    assert load(tmp_path / "checkpoints" / "stopped-000002")[1]["solver"]["weights"]["w"][0] == 6.0


@pytest.mark.parametrize(
    ("state", "learners"),
    [(STATE, policies()), ({"long": "x" * 100_000}, {"solver": {"steps": 2}})],
    ids=["in the weights", "in the state"],
)
def test_a_full_disk_leaves_the_old_ones(tmp_path, state, learners):
    """No file may grow beyond 1,500 bytes, as on a full disk."""
    save(tmp_path, 1, STATE, {"solver": {"steps": 1}}, keep=1)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"update-000002 could not be written"):
            save(tmp_path, 2, state, learners, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == ["update-000001"]
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    save(tmp_path, 2, STATE, policies(), keep=1)
    assert names(tmp_path) == ["update-000002"]


def test_a_kill_while_writing_leaves_the_old_ones(tmp_path, monkeypatch):
    """Killed after the weights: what is left behind is no checkpoint, and the next save removes it."""
    save(tmp_path, 1, STATE, policies(), keep=1)

    class Killed(BaseException):
        pass

    def die(*args, **kwargs):
        raise Killed

    monkeypatch.setattr(checkpoint.json, "dump", die)
    with pytest.raises(Killed):
        save(tmp_path, 2, STATE, policies(2.0), keep=1)
    monkeypatch.undo()
    assert [path.name for path in complete(tmp_path)] == ["update-000001"]
    load(complete(tmp_path)[-1])
    save(tmp_path, 2, STATE, policies(2.0), keep=1)
    assert names(tmp_path) == ["update-000002"]


def test_a_kill_while_dropping_leaves_no_half_checkpoint(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    real = shutil.rmtree

    def die_half_way(path, *args, **kwargs):
        if str(path).endswith(".dropped") and os.path.isdir(path):
            os.remove(os.path.join(path, "trainer.json"))
            raise Killed
        real(path, *args, **kwargs)

    save(tmp_path, 1, STATE, policies(), keep=1)
    monkeypatch.setattr(checkpoint.shutil, "rmtree", die_half_way)
    with pytest.raises(Killed):
        save(tmp_path, 2, STATE, policies(), keep=1)
    monkeypatch.undo()
    assert [path.name for path in complete(tmp_path)] == ["update-000002"]


def test_the_files_reach_the_disk_before_the_name_does(tmp_path, monkeypatch):
    """Every byte of a file is handed over before it is flushed, and the rename comes last."""
    calls = []
    fsync = os.fsync

    def note(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        calls.append((os.path.basename(path), os.path.getsize(path)))
        fsync(descriptor)

    monkeypatch.setattr(checkpoint.os, "fsync", note)
    folder = save(tmp_path, 1, STATE, policies(), keep=1)
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    synced = dict(calls)
    assert {name: synced[name] for name in sizes} == sizes
    assert [name for name, _ in calls][-2:] == [".update-000001.partial", "checkpoints"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "solver.pt").write_bytes((folder / "solver.pt").read_bytes()[:700]),
        lambda folder: (folder / "solver.pt").write_bytes(b""),
        lambda folder: (folder / "solver.pt").write_bytes(b"garbage" * 50),
        lambda folder: (folder / "trainer.json").write_text('{"update": 1, "cur'),
        lambda folder: (folder / "trainer.json").unlink(),
    ],
    ids=["torn", "empty", "garbage", "torn state", "no state"],
)
def test_a_damaged_file_is_named(tmp_path, damage):
    folder = save(tmp_path, 1, STATE, policies(), keep=1)
    damage(folder)
    with pytest.raises(CheckpointError, match=r"update-000001 cannot be read: .*Remove the folder"):
        load(folder)


def test_no_code_in_a_checkpoint_is_run(tmp_path):
    folder = save(tmp_path, 1, STATE, policies(), keep=1)
    witness = tmp_path / "ran"

    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(witness),))

    torch.save({"weights": Trap()}, folder / "solver.pt")
    torch.load(folder / "solver.pt", weights_only=False)
    assert witness.is_dir()  # the trap works
    witness.rmdir()
    with pytest.raises(CheckpointError):
        load(folder)
    assert not witness.exists()


def test_the_state_is_plain_json(tmp_path):
    folder = save(tmp_path, 3, STATE, {}, keep=1)
    assert json.loads((folder / "trainer.json").read_text()) == {"update": 3, **STATE}
