"""Every template: its reference solves its tests, and its tests kill its wrong variants."""

from __future__ import annotations

import itertools
import random

import pytest

from llm_envs.coding.judge import cases_of, judge
from llm_envs.coding.tasks import load_coding_tasks
from llm_envs.coding.templates import DOMAINS, TEMPLATES, draw_template_task
from llm_envs.tasks import TaskError, normalise, split_of

SEEDS = range(3)


def draw(template, seed):
    rng = random.Random(seed)
    return template.task(rng, template.chosen(rng))


def test_there_are_enough():
    assert len(TEMPLATES) >= 40
    assert sorted(DOMAINS) == ["arithmetic", "graphs", "grids", "intervals", "lists", "simulation", "strings"]
    assert min(map(len, DOMAINS.values())) >= 6
    problems = [(t, dict(zip(t.parameters, values, strict=True))) for t in TEMPLATES.values()
                for values in itertools.product(*t.parameters.values())]  # fmt: skip
    assert len({template.question(parameters) for template, parameters in problems}) == len(problems) > 400
    forms = [template.form(parameters) for template, parameters in problems]
    assert min(forms.count("call"), forms.count("stdin")) > 150


@pytest.mark.parametrize("name", TEMPLATES)
def test_its_tests_pass_the_reference_and_kill_its_wrong_variants(name):
    template = TEMPLATES[name]
    assert len(template.wrong) >= 3
    for seed in SEEDS:
        draft = draw(template, seed)
        hidden, public = cases_of(draft.data["hidden"]), cases_of(draft.data["public"])
        options = {"entry_point": draft.data.get("entry_point"), "tolerance": draft.data.get("tolerance")}
        assert len(public) == 3
        assert len(hidden) >= 8
        assert len({case.input for case in (*hidden, *public)}) == len(hidden) + len(public)
        report = judge(draft.answer, (*hidden, *public), **options)
        assert report.passed, report
        killed = [not judge(variant, hidden, **options).passed for variant in draft.data["variants"]]
        assert sum(killed) >= 3, (seed, [edit for edit, dead in zip(template.wrong, killed, strict=True) if not dead])


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_wrong_variant_is_wrong_not_broken(name):
    template = TEMPLATES[name]
    for edit in template.wrong:
        assert template.source().count(edit[0]) == 1
        compile(template.source(edit), name, "exec")


def test_no_problem_is_in_both_splits_whatever_its_tests_and_form():
    problems = {}
    for split in ("train", "test"):
        for seed in (0, 1):
            tasks = load_coding_tasks("templates", split, seed=seed, size=400)
            assert all(task.data["form"] in ("call", "stdin") for task in tasks)
            problems.setdefault(split, set()).update(normalise(task.question) for task in tasks)
    assert not problems["train"] & problems["test"]
    statements = {
        s: {q.partition("write the function")[0].partition("input:")[0] for q in p} for s, p in problems.items()
    }
    assert not statements["train"] & statements["test"]
    assert len(problems["train"]) > 200
    assert len(problems["test"]) > 30


def test_the_same_task_every_time():
    first, again = (load_coding_tasks("templates", size=50) for _ in range(2))
    assert [task.hash for task in first] == [task.hash for task in reversed(list(again))][::-1]
    assert load_coding_tasks("templates", seed=1)[0].hash != first[0].hash


def test_domains_and_templates_can_be_chosen():
    graphs = load_coding_tasks("templates", domains=["graphs"], size=30)
    assert {task.data["template"] for task in graphs} <= {template.name for template in DOMAINS["graphs"]}
    one = load_coding_tasks("templates", templates=["count-runs"], size=5)
    assert {task.data["template"] for task in one} == {"count-runs"}
    for options, message in [
        ({"domains": ["graph"]}, "no domain 'graph'; there are: strings"),
        ({"templates": ["x"]}, "no template 'x'"),
        ({"domains": ["graphs"], "templates": ["count-runs"]}, "no template is in the domains"),
        ({"domain": ["graphs"]}, "Did you mean: 'domains'"),
    ]:
        with pytest.raises(TaskError, match=message):
            load_coding_tasks("templates", **options)


def test_a_template_without_a_problem_in_the_split_says_so():
    splits = {split_of(TEMPLATES["spiral"].question({"way": way})) for way in ("clockwise", "counter-clockwise")}
    (missing,) = {"train", "test"} - splits
    with pytest.raises(TaskError, match=f"belongs to the '{missing}' split"):
        draw_template_task(random.Random(0), split=missing, templates=["spiral"])
