"""What a run does on a disk that is full, in a folder that may only be read, and with a last line that was cut off."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import ResultsFolder, read_lines
from benchmarks.runner import RunResult
from benchmarks.summary import summarize
from benchmarks.viewer.source import Source
from trainers.policies.scripted import ReplayPolicy
from trainers.rollout.records import Episode, Turn

PlayRun = Callable[..., tuple[RunResult, Any]]

CONFIG = {"identity": {"env": "e-v0", "n": 3, "samples": 1}, "context": {"label": "p"}}
TEXT = "é ∑ 🂡 \u202e \x00 \ud800"
"""Two, three and four bytes a character in UTF-8, a character that turns the direction, NUL, and half a pair."""


def episode(index: int) -> Episode:
    turn = Turn(f"t/{index}#0", f"t/{index}", "a_0", "p", 0, 0, TEXT, f"{TEXT} {index}", latency_s=0.5)
    return Episode(f"t/{index}#0", "e-v0", f"t/{index}", index, f"h{index}", 0, 1, turns=[turn], wall_s=0.75)


def as_utf8(line: bytes) -> bytes:
    """Return the line as another tool may write it back: the characters themselves in the place of their escapes."""
    record = json.loads(line.replace(b"\\ud800", b"?"))
    return json.dumps(record, ensure_ascii=False).encode("utf-8") + b"\n"


@pytest.mark.parametrize("written", ["as it is written", "as UTF-8"])
def test_the_last_line_cut_at_every_place(tmp_path: Path, written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # no machine goes down here, and it takes most of the time
    path = tmp_path / "run"
    with ResultsFolder(path, CONFIG) as folder:
        for index in range(3):
            folder.add(episode(index))
    file = path / "episodes.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    if written == "as UTF-8":
        lines = [*map(as_utf8, lines[:2]), lines[2]]
        torn = as_utf8(lines[2])
        assert max(torn) > 127
    else:
        torn = lines[2]
        assert max(torn) < 128
    kept, whole = b"".join(lines[:2]), b"".join(lines)
    for cut in range(len(torn)):
        file.write_bytes(kept + torn[:cut])
        assert [record["task_index"] for record in read_lines(path, "episodes.jsonl")] == [0, 1], cut
        assert len(ReplayPolicy(path)._turns) == (2 if cut < len(torn) - 1 else 3), cut  # only the newline is missing
        with ResultsFolder(path, CONFIG, resume=True) as folder:
            assert folder.done == {(0, 0), (1, 0)}, cut
            assert file.read_bytes() == kept, cut
            folder.add(episode(2))
            folder.sort()
        assert file.read_bytes() == whole, cut
        assert [record["id"] for record in read_lines(path, "timings.jsonl")] == ["t/0#0", "t/1#0", "t/2#0"], cut


def test_a_run_goes_on_from_any_cut_of_its_last_line(play_run: PlayRun, tmp_path: Path) -> None:
    play_run()
    file = tmp_path / "run" / "episodes.jsonl"
    whole = file.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in (last + 1, (last + len(whole)) // 2, len(whole) - 1):
        file.write_bytes(whole[:cut])
        assert summarize(tmp_path / "run")["episodes"] == 11
        assert len(Source(tmp_path / "run").index()["columns"]["id"]) == 11
        result, observer = play_run(resume=True)
        assert result.complete
        assert len(observer.episodes) == 1
        assert file.read_bytes() == whole


INSIDE = """
import subprocess, sys
from pathlib import Path

disk, bench = Path(sys.argv[1]), [sys.executable, "-m", "benchmarks.cli"]
run = [*bench, "run", "math-2agent", "--policy", "random", "-n", "40", "-k", "2", "--quiet", "--concurrency", "5"]
mount = lambda options: subprocess.run(["mount", "-o", options, "-t", "tmpfs", "tmpfs", str(disk)], check=True)

def play(*more):
    done = subprocess.run([*run, "--out", str(disk / "run"), *more], capture_output=True, text=True)
    if "Traceback" in done.stderr:
        sys.exit(done.stderr)
    return done

def stored():
    return (disk / "run" / "episodes.jsonl").read_bytes()
