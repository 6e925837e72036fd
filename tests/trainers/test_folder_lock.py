"""One writer a folder, and what is left of one that was killed."""

import errno
import os
import subprocess
import sys

import pytest

from trainers.api import train
from trainers.folder_lock import LOCK, FolderBusyError, FolderLock, Writer, find_writer
from trainers.run_folder import RunError
from trainers.run_report import write_report

HOLD = """
import sys, time
from pathlib import Path
from trainers.folder_lock import FolderLock
with FolderLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""

ASK = """
import sys
from pathlib import Path
from trainers.folder_lock import find_writer
print(find_writer(Path(sys.argv[1])))
"""


@pytest.fixture
def holder(tmp_path, repository):
    """Another process that holds the folder until it is killed, or its input ends."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=repository) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_nobody_ever_wrote(tmp_path):
    assert find_writer(tmp_path) == Writer("closed", None)
    assert find_writer(tmp_path / "nowhere") == Writer("closed", None)
    assert not (tmp_path / LOCK).exists()


def test_another_process_writes_and_closes(tmp_path, holder):
    for _ in range(3):  # to ask changes nothing
        assert find_writer(tmp_path) == Writer("running", holder.pid)
    with pytest.raises(FolderBusyError, match=rf"Another runner \(process {holder.pid}\) is writing to"):
        FolderLock(tmp_path)
    assert find_writer(tmp_path) == Writer("running", holder.pid)
    holder.stdin.close()
    assert holder.wait() == 0
    assert find_writer(tmp_path) == Writer("closed", None)


def test_another_process_is_killed(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert find_writer(tmp_path) == Writer("killed", holder.pid)
    with FolderLock(tmp_path):
        assert find_writer(tmp_path) == Writer("running", os.getpid())
    assert find_writer(tmp_path) == Writer("closed", None)


def test_to_ask_does_not_give_the_lock_back(tmp_path, repository):
    """Closing any descriptor of a file gives up all record locks that a process has on it."""
    with FolderLock(tmp_path):
        assert find_writer(tmp_path / ".") == Writer("running", os.getpid())
        shown = subprocess.run(
            [sys.executable, "-c", ASK, str(tmp_path)], capture_output=True, text=True, check=True, cwd=repository
        )
        assert shown.stdout == f"Writer(state='running', pid={os.getpid()})\n"


def test_the_lock_file_of_an_older_version_says_nothing_of_how_it_ended(tmp_path):
    (tmp_path / LOCK).write_text("123\n")
    assert find_writer(tmp_path) == Writer("closed", None)


def test_a_lock_that_could_not_be_written_is_not_held(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        FolderLock(tmp_path)
    monkeypatch.undo()
    with FolderLock(tmp_path):
        pass


def test_two_training_runs_in_one_folder(tmp_path, holder, recipe):
    with pytest.raises(RunError, match=rf"process {holder.pid}"):
        train(recipe(), out=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {LOCK}, "something was made for nothing"


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("", "1 of 9 updates; not finished: process {pid} is at work on it."),
        ("kill", "1 of 9 updates; not finished: process {pid} was killed, or its machine went down."),
        ("close", "1 of 9 updates; not finished: it was interrupted."),
    ],
)
def test_the_report_of_a_training_run_tells_how_it_stands(tmp_path, holder, ending, said):
    (tmp_path / "config.json").write_text('{"updates": 9}')
    (tmp_path / "metrics.jsonl").write_text('{"update": 1, "train/success": 0.5}\n')
    if ending == "kill":
        holder.kill()
    elif ending == "close":
        holder.stdin.close()
    if ending:
        holder.wait()
    assert said.format(pid=holder.pid) in write_report([tmp_path]).read_text()
