"""Tasks, task sets, splits by content, and tasks from files and hub data sets."""

from __future__ import annotations

import copy
import gzip
import json
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
from gymnasium.error import Error
from hypothesis import given
from hypothesis import strategies as st

from llm_envs.task_rows import build, read_row
from llm_envs.tasks import (
    Draft,
    ListTaskSet,
    ProceduralTaskSet,
    Task,
    TaskError,
    enumerate_tasks,
    load_tasks,
    split_of,
    stable_hash,
)

TEXT = st.text(max_size=30)


def draw_sum(rng: random.Random, *, top: int = 10_000) -> Draft:
    a, b = rng.randint(0, top), rng.randint(0, top)
    return Draft(f"{a} + {b}?", str(a + b))


def load(tasks, split=None, **options):
    return load_tasks(tasks, split, family={"sums": lambda split, **o: sums(split, **o)}, **options)


def sums(split: str | None = None, **options) -> ProceduralTaskSet:
    return ProceduralTaskSet("sums", split, draw_sum, **options)


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


ROWS = [{"question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(200)]


# Task and hashes


def test_task_cannot_be_changed() -> None:
    task = Task("a/0", "q", "1", {"sizes": [1, 2], "nested": {"x": [3]}})
    assert task.data == {"sizes": (1, 2), "nested": {"x": (3,)}}
    with pytest.raises(AttributeError):
        task.answer = "2"  # type: ignore[misc]
    for change in (
        lambda: task.data.__setitem__("sizes", 1),  # type: ignore[attr-defined]
        lambda: task.data["nested"].update(x=1),
        lambda: task.data.pop("sizes"),  # type: ignore[attr-defined]
        lambda: task.data.__ior__({"a": 1}),  # type: ignore[attr-defined]
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    assert json.loads(json.dumps(task.data)) == {"sizes": [1, 2], "nested": {"x": [3]}}


def test_task_data_does_not_follow_what_it_was_made_from() -> None:
    source = {"sizes": [1]}
    task = Task("a/0", "q", "1", source)
    source["sizes"].append(2)
    assert task.data["sizes"] == (1,)


def test_task_survives_pickle_and_is_shared_by_deepcopy() -> None:
    task = Task("a/0", "q", "1", {"n": {"x": 1}})
    assert pickle.loads(pickle.dumps(task)) == task
    assert copy.deepcopy(task) is task
    assert len({task, Task("a/0", "q", "1", {"n": {"x": 1}})}) == 1


def test_task_hash_is_content_without_id() -> None:
    # printf '["q", "1", {"a": 1}]' | sha256sum
    assert Task("x", "q", "1", {"a": 1}).hash == "d5c693e719aba5d9"
    same = Task("x", "q", "1", {"a": 1, "b": [1, 2]})
    assert Task("y", "q", "1", {"b": (1, 2), "a": 1}).hash == same.hash
    others = [Task("x", "q2", "1"), Task("x", "q", "2"), Task("x", "q", "1", {"a": 2, "b": [1, 2]})]
    assert len({task.hash for task in [same, *others]}) == 4
    assert len(same.hash) == 16


@given(st.lists(TEXT | st.integers(), max_size=4), st.lists(TEXT | st.integers(), max_size=4))
def test_stable_hash_separates_different_parts(a: list, b: list) -> None:
    assert 0 <= stable_hash(*a) < 2**64
    assert (stable_hash(*a) == stable_hash(*b)) == (a == b)


def test_stable_hash_value_is_pinned() -> None:
    # BLAKE2b-64 of "2:sa2:i1", by hand: each part is typed and length-prefixed.
    import hashlib

    assert stable_hash("a", 1) == int.from_bytes(hashlib.blake2b(b"2:sa2:i1", digest_size=8).digest(), "big")


def test_split_ignores_case_and_spacing_and_holds_a_tenth_for_testing() -> None:
    assert split_of("What  is\n2 + 2?") == split_of("what is 2 + 2?")
    share = sum(split_of(f"question {i}") == "test" for i in range(20_000)) / 20_000
    assert 0.09 < share < 0.11


# Sets in memory


def test_list_set_is_a_sequence() -> None:
    tasks = ListTaskSet([Task(f"s/{i}", f"q{i}", str(i)) for i in range(5)], name="s")
    assert len(tasks) == 5
    assert tasks[-1].answer == "4"
    assert [task.answer for task in tasks[1:3]] == ["1", "2"]
    assert tasks[2] in tasks
    with pytest.raises(IndexError, match=r"5 is out of range: s \(all\) has 5 tasks"):
        tasks[5]


def test_list_set_fingerprint_follows_content() -> None:
    one = ListTaskSet([Task("s/0", "q", "1")], name="s")
    assert one.fingerprint == ListTaskSet([Task("s/0", "q", "1")], name="other").fingerprint
    assert one.fingerprint != ListTaskSet([Task("s/0", "q", "2")], name="s").fingerprint
    assert one.fingerprint != ListTaskSet([Task("s/1", "q", "1")], name="s").fingerprint


def test_list_set_refuses_equal_ids_and_other_objects() -> None:
    with pytest.raises(TaskError, match="two tasks with the id 's/0'"):
        ListTaskSet([Task("s/0", "a", "1"), Task("s/0", "b", "1")])
    with pytest.raises(TaskError, match="must hold Task objects, got dict"):
        ListTaskSet([{"question": "a"}])  # type: ignore[list-item]


def test_given_tasks_are_split_by_content_when_asked() -> None:
    tasks = [Task(f"s/{i}", f"q{i}", str(i)) for i in range(300)]
    everything, train, test = load(tasks), load(tasks, "train"), load(tasks, "test")
    assert len(everything) == 300 == len(train) + len(test)
    assert not {task.question for task in train} & {task.question for task in test}
    assert load(test, "test") is test
    with pytest.raises(TaskError, match="is the 'test' split, not 'train'"):
        load(test, "train")
    with pytest.raises(TaskError, match="is empty"):
        load([])
    with pytest.raises(TaskError, match="do not apply to tasks that are given"):
        load(tasks, size=3)
    with pytest.raises(TaskError, match="got int"):
        load(3)


# Procedural sets


def test_procedural_task_does_not_depend_on_the_order_of_access() -> None:
    forward, backward = sums(size=50), sums(size=50)
    ahead = [forward[i] for i in range(50)]
    behind = [backward[i] for i in reversed(range(50))][::-1]
    assert ahead == behind
    assert ahead[7].id == "sums/train/7"


def test_procedural_set_leaves_the_global_generator_alone() -> None:
    state = random.getstate()
    list(sums(size=20))
    assert random.getstate() == state


def test_procedural_splits_are_disjoint_for_all_seeds() -> None:
    train = {task.question for seed in range(3) for task in sums("train", size=2_000, seed=seed)}
    test = {task.question for seed in range(3) for task in sums("test", size=300, seed=seed)}
    assert not train & test
    assert all(split_of(question) == "test" for question in test)


def test_procedural_fingerprint_follows_what_the_tasks_depend_on() -> None:
    sets = [sums(), sums("test"), sums(seed=1), sums(size=5), sums(options={"top": 99}), sums(version=2)]
    assert len({tasks.fingerprint for tasks in sets}) == len(sets)
    assert sums().fingerprint == sums("train").fingerprint
    assert sums()[0] != sums(seed=1)[0]


def test_procedural_set_survives_pickle() -> None:
    tasks = sums("test", size=30, seed=3, options={"top": 500})
    again = pickle.loads(pickle.dumps(tasks))
    assert again.fingerprint == tasks.fingerprint
    assert list(again) == list(tasks)
    assert copy.deepcopy(tasks) is tasks


def test_procedural_cache_is_bounded() -> None:
    tasks = sums()
    for i in range(ProceduralTaskSet._CACHE + 100):
        tasks[i]
    assert len(tasks._cache) == ProceduralTaskSet._CACHE
    assert tasks[0] == sums()[0]


def test_procedural_sizes_and_errors() -> None:
    assert len(sums()) == 100_000
    assert len(sums("test")) == 1_000
    for bad in ({"size": 0}, {"size": 2.5}, {"seed": -1}, {"seed": True}):
        with pytest.raises(TaskError, match="must be a whole number"):
            sums(**bad)
    with pytest.raises(TaskError, match="no split 'dev'; it has: train, test"):
        sums("dev")
    only = next(i for i in range(100) if split_of(f"{i} + {i}?") == "train")
    stuck = ProceduralTaskSet("one", "test", lambda rng: Draft(f"{only} + {only}?", "0"))
    with pytest.raises(TaskError, match="no statement of the 'test' split in 10000 draws"):
        stuck[0]


def test_enumerated_domain_has_every_task_once() -> None:
    drafts = [Draft(f"{a} + {b}?", str(a + b)) for a in range(10) for b in range(10)]
    train, test = (enumerate_tasks("tiny", split, drafts + drafts) for split in ("train", "test"))
    assert len(train) + len(test) == 100
    assert {task.question for task in train} | {task.question for task in test} == {draft.question for draft in drafts}
    assert [task.id for task in test] == [f"tiny/test/{i}" for i in range(len(test))]
    other = enumerate_tasks("tiny", "train", drafts, seed=1)
    assert [task.question for task in other] != [task.question for task in train]
    assert {task.question for task in other} == {task.question for task in train}
    assert [t.question for t in enumerate_tasks("tiny", "train", drafts, size=7)] == [t.question for t in train[:7]]


_ELSEWHERE = """
import random, sys
from llm_envs.tasks import Draft, ProceduralTaskSet
def draw_sum(rng, *, top=10_000):
    a, b = rng.randint(0, top), rng.randint(0, top)
    return Draft(f"{a} + {b}?", str(a + b))
tasks = ProceduralTaskSet("sums", "test", draw_sum)
sys.stdout.write(tasks.fingerprint + " " + " ".join(tasks[i].hash for i in range(0, 1000, 7)))
"""


@pytest.mark.parametrize("hash_seed", ["0", "1", "4242"])
def test_other_processes_make_the_same_tasks(hash_seed: str, repository: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(repository)}
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE], env=environment, capture_output=True, text=True, check=True
    )
    here = sums("test")
    assert done.stdout.split() == [here.fingerprint, *(here[i].hash for i in range(0, 1000, 7))]


# Names


def test_unknown_name_suggests_and_lists() -> None:
    with pytest.raises(
        TaskError, match=r"no task set 'sumz'\. Did you mean: 'sums'\? The sets are: sums; or give the path"
    ):
        load("sumz")
    assert issubclass(TaskError, Error)


# Files


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".parquet"])
def test_formats_hold_the_same_tasks(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"mine{suffix}"
    if suffix == ".parquet":
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif suffix == ".json":
        path.write_text(json.dumps(ROWS, indent=1), encoding="utf-8")
    elif suffix == ".jsonl":
        write_jsonl(path, ROWS)
    else:
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, ROWS)).encode()))
    tasks = load(str(path))
    assert (tasks.name, tasks.split, len(tasks)) == ("mine", "all", 200)
    assert tasks[3] == Task("mine/3", "What is 3 + 3?", "6")
    assert tasks.fingerprint == load(path).fingerprint
    train, test = load(path, "train"), load(path, "test")
    assert len(train) + len(test) == 200
    assert 5 < len(test) < 40
    assert {task.id for task in train}.isdisjoint(task.id for task in test)


