"""Exported tables hold what was played, whatever the texts are; and load where they should."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.cli import main
from benchmarks.export import ROWS_AT_ONCE, export
from benchmarks.export_columns import TABLES, TOKEN_COLUMNS
from benchmarks.results import ResultsError, ResultsFolder, read_lines
from trainers.rollout.records import Episode, Turn

IDENTITY: dict[str, Any] = {
    "env": "e-v0", "tasks": {"name": "t", "split": "test", "size": 9, "fingerprint": "f"},
    "n": 2, "samples": 1, "seed": 0,
}  # fmt: skip
CONFIG = {"identity": IDENTITY, "context": {"label": "p"}}
NASTY = 'a,"b"\r\nc\n\x00\x1b[31m <script> =1+1 \ud800 \u202e é 漢'
SHOWN = NASTY.replace("\ud800", "\\ud800")


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def episode(index: int, action: str = "a", **changes: Any) -> Episode:
    turns = [
        Turn(f"t/{index}#0", f"t/{index}", "a_0", "p", number, number, NASTY, action, (1, 2), (3,), (-0.5,),
             reward_parts={"team": 1.0, "invalid": -0.25}, invalid="bad" if number else None, prompt_tokens=2,
             completion_tokens=1, latency_s=0.25, info={"verdict": action})
        for number in range(2)
    ]  # fmt: skip
    return Episode(
        f"t/{index}#0", "e-v0", f"t/{index}", index, f"h{index}", 0, 7, turns, {"a_0": 1.5},
        {"a_0": {"team": 2.0, "invalid": -0.5}}, True, terminated=True, wall_s=0.5, **changes,
    )  # fmt: skip


def write(name: str, episodes: list[Episode], *, save_tokens: bool = False) -> str:
    config = {**CONFIG, "identity": {**IDENTITY, "save_tokens": save_tokens}}
    with ResultsFolder(name, config, save_tokens=save_tokens) as folder:
        for each in episodes:
            folder.add(each)
    return name


def read_csv(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_parquet(path: str) -> list[dict[str, Any]]:
    return list(pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist())


def test_rows_by_hand() -> None:
    write("run", [episode(0, NASTY), episode(1, error="PolicyError: no"), episode(1)])
    assert export(["run"], "out", "parquet") == {"episodes": 2, "turns": 4, "runs": 1}
    first = read_parquet("out/episodes.parquet")[0]
    assert first.pop("ended") > 1.5e9
    assert first == {
        "run": "run", "id": "t/0#0", "env": "e-v0", "policy": "p", "task": "t/0", "task_index": 0, "task_hash": "h0",
        "sample": 0, "seed": 7, "success": True, "terminated": True, "truncated": False, "returns": '{"a_0": 1.5}',
        "reward_parts": '{"a_0": {"team": 2.0, "invalid": -0.5}}', "turns": 2, "prompt_tokens": 4,
        "completion_tokens": 2, "seconds": 0.5,
    }  # fmt: skip
    turns = read_parquet("out/turns.parquet")
    assert turns[0] == {
        "run": "run", "episode": "t/0#0", "index": 0, "agent": "a_0", "agent_turn": 0, "policy": "p",
        "observation": SHOWN, "action": SHOWN, "invalid": None, "finish_reason": "stop", "reward": 0.75,
        "reward_parts": '{"team": 1.0, "invalid": -0.25}', "info": json.dumps({"verdict": NASTY}), "prompt_tokens": 2,
        "completion_tokens": 1, "weight_version": 0, "latency_s": 0.25,
    }  # fmt: skip
    assert turns[1]["invalid"] == "bad"
    (run,) = read_parquet("out/runs.parquet")
    assert (run["planned"], run["episodes"], run["split"]) == (2, 2, "test")
    assert json.loads(run["config"])["identity"]["env"] == "e-v0"


def test_csv_holds_the_same_as_parquet() -> None:
    write("run", [episode(0, NASTY), episode(1)], save_tokens=True)
    export(["run"], "csv", "csv")
    export(["run"], "parquet", "parquet")
    for table in TABLES:
        typed = read_parquet(f"parquet/{table}.parquet")
        kinds = {column.name: column.kind for column in (*TABLES[table], *TOKEN_COLUMNS)}
        texts = [
            {
                name: "" if value is None else json.dumps(value) if kinds[name] in ("ints", "floats") else str(value)
                for name, value in row.items()
            }
            for row in typed
        ]
        assert read_csv(f"csv/{table}.csv") == texts


def test_token_ids_are_there_if_they_were_saved() -> None:
    write("with", [episode(0)], save_tokens=True)
    write("without", [episode(0)])
    export(["with", "without"], "out", "parquet")
    first, _, third, _ = read_parquet("out/turns.parquet")
    assert (first["prompt_ids"], first["completion_ids"], first["logprobs"]) == ([1, 2], [3], [-0.5])
    assert third["prompt_ids"] is None
    export(["without"], "plain", "parquet")
    assert "prompt_ids" not in read_parquet("plain/turns.parquet")[0]


def test_a_table_has_exactly_the_columns_that_are_described() -> None:
    write("run", [episode(0)], save_tokens=True)
    export(["run"], "out", "csv")
    for table, columns in TABLES.items():
        expected = [column.name for column in columns]
        if table == "turns":
            expected += [column.name for column in TOKEN_COLUMNS]
        assert list(read_csv(f"out/{table}.csv")[0]) == expected


def test_more_rows_than_are_held_at_once() -> None:
    count = ROWS_AT_ONCE + 1
    write("run", [episode(index) for index in range(count)])
    assert export(["run"], "out", "parquet")["turns"] == 2 * count
    rows = read_parquet("out/turns.parquet")
    assert [row["episode"] for row in rows] == [f"t/{i}#0" for i in range(count) for _ in range(2)]
    empty = write("empty", [])
    assert export([empty], "none", "parquet") == {"episodes": 0, "turns": 0, "runs": 1}
    assert read_parquet("none/episodes.parquet") == []


def test_runs_of_one_name_are_told_apart_and_none_is_written_twice() -> None:
    Path("deep").mkdir()
    write("run", [episode(0)])
    write("deep/run", [episode(0)])
    counts = export(["run", "deep/run", "./run"], "out", "csv")
    assert counts["runs"] == 2
    assert [row["run"] for row in read_csv("out/episodes.csv")] == ["run", "run-2"]


def test_a_folder_is_there_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    write("run", [episode(0)])
    Path("full").mkdir()
    Path("full/precious").write_text("x")
    for out, message in (("full", "full is not empty"), ("full/precious", "is not empty"), ("full/precious/x", "Cannot write")):  # fmt: skip # noqa: E501
        with pytest.raises(ResultsError, match=message):
            export(["run"], out, "csv")
    with pytest.raises(ResultsError, match="no results folder"):
        export(["run", "nothing"], "out", "csv")
    Path("torn").mkdir()
    Path("torn/config.json").write_text(Path("run/config.json").read_text())
    Path("torn/episodes.jsonl").write_text("no json\n")
    with pytest.raises(ResultsError, match="line 1 is not JSON"):
        export(["run", "torn"], "out", "csv")
    with pytest.raises(ValueError, match="no format 'xml'"):
        export(["run"], "out", "xml")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ResultsError, match="needs pyarrow: pip install 'llm-envs\\[data\\]', or give --format csv"):
        export(["run"], "out", "parquet")
    assert sorted(path.name for path in Path().iterdir()) == ["full", "run", "torn"]
    Path("empty").mkdir()
    export(["run"], "empty", "csv")
    assert len(list(Path("empty").iterdir())) == 3


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(exclude_categories=()), max_size=30))
@example("\r")
@example("a\r\nb\nc")
def test_any_text_comes_back(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/run", [episode(0, text)])
        (stored,) = read_lines(f"{folder}/run", "episodes.jsonl")
        expected = stored["turns"][0]["action"].encode("utf-8", "backslashreplace").decode("utf-8")
        export([f"{folder}/run"], f"{folder}/csv", "csv")
        export([f"{folder}/run"], f"{folder}/parquet", "parquet")
        assert read_csv(f"{folder}/csv/turns.csv")[0]["action"] == expected
        assert read_parquet(f"{folder}/parquet/turns.parquet")[0]["action"] == expected


LOAD = """
import json, sys
from datasets import load_dataset
found = load_dataset(sys.argv[1])
turns = load_dataset(sys.argv[1], "turns", split="train")
runs = load_dataset(sys.argv[1], "runs")["train"].num_rows
print(json.dumps([list(found), found["train"][:]["id"], turns[0]["action"], runs]))
"""


def test_a_data_set_folder_loads_offline(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets")
    for policy in ("oracle", "random"):
        assert main(["run", "math-2agent", "--policy", policy, "-n", "3", "--out", policy, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["export", "oracle", "random", "--format", "dataset", "--out", "set"]) == 0
    assert capsys.readouterr().out.startswith("exported: set (6 episodes, ")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(Path("cache").resolve())}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, "set"], env=environment, capture_output=True, text=True, check=True
    )
    splits, ids, action, runs = json.loads(done.stdout)
    (first, *_) = read_lines("oracle", "episodes.jsonl")
    assert (splits, runs) == (["train"], 2)
    assert ids[0] == first["id"]
    assert len(ids) == 6
    assert action == first["turns"][0]["action"]
    card = Path("set/README.md").read_text()
    assert card.startswith('---\npretty_name: "Episodes of math-2agent-v0"\n')
    assert r"| oracle | **100.0** \[43.9, 100.0\] |" in card
    assert "| `task_hash` | text | hash of the task's content" in card
    for name in ("csv", "parquet"):
        assert main(["export", "oracle", "--format", name, "--out", name]) == 0
    capsys.readouterr()
    assert main(["export", "oracle", "--out", "csv"]) == 2
    assert "csv is not empty; give another --out" in capsys.readouterr().err
