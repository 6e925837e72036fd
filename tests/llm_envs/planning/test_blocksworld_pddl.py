"""PDDL instances of blocks world: all that are there, checked by unified-planning, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest

import llm_envs
from llm_envs.planning.blocksworld_facts import Problem
from llm_envs.planning.blocksworld_tasks import load_blocksworld, load_blocksworld_tasks, problem_of
from llm_envs.planning.pddl import DOMAIN, read_problem, read_problems, write_problem
from llm_envs.tasks import TaskError

INSTANCE = """\
(define (problem two) ; a comment with (:requirements :adl)
  (:domain Blocksworld-4ops)
  (:objects A b)
  (:init (handempty) (on a B) (ontable b) (clear a))
  (:goal (and (on b a))))
"""


@pytest.fixture(scope="module")
def validate():
    """How unified-planning judges plans for a problem, all as it reads them itself."""
    io = pytest.importorskip("unified_planning.io")
    engines = pytest.importorskip("unified_planning.engines")

    reader, validator = io.PDDLReader(), engines.SequentialPlanValidator()

    def check(domain, instance, *plans):
        problem = reader.parse_problem_string(domain, instance)
        read = [reader.parse_plan_string(problem, "\n".join(f"({operator})" for operator in plan)) for plan in plans]
        return [validator.validate(problem, plan).status.name for plan in read]

    return check


def plan_of(text):
    return text.strip("[]").split(", ")


def files(tmp_path, domain=DOMAIN, instance=INSTANCE):
    (tmp_path / "domain.pddl").write_text(domain, encoding="utf-8")
    (tmp_path / "two.pddl").write_text(instance, encoding="utf-8")
    return tmp_path


# ---- reading -----------------------------------------------------------------------------------------------------


def test_the_instances_are_solved_by_the_oracle_as_unified_planning_sees_it(shared_data, validate):
    folder = shared_data / "planning" / "blocksworld"
    if not folder.is_dir():
        pytest.skip(f"no instances at {folder}")
    env = llm_envs.make("blocksworld-1agent", tasks=str(folder), order_enforcing=False)
    domain = (folder / "domain.pddl").read_text(encoding="utf-8")
    tasks = env.unwrapped.tasks
    assert [task.id for task in tasks] == [f"blocksworld/instance-{number}" for number in range(1, 41)]
    for index, task in enumerate(tasks):
        instance = (folder / f"instance-{index + 1}.pddl").read_text(encoding="utf-8")
        env.reset(options={"task_index": index})
        plan = env.oracle("planner_0")
        assert validate(domain, instance, plan_of(plan), plan_of(plan)[:-1]) == ["VALID", "INVALID"], task.id
        env.step(plan)
        assert env.success
        assert env.infos["planner_0"]["reward_parts"]["optimal"] == 0.5
        assert len(plan_of(plan)) == task.data["optimal_length"]


@pytest.mark.parametrize("goal", ["on", "full"])
@pytest.mark.parametrize("blocks", [3, 8, 20])
def test_generated_tasks_are_solved_as_unified_planning_sees_it(blocks, goal, validate):
    tasks = load_blocksworld("test", blocks=blocks, goal=goal)
    for index in range(4):
        problem = problem_of(tasks[index])
        assert validate(DOMAIN, write_problem(problem), plan_of(tasks[index].answer)) == ["VALID"]


def test_what_is_written_is_read(tmp_path):
    pytest.importorskip("unified_planning")
    tasks = load_blocksworld(blocks=6, goal="full")
    problem = problem_of(tasks[3])
    files(tmp_path, instance=write_problem(problem, "name"))
    assert read_problem(tmp_path / "two.pddl", tmp_path / "domain.pddl") == problem
    facts = ["ontable a", "ontable b", "holding c", "clear a", "clear b"]
    problem = Problem.from_facts("abc", facts, ["on c a", "ontable a", "clear b", "handempty"])
    (tmp_path / "two.pddl").write_text(write_problem(problem), encoding="utf-8")
    assert read_problem(tmp_path / "two.pddl", tmp_path / "domain.pddl") == problem


def test_a_file_a_folder_and_a_domain_elsewhere(tmp_path):
    pytest.importorskip("unified_planning")
    folder = tmp_path / "set"
    folder.mkdir()
    files(folder)
    (folder / "ten10.pddl").write_text(INSTANCE.replace("two", "ten"), encoding="utf-8")
    (folder / "ten9.pddl").write_text(INSTANCE.replace("(on b a)", "(ontable a)"), encoding="utf-8")
    assert [file.name for file, _ in read_problems(folder)] == ["ten9.pddl", "ten10.pddl", "two.pddl"]
    env = llm_envs.make("blocksworld-2agent", tasks=str(folder / "two.pddl"))
    env.reset()
    assert env.unwrapped.task.id == "set/two"
    assert "State: (on a b) (ontable b) (clear a) (handempty)\nGoal: (on b a)" in env.observe("critic_0")
    moved = (folder / "domain.pddl").rename(tmp_path / "elsewhere.pddl")
    with pytest.raises(TaskError, match=r"holds its domain; in .* there is: none\. Name it with the option domain"):
        load_blocksworld_tasks(folder)
    assert len(load_blocksworld_tasks(folder, domain=str(moved))) == 3


TYPED = DOMAIN.replace(":strips", ":strips :typing").replace("(:predicates", "(:types block)\n (:predicates")
TYPED = TYPED.replace("?x ?y)\n", "?x ?y - block)\n").replace("(?x)\n", "(?x - block)\n")


@pytest.mark.parametrize(
    ("domain", "instance"),
    [
        (TYPED, INSTANCE.replace("A b", "A b - block")),
        (DOMAIN.upper(), INSTANCE),
        (DOMAIN.replace("?x", "?top").replace("?y", "?under"), INSTANCE),
        (DOMAIN, INSTANCE.replace("(and (on b a))", "(on b a)")),
        (DOMAIN.replace("(clear ?x) (ontable ?x) (handempty))", "(handempty) (ontable ?x) (clear ?x))"), INSTANCE),
    ],
)
def test_the_same_domain_written_otherwise(tmp_path, domain, instance):
    pytest.importorskip("unified_planning")
    task = load_blocksworld_tasks(files(tmp_path, domain, instance))[0]
    assert task.answer == "[unstack a b, put-down a, pick-up b, stack b a]"


# ---- what is refused ---------------------------------------------------------------------------------------------

LOGISTICS = """\
(define (domain blocksworld-4ops) (:requirements :strips) (:predicates (at ?x ?y))
  (:action move :parameters (?x ?y ?z) :precondition (at ?x ?y) :effect (and (at ?x ?z) (not (at ?x ?y)))))