def test_columns_can_be_named(tmp_path: Path) -> None:
    row = {"q": "Two and two?", "gold": {"value": 4}, "uid": "x7", "topic": "sums"}
    path = write_jsonl(tmp_path / "a.jsonl", [row])
    columns = {"question": "q", "answer": "gold.value", "id": "uid", "area": "topic"}
    assert load(path, columns=columns)[0] == Task("a/x7", "Two and two?", "4", {"area": "sums"})


def test_missing_column_names_file_row_columns_and_fix(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [ROWS[0], {"question": "Two?", "result": "2"}])
    message = r"a\.jsonl:2: no answer in .*'question', 'result'.*columns=\{.*skip_bad_rows=True"
    with pytest.raises(TaskError, match=message):
        load(path)
    assert len(load(path, skip_bad_rows=True)) == 1
    with pytest.raises(TaskError, match=r"no value in the column 'label' that columns names for 'answer'"):
        load(path, columns={"answer": "label"})
    with pytest.raises(TaskError, match="columns must be a mapping"):
        load(path, columns=["question"])
    with pytest.raises(TaskError, match=r"no option 'colums'\. Did you mean: 'columns'\?"):
        load(path, colums={})


def test_skipped_rows_are_counted_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [*ROWS[:3], {"question": "no gold"}, {"question": " ", "answer": "1"}])
    assert len(load(path, skip_bad_rows=True)) == 3
    assert "left out 2 of 5 rows" in caplog.text