"""

FULL = """
mount("size=48k")
first = play()
assert first.returncode == 2, first
assert "No space left on device" in first.stderr, first
assert str(disk / "run") in first.stderr, first
assert "What was written before is kept; when that is mended, --resume goes on" in first.stderr, first
kept = stored()
assert kept.endswith(b"\\n") and 5 < kept.count(b"\\n") < 80, kept
times = (disk / "run" / "timings.jsonl").read_bytes()
assert times.count(b"\\n") == kept.count(b"\\n"), (times, kept)

again = play("--resume")  # still no room
assert again.returncode == 2 and "No space left on device" in again.stderr, again
assert stored().startswith(kept)
report = subprocess.run([*bench, "report", str(disk / "run")], capture_output=True, text=True, check=True)
assert "episodes are missing. --resume plays them" in report.stdout, report

size = lambda: sum(file.stat().st_size for file in (disk / "run").iterdir())
whole = Path(sys.argv[2])
need = sum(file.stat().st_size for file in whole.iterdir())
mount(f"remount,size={need + 16384}")  # room for all episodes, not for putting them in order
unsorted = play("--resume")
assert unsorted.returncode == 2 and "No space left on device" in unsorted.stderr, unsorted
assert sorted(stored().splitlines()) == sorted((whole / "episodes.jsonl").read_bytes().splitlines())
assert not list((disk / "run").glob("*.tmp")), "takes up what is left of the disk"

mount("remount,size=4m")
last = play("--resume")
assert last.returncode == 0, last
assert stored() == (whole / "episodes.jsonl").read_bytes()
assert (disk / "run" / "timings.jsonl").read_bytes().count(b"\\n") == 80
"""

READ_ONLY = """
mount("size=4m")
mount("remount,ro")
refused = play()
assert refused.returncode == 2 and "Read-only file system" in refused.stderr, refused
assert str(disk / "run") in refused.stderr, refused
mount("remount,rw")
assert not (disk / "run").exists()

assert play().returncode == 0
episodes = stored()
(disk / "run" / "episodes.jsonl").write_bytes(episodes[: len(episodes) // 2])  # in the middle of a line
half = {file.name: file.read_bytes() for file in (disk / "run").iterdir()}
mount("remount,ro")
refused = play("--resume")
assert refused.returncode == 2 and "Read-only file system" in refused.stderr, refused
for command in (["report"], ["table"], ["view", "--html", sys.argv[2] + "/page.html"]):
    read = subprocess.run([*bench, *command, str(disk / "run")], capture_output=True, text=True)
    assert read.returncode == 0, read
assert half == {file.name: file.read_bytes() for file in (disk / "run").iterdir()}
mount("remount,rw")
assert play("--resume").returncode == 0
assert stored() == episodes == (Path(sys.argv[2]) / "episodes.jsonl").read_bytes()
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The run that the scripts above play, uninterrupted."""
    path = tmp_path_factory.mktemp("whole") / "run"
    run = ["run", "math-2agent", "--policy", "random", "-n", "40", "-k", "2", "--quiet", "--out", str(path)]
    subprocess.run([sys.executable, "-m", "benchmarks.cli", *run], check=True, cwd=repository, capture_output=True)
    return path


def with_own_mounts(repository: Path, script: str, *arguments: Path) -> None:
    """Run a script in a name space of mounts of its own, where it may mount a small disk."""
    unshare = shutil.which("unshare")
    apart = [unshare or "", "--mount"] if os.geteuid() == 0 else [unshare or "", "--user", "--map-root-user", "--mount"]
    probe = 'mount -t tmpfs -o size=16k tmpfs "$0" && umount "$0"'
    allowed = unshare and subprocess.run(
        [*apart, "sh", "-c", probe, str(arguments[0])], check=False, capture_output=True
    )
    if not allowed or allowed.returncode:
        pytest.skip("a small disk can be mounted only by root, or in a name space of one's own (unshare)")
    done = subprocess.run(
        [*apart, sys.executable, "-c", INSIDE + script, *map(str, arguments)],
        cwd=repository, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_full_disk_loses_nothing_and_says_so(tmp_path: Path, repository: Path, whole: Path) -> None:
    with_own_mounts(repository, FULL, tmp_path, whole)


def test_a_folder_that_may_only_be_read(tmp_path: Path, repository: Path, whole: Path) -> None:
    with_own_mounts(repository, READ_ONLY, tmp_path, whole)
