"""The results folder: append, resume, torn lines, locks, full disks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.results import ResultsError, ResultsFolder, differences, read_config, read_lines
from benchmarks.schema import SCHEMA_VERSION
from trainers.rollout.records import Episode, Turn

CONFIG = {"identity": {"env": "e-v0", "seed": 0}, "context": {"label": "p"}}


def episode(index: int, sample: int = 0, **changes: Any) -> Episode:
    turn = Turn(f"t/{index}#{sample}", f"t/{index}", "a_0", "p", 0, 0, "question", f"answer {index}", latency_s=0.5)
    turn.completion_ids = (1, 2)
    values: dict[str, Any] = {
        "id": f"t/{index}#{sample}", "env": "e-v0", "task": f"t/{index}", "task_index": index, "task_hash": f"h{index}",
        "sample": sample, "seed": 1, "turns": [turn], "wall_s": 0.75, **changes,
    }  # fmt: skip
    return Episode(**values)


def ids(path: Path) -> list[str]:
    return [record["id"] for record in read_lines(path, "episodes.jsonl")]


def test_episodes_are_stored_without_what_differs_between_runs(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG) as folder:
        folder.add(episode(0))
    (line,) = (tmp_path / "r" / "episodes.jsonl").read_text().splitlines()
    assert "latency_s" not in line
    assert "wall_s" not in line
    assert "completion_ids" not in line
    assert Episode.from_json(line).turns[0].action == "answer 0"
    (timing,) = read_lines(tmp_path / "r", "timings.jsonl")
    assert timing.pop("ended") == pytest.approx(time.time(), abs=60)
    assert timing == {"id": "t/0#0", "wall_s": 0.75, "latency_s": [0.5]}
    assert read_config(tmp_path / "r") == {"schema_version": SCHEMA_VERSION, **CONFIG}


def test_tokens_are_stored_on_request(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG, save_tokens=True) as folder:
        folder.add(episode(0))
    (record,) = read_lines(tmp_path / "r", "episodes.jsonl")
    assert record["turns"][0]["completion_ids"] == [1, 2]


def test_sorting_gives_the_same_bytes_whatever_the_order(tmp_path: Path) -> None:
    keys = [(0, 0), (0, 1), (1, 0), (10, 0), (2, 1)]
    for name, order in (("a", keys), ("b", keys[::-1]), ("c", keys[2:] + keys[:2])):
        with ResultsFolder(tmp_path / name, CONFIG) as folder:
            for key in order:
                folder.add(episode(*key))
            folder.sort()
            folder.sort()
    first = (tmp_path / "a" / "episodes.jsonl").read_bytes()
    assert ids(tmp_path / "a") == ["t/0#0", "t/0#1", "t/1#0", "t/2#1", "t/10#0"]
    assert first == (tmp_path / "b" / "episodes.jsonl").read_bytes() == (tmp_path / "c" / "episodes.jsonl").read_bytes()
    assert not list((tmp_path / "a").glob("*.tmp"))


def test_one_can_append_after_sorting(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG) as folder:
        folder.add(episode(3))
        folder.add(episode(1))
        folder.sort()
        folder.add(episode(2))
        assert ids(tmp_path / "r") == ["t/1#0", "t/3#0", "t/2#0"]
        folder.sort()
        assert ids(tmp_path / "r") == ["t/1#0", "t/2#0", "t/3#0"]


def test_resume_knows_what_is_done(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG) as folder:
        folder.add(episode(4, 1, success=True))
    with ResultsFolder(tmp_path / "r", CONFIG, resume=True) as folder:
        assert folder.done == {(4, 1)}
        assert [(s.task_index, s.success, s.task_hash) for s in folder.stored] == [(4, True, "h4")]
        with pytest.raises(ValueError, match="already in"):
            folder.add(episode(4, 1))


@pytest.mark.parametrize("name", ["episodes.jsonl", "timings.jsonl", "errors.jsonl"])
@pytest.mark.parametrize("torn", [b'{"id": "t/9#0", "tas', b"{", b"\xf0\x9f", b"x" * 200_000])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, name: str, torn: bytes) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG) as folder:
        folder.add(episode(0))
        folder.add(episode(1, error="PolicyError: no"))
    path = tmp_path / "r" / name
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert len(list(read_lines(tmp_path / "r", name))) == 1  # readers do not see it either
    with ResultsFolder(tmp_path / "r", CONFIG, resume=True) as folder:
        assert folder.done == {(0, 0)}
        assert path.read_bytes() == whole
        folder.add(episode(2))
    assert ids(tmp_path / "r") == ["t/0#0", "t/2#0"]


def test_a_file_of_one_torn_line_becomes_empty(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG):
        pass
    (tmp_path / "r" / "episodes.jsonl").write_bytes(b'{"id"')
    with ResultsFolder(tmp_path / "r", CONFIG, resume=True) as folder:
        assert folder.done == set()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"garbage\n", "line 1 is not JSON"),
        (b"{}\n", "line 1 is not an episode"),
        (b"[1]\n", "line 1 is not an episode"),
    ],
)
def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path, line: bytes, message: str) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG) as folder:
        folder.add(episode(0))
    path = tmp_path / "r" / "episodes.jsonl"
    path.write_bytes(line + path.read_bytes())
    with pytest.raises(ResultsError, match=message):
        ResultsFolder(tmp_path / "r", CONFIG, resume=True)


def test_an_episode_that_is_there_twice_is_an_error(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG) as folder:
        folder.add(episode(0))
    path = tmp_path / "r" / "episodes.jsonl"
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(ResultsError, match=r"line 2: episode 't/0#0' is there twice"):
        ResultsFolder(tmp_path / "r", CONFIG, resume=True)


def test_failed_episodes_are_errors_and_not_results(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG) as folder:
        folder.add(episode(0, error="PolicyError: gone"))
        assert folder.done == set()
        folder.add(episode(0))
    assert [record["error"] for record in read_lines(tmp_path / "r", "errors.jsonl")] == ["PolicyError: gone"]
    assert ids(tmp_path / "r") == ["t/0#0"]


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG) as folder:
        folder.add(episode(0))
    before = {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}
    with pytest.raises(ResultsError, match=r"already holds a run\. Add --resume"):
        ResultsFolder(tmp_path / "r", CONFIG)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG):
        pass
    other = {"identity": {"env": "e-v0", "seed": 7}, "context": {"label": "q"}}
    with pytest.raises(ResultsError, match="other settings") as error:
        ResultsFolder(tmp_path / "r", other, resume=True)
    assert "seed: 0 in the folder, 7 now" in str(error.value)
    assert "label" not in str(error.value)
    assert read_config(tmp_path / "r")["context"] == {"label": "p"}


def test_differences_names_nested_settings() -> None:
    old, new = {"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"x": 1, "y": 3}, "c": None, "b": 1, "d": [1]}
    assert differences(old, new) == [("a.y", 2, 3), ("d", None, [1])]
    assert differences(old, old) == []


def test_folders_that_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    (tmp_path / "file").write_text("x")
    for resume in (False, True):
        with pytest.raises(ResultsError, match="is not empty and holds no run"):
            ResultsFolder(tmp_path / "other", CONFIG, resume=resume)
        with pytest.raises(ResultsError, match="is a file"):
            ResultsFolder(tmp_path / "file", CONFIG, resume=resume)
        with pytest.raises(ResultsError, match=r"Cannot use .*Not a directory"):
            ResultsFolder(tmp_path / "file" / "under", CONFIG, resume=resume)
    with pytest.raises(ResultsError, match="no results folder"):
        read_config(tmp_path / "other")
    (tmp_path / "other" / "config.json").write_text('{"schema_version": 99, "identity": {}, "context": {}}')
    with pytest.raises(ResultsError, match="schema version 99, and this version of llm-envs reads up to"):
        read_config(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    with ResultsFolder(tmp_path / "empty", CONFIG):
        pass


def test_a_run_that_died_before_its_config_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "lock").write_text("123\n")
    (tmp_path / "r" / "config.json.tmp").write_text('{"form')
    with ResultsFolder(tmp_path / "r", CONFIG, resume=True) as folder:
        folder.add(episode(0))
    assert ids(tmp_path / "r") == ["t/0#0"]


def test_two_runners_in_one_process(tmp_path: Path) -> None:
    with ResultsFolder(tmp_path / "r", CONFIG), pytest.raises(ResultsError, match=f"process {os.getpid()}"):
        ResultsFolder(tmp_path / "r", CONFIG, resume=True)
    with ResultsFolder(tmp_path / "r", CONFIG, resume=True):
        pass


HOLD = """
import sys, time
from benchmarks.results import ResultsFolder
with ResultsFolder(sys.argv[1], {"identity": {"env": "e-v0", "seed": 0}, "context": {"label": "p"}}, resume=True):
    print("held", flush=True)
    if len(sys.argv) > 2:
        import os
        if os.fork() == 0:  # a child that outlives its parent must not keep the lock
            print(os.getpid(), flush=True)
            time.sleep(60)
    time.sleep(60)