def test_broken_files_say_where(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"question": "q", "answer": "1"}\n\n{"question": \n', encoding="utf-8")
    with pytest.raises(TaskError, match=r"a\.jsonl:3: not valid JSON"):
        load(path)
    path.write_text("[1, 2]\n", encoding="utf-8")
    with pytest.raises(TaskError, match=r"a\.jsonl:1: expected an object"):
        load(path)
    path.write_text("\n \n", encoding="utf-8")
    with pytest.raises(TaskError, match=r"a\.jsonl is empty"):
        load(path)
    path.write_bytes(b'{"question": "\xff"}')
    with pytest.raises(TaskError, match="not UTF-8 text"):
        load(path)
    with pytest.raises(TaskError, match=r"no file or folder .*absent\.jsonl"):
        load(tmp_path / "absent.jsonl")
    (tmp_path / "a.csv").write_text("question,answer\n1,2\n")
    with pytest.raises(TaskError, match=r"a\.csv: task files end in \.jsonl"):
        load(tmp_path / "a.csv")
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    with pytest.raises(TaskError, match=r"cannot read .*a\.parquet"):
        load(tmp_path / "a.parquet")
    (tmp_path / "b.jsonl.gz").write_bytes(b"not gzip")
    with pytest.raises(TaskError, match=r"cannot read .*b\.jsonl\.gz"):
        load(tmp_path / "b.jsonl.gz")


def test_lines_end_at_newlines_only(tmp_path: Path) -> None:
    row = {"question": "before\u2028after\u0085end", "answer": "1"}
    path = tmp_path / "a.jsonl"
    path.write_text("\ufeff" + json.dumps(row, ensure_ascii=False) + "\r\n", encoding="utf-8")
    assert load(path)[0].question == row["question"]


def test_repeated_rows_are_kept_once_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [ROWS[0], ROWS[1], {"question": "what is  0 + 0?", "answer": "0"}, {**ROWS[1], "answer": "other"}]
    tasks = load(write_jsonl(tmp_path / "a.jsonl", rows))
    assert [task.id for task in tasks] == ["a/0", "a/1", "a/3"]
    assert "left out 1 rows that repeat" in caplog.text


def test_ids_are_a_column_only_where_they_tell_rows_apart(tmp_path: Path) -> None:
    rows = [{**row, "id": i // 2} for i, row in enumerate(ROWS[:4])]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    assert [task.id for task in load(path)] == ["a/0", "a/1", "a/2", "a/3"]
    with pytest.raises(TaskError, match=r"the column 'id' .* has the same value in two rows"):
        load(path, columns={"id": "id"})
    own = write_jsonl(tmp_path / "b.jsonl", [{**row, "id": f"p{i}"} for i, row in enumerate(ROWS[:2])])
    assert [task.id for task in load(own)] == ["b/p0", "b/p1"]


def test_chat_prompts_hold_one_question() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " 2 + 2? "}]
    row = {"prompt": messages, "reward_model": {"ground_truth": "4", "style": "rule"}}
    (task,) = build([("here", row)], "v", source="v", reader=read_row)
    assert (task.question, task.answer) == ("2 + 2?", "4")
    twice = {**row, "prompt": messages + messages}
    with pytest.raises(TaskError, match="here: the prompt holds 2 user messages"):
        build([("here", twice)], "v", source="v", reader=read_row)


# Folders


def test_folder_gives_its_splits(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", ROWS[:30])
    write_jsonl(tmp_path / "test.jsonl", ROWS[30:40])
    write_jsonl(tmp_path / "notes.jsonl", [{"not": "a task"}])
    assert len(load(tmp_path)) == len(load(tmp_path, "train")) == 30
    test = load(tmp_path, "test")
    assert (len(test), test.split, test[0].id) == (10, "test", f"{tmp_path.name}/test/0")
    with pytest.raises(TaskError, match="no split 'dev'; it has: test, train"):
        load(tmp_path, "dev")


def test_folder_with_overlapping_splits_is_an_error(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", ROWS[:30])
    write_jsonl(tmp_path / "test.jsonl", [{"question": "WHAT is 7 + 7?", "answer": "14"}, *ROWS[40:50]])
    for split in ("train", "test"):
        with pytest.raises(TaskError, match=r"1 statements are in both .*(?i:what is 7 \+ 7\?)"):
            load(tmp_path, split)


def test_folder_in_shards_and_in_two_formats(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train-00000-of-00002.jsonl", ROWS[:3])
    write_jsonl(tmp_path / "train-00001-of-00002.jsonl", ROWS[3:5])
    assert [task.id.split("/")[-1] for task in load(tmp_path)] == ["0", "1", "2", "3", "4"]
    (tmp_path / "train.json").write_text(json.dumps(ROWS[:3]))
    with pytest.raises(TaskError, match="in several formats"):
        load(tmp_path)


def test_empty_folder_says_what_it_expects(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"no task files; expected train\.\* and test\.\*"):
        load(tmp_path)


# Hub


@pytest.fixture
def hub_folder(tmp_path: Path) -> Path:
    """A local data set that ``datasets`` reads as it reads one from the hub."""
    pytest.importorskip("datasets")
    folder = tmp_path / "hub"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", ROWS[:30])
    write_jsonl(folder / "test.jsonl", ROWS[30:40])
    return folder


def test_hub_data_set(hub_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    real, asked = datasets.load_dataset, []

    def from_folder(name: str, config: str | None = None):
        asked.append((name, config))
        return real(str(hub_folder), cache_dir=str(hub_folder.parent / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", from_folder)
    test = load("hub:someone/sums:main", "test")
    assert asked == [("someone/sums", "main")]
    assert (len(test), test[0].id, test[0].answer) == (10, "hub:someone/sums:main/test/0", "60")
    assert len(load("hub:someone/sums")) == 30
    with pytest.raises(TaskError, match="no split 'dev'; it has: train, test"):
        load("hub:someone/sums", "dev")
    for bad in ("hub:", "hub:a/b:", "hub:a/b/c", "hub:a/b:c:d"):
        with pytest.raises(TaskError, match="is not a hub data set"):
            load(bad)


def test_hub_out_of_reach_names_the_data_set_and_the_fix(tmp_path: Path, repository: Path) -> None:
    # In a process of its own: the library reads HF_HUB_OFFLINE and the cache folder once.
    pytest.importorskip("datasets")
    code = "from llm_envs.tasks import load_tasks; load_tasks('hub:someone/no-such-sums', family={})"
    environment = {**os.environ, "PYTHONPATH": str(repository), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("llm_envs.tasks.TaskError: cannot load the hub data set someone/no-such-sums")
    assert "give the path of the file or folder as tasks" in last


@pytest.mark.parametrize(("module", "tasks"), [("datasets", "hub:a/b"), ("pyarrow", "a.parquet")])
def test_missing_library_names_the_extra(
    module: str, tasks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(TaskError, match=r"pip install 'llm-envs\[data\]'"):
        load(tasks)
