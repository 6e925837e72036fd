"""``llm-bench run`` killed with SIGKILL, by 20 random moments and by every call to the system that it makes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.cli import main
from benchmarks.results import read_lines
from benchmarks.summary import summarize
from trainers.folder_lock import FolderLock

TASKS, SAMPLES = 100, 2
KILLS = 20
RUN = ["run", "math-tool-2agent", "--policy", "oracle", "-n", str(TASKS), "-k", str(SAMPLES), "--quiet"]
BENCH = [sys.executable, "-m", "benchmarks.cli"]
"""Two agents that answer at once, one by a program that runs in a process of the sandbox: about 10 ms an episode."""


def start(path: Path, repository: Path, concurrency: int) -> subprocess.Popen[str]:
    arguments = [*RUN, "--out", str(path), "--resume", "--concurrency", str(concurrency)]
    return subprocess.Popen(
        [*BENCH, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=repository
    )


def whole_lines(file: Path) -> bytes:
    data = file.read_bytes() if file.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def test_killed_at_20_random_moments(tmp_path: Path, repository: Path) -> None:
    """Three of the kills come while the command starts, the others while it plays, some in the middle of a line.

    However fast the machine, episodes are left for the last kill: when most are stored, a run is killed as it begins.
    """
    generator = random.Random(6)
    reference, path = tmp_path / "whole", tmp_path / "run"
    uninterrupted = start(reference, repository, concurrency=3)
    kept, states, grown = b"", [], []
    for kill in range(KILLS):
        process = start(path, repository, concurrency=8)
        deadline = time.monotonic() + 60
        if kill % 7 == 0:
            moment = time.monotonic() + generator.uniform(0.0, 1.0)
            while time.monotonic() < moment and whole_lines(path / "episodes.jsonl") == kept:
                time.sleep(0.001)
        else:
            stored = kept.count(b"\n")
            wanted = stored + (generator.randrange(8) if stored < TASKS * SAMPLES // 2 else 0)
            while not (path / "lock").exists() or whole_lines(path / "episodes.jsonl").count(b"\n") < wanted:
                assert process.poll() is None, f"the run ended before it was killed: {process.stderr.read()}"  # type: ignore[union-attr]
                assert time.monotonic() < deadline
                time.sleep(0.001)
            if stored < TASKS * SAMPLES // 2:
                time.sleep(generator.uniform(0.0, 0.02))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        process.stderr.close()  # type: ignore[union-attr]
        now = whole_lines(path / "episodes.jsonl")
        assert now.startswith(kept), "an episode that was stored is lost"
        grown.append(now.count(b"\n") - kept.count(b"\n"))
        kept = now
        if (path / "config.json").exists():
            summary = summarize(path)
            assert summary["episodes"] == kept.count(b"\n")
            assert summary["state"] in ("killed", "stopped")  # stopped: killed before it took the lock again
            states.append(summary["state"])
    assert states.count("killed") >= KILLS // 2
    assert 0 < kept.count(b"\n") < TASKS * SAMPLES
    assert sum(count > 0 for count in grown) >= KILLS // 4

    assert uninterrupted.wait(timeout=120) == 0, uninterrupted.communicate()[1]
    uninterrupted.stderr.close()  # type: ignore[union-attr]
    last = start(path, repository, concurrency=8)
    assert last.wait(timeout=120) == 0, last.communicate()[1]
    last.stderr.close()  # type: ignore[union-attr]
    assert_same(path, reference)
    assert summarize(path)["state"] == "complete"


def assert_same(path: Path, reference: Path) -> None:
    """All that an interrupted run and one that was not must have in common, and nothing besides in the folder."""
    episodes = (path / "episodes.jsonl").read_bytes()
    assert episodes == (reference / "episodes.jsonl").read_bytes()
    ids = [json.loads(line)["id"] for line in episodes.splitlines()]
    assert len(set(ids)) == len(ids)
    for folder in (path, reference):
        assert sorted(record["id"] for record in read_lines(folder, "timings.jsonl")) == sorted(ids)
        assert not (folder / "errors.jsonl").read_bytes()
        assert {file.name for file in folder.iterdir()} == {
            "config.json", "episodes.jsonl", "timings.jsonl", "errors.jsonl", "lock"
        }  # fmt: skip
        assert (folder / "lock").read_bytes() == b""
    configs = [json.loads((folder / "config.json").read_text()) for folder in (path, reference)]
    assert configs[0]["identity"] == configs[1]["identity"]


EVERY_CALL = """
import os, signal, sys
from pathlib import Path
from benchmarks.results import ResultsFolder
from trainers.rollout.records import Episode, Turn

CONFIG = {"identity": {"env": "e-v0", "n": 4, "samples": 1}, "context": {"label": "p"}}
CALLS = ("open", "write", "pwrite", "ftruncate", "fsync", "replace", "close", "unlink")

