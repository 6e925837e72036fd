"""The generated world: one answer to each question, every hop needed, and nothing shared between the splits."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys

import pytest

from llm_envs.search.atlas import (
    DEFAULT_HOPS,
    MAX_HOPS,
    RELATIONS,
    World,
    atlas_retriever,
    load_atlas,
    split_of_name,
    world,
)
from llm_envs.tasks import TaskError

HOPS = range(1, MAX_HOPS + 1)


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_fact_stands_in_its_document_alone(split):
    one = world(split)
    assert len(one.things) == 1000
    assert len({thing.name for thing in one.things}) == len(one.things)
    assert [passage.title for passage in one.passages()] == [thing.name for thing in one.things]
    assert len({passage.id for passage in one.passages()}) == len(one.things)
    for thing in one.things:
        assert set(thing.facts) == {relation.name for relation in RELATIONS[thing.kind]}
        for relation in RELATIONS[thing.kind]:
            value = thing.facts[relation.name]
            if relation.target is not None:
                assert one.things[value].kind == relation.target
                assert value != thing.position
                value = one.things[value].name
            assert any(say.format(x=thing.name, v=value) in thing.text for say in relation.say), (thing, relation)


def test_capitals_lie_in_their_countries():
    one = world("train")
    countries = [thing for thing in one.things if thing.kind == "country"]
    assert len(countries) == 20
    capitals = [one.things[country.facts["capital"]] for country in countries]
    assert len({capital.name for capital in capitals}) == 20
    assert [one.things[capital.facts["country"]] for capital in capitals] == countries


def solve(one, question):
    """Every answer that the facts of the world allow: reads the question from the outside in."""
    for thing in one.things:
        for relation in RELATIONS[thing.kind]:
            pattern = re.escape(relation.ask).replace(re.escape("{x}"), "(.+)")
            match = re.fullmatch(pattern, question)
            if match and thing.kind == kind_of(one, match[1]):
                subjects = resolve(one, match[1])
                return {value_of(one, subject, relation) for subject in subjects}
    raise AssertionError(question)


def kind_of(one, phrase):
    subjects = resolve(one, phrase)
    assert len(subjects) <= 1, phrase
    return subjects[0].kind if subjects else None


def resolve(one, phrase):
    named = [thing for thing in one.things if thing.name == phrase or f"the {thing.name}" == phrase]
    if named:
        return named
    for kind, relations in RELATIONS.items():
        for relation in relations:
            if not relation.phrase:
                continue
            match = None
            for form in (relation.phrase, relation.phrase.removeprefix("the ")):
                pattern = re.escape(form).replace(re.escape("the {x}"), "(.+)").replace(re.escape("{x}"), "(.+)")
                match = match or re.fullmatch(pattern, phrase)
            inner = resolve(one, match[1]) if match else []
            if [thing.kind for thing in inner] == [kind]:
                return [one.things[inner[0].facts[relation.name]]]
    return []


def value_of(one, subject, relation):
    value = subject.facts[relation.name]
    return one.things[value].name if isinstance(value, int) else value


@pytest.mark.parametrize("hops", HOPS)
def test_every_question_has_one_answer_which_is_the_gold(hops):
    one = world("train")
    tasks = load_atlas("train", hops=hops)
    for index in range(120):
        task = tasks[index]
        assert solve(one, task.question) == {task.answer}, task


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("hops", HOPS)
def test_every_hop_is_needed(hops, split):
    texts = {passage.title: passage.text for passage in world(split).passages()}
    tasks = load_atlas(split, hops=hops)
    questions = set()
    for index in range(300):
        task = tasks[index]
        questions.add(task.question)
        titles = task.data["supporting_titles"]
        assert task.data["hops"] == hops == len(titles) == len(set(titles)) == len(task.data["supporting_ids"])
        assert task.data["answers"][0] == task.answer
        assert task.answer in texts[titles[-1]]
        assert task.answer.lower() not in task.question.lower()
        assert titles[0] in task.question
        for position, title in enumerate(titles[:-1]):
            assert task.answer.lower() not in texts[title].lower()
            assert titles[position + 1] in texts[title]
            assert not any(later in texts[title] for later in titles[position + 2 :])
            assert titles[position + 1] not in task.question
        assert "the the" not in task.question
    assert len(questions) > 200


def words(one):
    """Every name: the words that begin with a capital, apart from those of the templates."""
    templates = json.dumps([[vars_of(r) for r in relations] for relations in RELATIONS.values()])
    fixed = "Works Brothers Trading Instruments Mills Letters Winter Songs Last Beyond House River Mount Sea The A"
    known = {*re.findall(r"[A-Za-z]+", templates), *fixed.split()}
    return {word for p in one.passages() for word in re.findall(r"[A-Z][a-z]+", p.searchable)} - known


def vars_of(relation):
    return [relation.ask, relation.phrase, *relation.say]


def test_splits_have_no_name_in_common():
    train = set().union(*(words(World("train", seed, 1000)) for seed in range(3)))
    test = set().union(*(words(World("test", seed, 1000)) for seed in range(3)))
    assert len(train) > 3000
    assert len(test) > 3000
    assert not train & test
    assert {split_of_name(name) for name in train} == {"train"}
    assert {split_of_name(name) for name in test} == {"test"}


def test_seeds_give_other_worlds():
    assert world("train", 0).passages() != world("train", 1).passages()
    first, second = load_atlas("train"), load_atlas("train", seed=1)
    assert first.fingerprint != second.fingerprint
    assert {first[i].question for i in range(100)}.isdisjoint(second[i].question for i in range(100))


def test_default_hops_come_equally_often():
    tasks = load_atlas(None)
    counts = [0] * (MAX_HOPS + 1)
    for index in range(600):
        counts[tasks[index].data["hops"]] += 1
    assert [bool(count) for count in counts] == [False] + [n in DEFAULT_HOPS for n in HOPS]
    assert min(count for count in counts if count) > 150


_PRINT = (
    "import json; from llm_envs.search.atlas import load_atlas, world; t = load_atlas('test', hops=(1, 4)); "
    "print(json.dumps([[t[i].question, t[i].answer, t[i].hash] for i in (5, 0, 9)])); "
    "print(json.dumps([p.text for p in world('test').passages()]))"
)


def test_same_world_in_every_process():
    runs = {
        subprocess.run(
            [sys.executable, "-c", _PRINT],
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_no_global_generator_is_touched():
    random.seed(7)
    state = random.getstate()
    load_atlas("train", seed=12)[3]
    assert random.getstate() == state


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_document_is_found_by_its_title(split):
    titles = [passage.title for passage in world(split).passages()]
    found = atlas_retriever(split).search(titles, 3)
    missed = [t for t, result in zip(titles, found, strict=True) if t not in [p.title for p in result]]
    assert missed == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hops": 0}, "numbers from 1 to 4, got 0"),
        ({"hops": (1, 5)}, r"numbers from 1 to 4, got \(1, 5\)"),
        ({"hops": ()}, "numbers from 1 to 4"),
        ({"documents": 99}, "at least 100, got 99"),
        ({"hop": 2}, r"no option 'hop'. Did you mean: 'hops'\?"),
        ({"size": 0}, "size must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(TaskError, match=message):
        load_atlas("train", **options)
    with pytest.raises(TaskError, match="no split 'dev'"):
        load_atlas("dev")


def test_a_small_world_holds_questions_of_every_length():
    for hops in HOPS:
        tasks = load_atlas("train", hops=hops, documents=100)
        assert all(tasks[i].data["hops"] == hops for i in range(50))
