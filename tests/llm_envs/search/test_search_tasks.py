"""Questions from files and published sets, in every form in which their answers come."""

from __future__ import annotations

import json

import pytest

from llm_envs.search import tasks as tasks_module
from llm_envs.search.tasks import PUBLISHED, SEARCH_TASKS, gold_answers, load_search_tasks, read_search_row
from llm_envs.task_rows import RowError
from llm_envs.tasks import Task, TaskError


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ({"answer": "Paris"}, ["Paris"]),
        ({"answers": ["Paris", " Paris ", "City of Light"]}, ["Paris", "City of Light"]),
        ({"golden_answers": ["james madison"]}, ["james madison"]),
        ({"answer": 1945}, ["1945"]),
        ({"answer": ["1945", 1946]}, ["1945", "1946"]),
        ({"possible_answers": '["politician", "political leader"]'}, ["politician", "political leader"]),
        ({"answer": "[sic] a word"}, ["[sic] a word"]),
        (
            {"answer": {"value": "Sunset Blvd", "aliases": ["Sunset Boulevard"], "type": "x"}},
            ["Sunset Blvd", "Sunset Boulevard"],
        ),
        ({"answer": "1941", "answer_aliases": ["in 1941", "1941"]}, ["1941", "in 1941"]),
        ({"answer": "yes", "answer_aliases": []}, ["yes"]),
        ({"answers": {"text": ["a", "b"], "answer_start": [1, 2]}}, ["a", "b"]),
        ({"reward_model": {"ground_truth": {"target": ["x", "y"]}}}, ["x", "y"]),
    ],
)
def test_answers(row, answers):
    draft = read_search_row({"question": "Where?", **row}, {})
    assert draft.answer == answers[0]
    assert draft.data["answers"] == answers


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "Where?"}, "no answer in any of the columns"),
        ({"question": "Where?", "answer": ""}, "the answer is empty"),
        ({"question": "Where?", "answers": []}, "the answer is empty"),
        ({"question": "Where?", "answer": True}, "texts or numbers, got True"),
        ({"question": "Where?", "answers": [{"a": 1}]}, "texts or numbers"),
        ({"question": "Where?", "answer": "x", "supporting_titles": "T"}, "must be a list, got 'T'"),
        ({"question": "Where?", "answer": "x", "supporting_titles": [1]}, "must be texts"),
        ({"answer": "x"}, "no question"),
    ],
)
def test_bad_rows(row, message):
    with pytest.raises(RowError, match=message):
        read_search_row(row, {})


@pytest.mark.parametrize(
    "row",
    [
        {"supporting_titles": ["B", "A", "B"]},
        {"supporting_facts": [["B", 0], ["A", 3], ["B", 1]]},
        {"supporting_facts": {"title": ["B", "A", "B"], "sent_id": [0, 3, 1]}},
        {"metadata": {"supporting_facts": {"title": ["B", "A"], "sent_id": [0, 3]}}},
        {"paragraphs": [
            {"title": title, "is_supporting": title != "X"} for title in ("X", "B", "A")
        ]},
    ],
)  # fmt: skip
def test_supporting_titles(row):
    data = read_search_row({"question": "q", "answer": "a", "type": "bridge", "hops": 2, **row}, {}).data
    assert data["supporting_titles"] == ["B", "A"]
    assert (data["type"], data["hops"]) == ("bridge", 2)


def test_columns_of_the_user():
    row = {"q": "Where?", "gold": ["Paris"], "pages": ["France"], "uid": 4, "level": "easy"}
    columns = {"question": "q", "answer": "gold", "supporting_titles": "pages", "source": "uid"}
    draft = read_search_row(row, columns)
    assert draft == (
        "Where?", "Paris", {"answers": ["Paris"], "supporting_titles": ["France"], "source": 4, "level": "easy"}
    )  # fmt: skip


def test_gold_answers():
    assert gold_answers(Task("t", "q", "a")) == ("a",)
    assert gold_answers(Task("t", "q", "a", {"answers": ["a", "b"]})) == ("a", "b")


def test_real_files(shared_data):
    wiki = load_search_tasks(str(shared_data / "search" / "wiki" / "questions.jsonl"))
    assert len(wiki) == 40
    assert wiki[0].id == "questions/q001"
    assert gold_answers(wiki[0]) == ("Troy Donald Jamerson", "Troy Jamerson")
    assert wiki[0].data["supporting_ids"] == ("p2069", "p2070")
    assert {task.data["type"] for task in wiki} == {"bridge", "composition", "comparison"}
    bamboogle = load_search_tasks(str(shared_data / "search" / "bamboogle.jsonl"))
    assert len(bamboogle) == 125
    assert gold_answers(bamboogle[1]) == ("Titan IIIE",)


def test_published_set_from_a_local_copy(shared_data, monkeypatch):
    monkeypatch.setenv("LLM_ENVS_DATA", str(shared_data / "search"))
    tasks = load_search_tasks("bamboogle")
    assert (tasks.split, len(tasks), tasks[0].id) == ("test", 125, "bamboogle/test/test_0")
    with pytest.raises(TaskError, match="'train'; it has: test"):
        load_search_tasks("bamboogle", "train")


def test_catalogue():
    named = {"nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"}
    assert PUBLISHED.keys() == named
    assert SEARCH_TASKS.keys() == named | {"atlas"}


HUB_ROWS = {
    "question": "Which came first?",
    "golden_answers": ["The one"],
    "metadata": {"supporting_facts": {"title": ["One", "Two"], "sent_id": [0, 0]}, "type": "comparison"},
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_hub_sets(name, monkeypatch):
    asked = []

    def fetch(hub_id, config, fix):
        asked.append((hub_id, config))
        return {
            theirs: [{"id": f"{theirs}_0", **HUB_ROWS, "question": f"Which came first in {theirs}?"}]
            for theirs in ("train", "dev", "test")
        }

    monkeypatch.delenv("LLM_ENVS_DATA", raising=False)
    monkeypatch.setattr("llm_envs.task_files.fetch", fetch)
    tasks = load_search_tasks(name, "test")
    assert asked == [("RUC-NLPIR/FlashRAG_datasets", name)]
    theirs = PUBLISHED[name].splits["test"]
    assert tasks[0].id == f"{name}/test/{theirs}_0"
    assert gold_answers(tasks[0]) == ("The one",)
    assert tasks[0].data["supporting_titles"] == ("One", "Two")
    assert tasks[0].data["type"] == "comparison"


def test_content_splits_of_a_file(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"question": f"Question {i}?", "answer": "x"}) + "\n" for i in range(200)))
    train, test = (load_search_tasks(str(path), split) for split in ("train", "test"))
    assert len(train) + len(test) == len(load_search_tasks(str(path))) == 200
    assert {task.question for task in train}.isdisjoint(task.question for task in test)


def test_unknown_names():
    with pytest.raises(TaskError, match=r"no task set 'hotpot'. Did you mean: 'hotpotqa'\?"):
        load_search_tasks("hotpot")
    assert tasks_module.DEFAULT_TASKS in SEARCH_TASKS