"""


PICK_UP = "(and (clear ?x) (ontable ?x) (handempty))"


def domain(old, new):
    assert old in DOMAIN
    return DOMAIN.replace(old, new, 1), INSTANCE


def instance(old, new):
    assert old in INSTANCE
    return DOMAIN, INSTANCE.replace(old, new, 1)


@pytest.mark.parametrize(
    ("files_of", "message"),
    [
        (domain(":strips", ":strips :fluents"), "requirement :fluents is not supported, only :strips"),
        (instance("(:objects", "(:requirements :adl) (:objects"), "requirement :adl is not supported"),
        ((LOGISTICS, INSTANCE), "its operators are move; only the blocks world"),
        (domain(PICK_UP, "(and (clear ?x) (ontable ?x))"), "pick-up has other preconditions or effects"),
        (domain("(not (holding ?x)) (not (clear ?y))", "(not (holding ?x))"), "stack has other preconditions"),
        (domain("(on ?x ?y) (clear ?x) (handempty) (not", "(on ?y ?x) (clear ?x) (handempty) (not"), "stack has other"),
        (domain("(holding ?x)\n    :eff", "(not (handempty))\n    :eff"), "not a conjunction of facts"),
        (domain("(and (ontable ?x) (clear ?x) (handempty)", "(and (when (holding ?x) (handempty))"), "not a STRIPS"),
        (instance("4ops", "3ops"), "is of the domain 'blocksworld-3ops', the file of the domain defines"),
        (instance("(:domain Blocksworld-4ops)", ""), "names no"),
        ((DOMAIN, INSTANCE[:-3]), "not valid PDDL"),
        ((DOMAIN[:-4], INSTANCE), "not valid PDDL"),
        (instance("(on b a)", "(over b a)"), "not valid PDDL"),
        (instance("(on b a)", "(on c a)"), "not valid PDDL"),
        (instance("(on b a)", "(or (on b a) (ontable a))"), "not a conjunction of facts"),
        (instance("(on b a)", "(not (on a b))"), "not a conjunction of facts"),
        (instance("(on b a)", "(holding a)"), "goal 'holding a' is not offered"),
        (instance("(on b a)", "(on a b)"), "the goal holds in the initial state"),
        (instance("(clear a)", ""), "nothing is on a, but the initial facts do not have 'clear a'"),
        (
            (TYPED.replace("block)", "block table)", 1), INSTANCE.replace("A b", "A b - block t - table")),
            "t is no block",
        ),
        ((DOMAIN, INSTANCE[:-2] + "(:metric minimize (total-cost)))"), "metric|not valid PDDL"),
    ],
)
def test_what_is_no_instance_is_refused_with_the_reason(tmp_path, files_of, message):
    pytest.importorskip("unified_planning")
    with pytest.raises(TaskError, match=message) as raised:
        load_blocksworld_tasks(files(tmp_path, *files_of))
    assert "two.pddl" in str(raised.value)


def test_paths_and_options_that_are_not_there(tmp_path):
    with pytest.raises(TaskError, match="there is no file or folder"):
        load_blocksworld_tasks(tmp_path / "none.pddl")
    with pytest.raises(TaskError, match=r"no option 'blocks'\. It has: domain"):
        load_blocksworld_tasks(files(tmp_path), blocks=4)
    (tmp_path / "two.pddl").unlink()
    with pytest.raises(TaskError, match="holds a domain and no instance"):
        load_blocksworld_tasks(tmp_path)
    (tmp_path / "more.pddl").write_text(DOMAIN, encoding="utf-8")
    with pytest.raises(TaskError, match=r"there is: domain\.pddl, more\.pddl"):
        load_blocksworld_tasks(tmp_path)


def test_without_the_library_the_extra_is_named_and_generated_tasks_work(tmp_path):
    files(tmp_path)
    code = (
        "import sys; sys.modules['unified_planning'] = None\n"
        "import llm_envs; llm_envs.make('blocksworld-1agent').reset(seed=0)\n"
        f"llm_envs.make('blocksworld-1agent', tasks={str(tmp_path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs unified-planning: pip install 'llm-envs[planning]'" in done.stderr.splitlines()[-1]