def episode(index):
    turn = Turn(f"t/{index}#0", f"t/{index}", "a_0", "p", 0, 0, "question", f"answer {index}", latency_s=0.5)
    return Episode(f"t/{index}#0", "e-v0", f"t/{index}", index, f"h{index}", 0, 1, turns=[turn], wall_s=0.75)

def play(path):
    with ResultsFolder(path, CONFIG, resume=True) as folder:
        for index in (2, 0, 3, 1):
            if (index, 0) not in folder.done:
                folder.add(episode(index))
        folder.sort()

def watched(name, die_at, half, count):
    call = getattr(os, name)
    def instead(*arguments, **named):
        count[0] += 1
        if count[0] == die_at:
            if half and name == "write":
                call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "fsync":  # takes most of the time, and no machine goes down here
            return None
        return call(*arguments, **named)
    return instead

def session(path, die_at=0, half=False):
    "Play in a process of its own, which kills itself at a call to the system. Returns whether it did."
    child = os.fork()
    if child == 0:
        count = [0]
        for name in CALLS:
            setattr(os, name, watched(name, die_at, half, count))
        play(path)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0, (path, status)
    return os.WIFSIGNALED(status)

root = Path(sys.argv[1])
play(root / "whole")
expected = (root / "whole" / "episodes.jsonl").read_bytes()
die_at, died = 0, True
while died:
    die_at += 1
    for half in (False, True):
        path = root / f"{die_at}-{half}"
        died = session(path, die_at, half)
        if died:  # again at the same call of the next one: what it finds is already what a killed one left
            stored = (path / "episodes.jsonl").read_bytes() if (path / "episodes.jsonl").exists() else b""
            session(path, die_at, half)
            again = (path / "episodes.jsonl").read_bytes() if (path / "episodes.jsonl").exists() else b""
            whole = stored[: stored.rfind(b"\\n") + 1]
            assert sorted(set(whole.splitlines()) - set(again.splitlines())) == [], (path, "an episode is lost")
            session(path)
        assert (path / "episodes.jsonl").read_bytes() == expected, path
        assert (path / "timings.jsonl").read_bytes().count(b"\\n") == 4, path
        assert sorted(file.name for file in path.iterdir()) == [
            "config.json", "episodes.jsonl", "errors.jsonl", "lock", "timings.jsonl"], path
print(die_at - 1)
"""


def test_killed_at_every_call_to_the_system(tmp_path: Path, repository: Path) -> None:
    """From the first open to the last close, before the call and in the middle of writes; and then once more."""
    done = subprocess.run(
        [sys.executable, "-c", EVERY_CALL, str(tmp_path)], capture_output=True, text=True, cwd=repository, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30
    assert len(os.listdir(tmp_path)) > 60


def test_a_run_of_other_settings_is_refused_and_nothing_of_it_changes(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "run"
    command = [*BENCH, "run", "math-2agent", "--policy", "random", "-n", "4", "--quiet", "--out", str(path)]
    subprocess.run(command, cwd=repository, check=True, capture_output=True)
    (path / "episodes.jsonl").write_bytes(b"".join((path / "episodes.jsonl").read_bytes().splitlines(True)[:2]))
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    done = subprocess.run(
        [*command, "--resume", "--seed", "9", "--temperature", "0.5"],
        cwd=repository, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "holds a run with other settings, so it cannot be resumed with these" in done.stderr
    assert "seed: 0 in the folder, 9 now" in done.stderr
    assert "sampling.temperature: 1.0 in the folder, 0.5 now" in done.stderr
    assert "Traceback" not in done.stderr
    assert before == {file.name: file.read_bytes() for file in path.iterdir()}


def test_a_second_runner_is_refused_by_the_number_of_the_first(
    tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run"
    first = start(path, repository, concurrency=2)
    try:
        deadline = time.monotonic() + 60
        while not whole_lines(path / "episodes.jsonl"):
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        first.send_signal(signal.SIGSTOP)  # it holds the folder, and will not end before it is looked at
        for more in (["--resume"], []):
            assert main([*RUN, "--out", str(path), *more]) == 2
            assert f"Another runner (process {first.pid}) is writing to {path}; wait for it" in capsys.readouterr().err
        summary = summarize(path)
        assert (summary["state"], summary["writer"]) == ("running", first.pid)
        assert main(["report", str(path)]) == 0
        assert f"process {first.pid} is playing it now" in capsys.readouterr().out
        kept = whole_lines(path / "episodes.jsonl")
    finally:
        first.kill()
        first.communicate()
    summary = summarize(path)
    assert (summary["state"], summary["writer"]) == ("killed", first.pid)
    assert main(["report", str(path)]) == 0
    shown = capsys.readouterr().out
    assert f"process {first.pid} was killed, or its machine went down; " in shown
    assert "--resume plays them" in shown
    with FolderLock(path):  # the kernel gave it back
        assert whole_lines(path / "episodes.jsonl") == kept