"""


def test_two_runners_in_two_processes(tmp_path: Path, repository: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "r"), "fork"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=repository) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(ResultsError, match=rf"Another runner \(process {holder.pid}\)"):
                ResultsFolder(tmp_path / "r", CONFIG, resume=True)
            holder.kill()
            holder.wait()
            with ResultsFolder(tmp_path / "r", CONFIG, resume=True):
                pass
        finally:
            os.kill(child, 9)


FULL = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_results_helpers import CONFIG, episode
from benchmarks.results import ResultsError, ResultsFolder
with ResultsFolder(sys.argv[1], CONFIG) as folder:
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    try:
        for index in range(100):
            folder.add(episode(index))
    except ResultsError as error:
        print(index, error)
"""


def test_a_disk_that_is_full_loses_nothing_that_was_written(tmp_path: Path, repository: Path) -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    start, end = source.index("CONFIG = "), source.index("\n\ndef ids")
    helpers = "from typing import Any\nfrom trainers.rollout.records import Episode, Turn\n" + source[start:end]
    (tmp_path / "test_results_helpers.py").write_text(helpers)
    command = [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path / "r"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=repository, check=True)
    index, _, message = done.stdout.partition(" ")
    assert "episodes.jsonl: File too large" in message
    assert "--resume goes on" in message
    data = (tmp_path / "r" / "episodes.jsonl").read_bytes()
    assert data.endswith(b"\n")
    assert [json.loads(line)["task_index"] for line in data.splitlines()] == list(range(int(index)))
    with ResultsFolder(tmp_path / "r", CONFIG, resume=True) as folder:
        assert folder.done == {(i, 0) for i in range(int(index))}
