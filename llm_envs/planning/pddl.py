"""PDDL instances of blocks world, read with unified-planning (extra ``planning``), and written.

The parser is that of unified-planning (Apache-2.0). What is read must be the domain with four operators, whatever the
names of its parameters: its predicates, preconditions and effects are compared with :data:`DOMAIN` one by one, because
the rules that the environments play by are those of :mod:`llm_envs.planning.blocksworld`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_envs.planning.blocksworld_facts import FactError, Problem
from llm_envs.tasks import TaskError

if TYPE_CHECKING:
    from unified_planning.model import FNode

__all__ = ["DOMAIN", "REQUIREMENTS", "read_problem", "read_problems", "write_problem"]

REQUIREMENTS = (":strips", ":typing")
"""The PDDL requirements that a domain may state."""

DOMAIN = """\
(define (domain blocksworld-4ops)
  (:requirements :strips)
  (:predicates (on ?x ?y) (ontable ?x) (clear ?x) (holding ?x) (handempty))
  (:action pick-up
    :parameters (?x)
    :precondition (and (clear ?x) (ontable ?x) (handempty))
    :effect (and (holding ?x) (not (ontable ?x)) (not (clear ?x)) (not (handempty))))
  (:action put-down
    :parameters (?x)
    :precondition (holding ?x)
    :effect (and (ontable ?x) (clear ?x) (handempty) (not (holding ?x))))
  (:action stack
    :parameters (?x ?y)
    :precondition (and (holding ?x) (clear ?y))
    :effect (and (on ?x ?y) (clear ?x) (handempty) (not (holding ?x)) (not (clear ?y))))
  (:action unstack
    :parameters (?x ?y)
    :precondition (and (on ?x ?y) (clear ?x) (handempty))
    :effect (and (holding ?x) (clear ?y) (not (on ?x ?y)) (not (clear ?x)) (not (handempty)))))
"""
"""The domain, as :func:`write_problem` expects it."""

_COMMENT = re.compile(r";[^\n]*")
_DOMAIN_NAME = re.compile(r"\(\s*define\s*\(\s*domain\s+([^\s()]+)")
_PROBLEM_DOMAIN = re.compile(r"\(\s*:domain\s+([^\s()]+)")
_REQUIREMENTS = re.compile(r"\(\s*:requirements\b([^()]*)\)")


class _Unreadable(Exception):
    """A file is no instance of the domain; the message says why."""


def read_problems(path: Path, domain: Path | None = None) -> list[tuple[Path, Problem]]:
    """Reads one instance, or all of a folder in the order of their numbers.

    Args:
        path: A ``.pddl`` file or a folder with such files.
        domain: The file of the domain; None for the one of the folder that holds a domain.

    Raises:
        TaskError: unified-planning is not installed, there is no domain or no instance, or a file is not what it should
            be.
    """
    if not path.exists():
        raise TaskError(f"there is no file or folder {path} (looked in {Path.cwd()}); give the path of a .pddl file")
    folder = path if path.is_dir() else path.parent
    files = sorted(folder.glob("*.pddl"), key=_natural_order)
    domains = [file for file in files if _DOMAIN_NAME.search(_text(file))]
    if domain is None:
        if len(domains) != 1:
            found = ", ".join(file.name for file in domains) or "none"
            raise TaskError(
                f"{path} needs the one file that holds its domain; in {folder} there is: {found}. Name it with the "
                "option domain"
            )
        domain = domains[0]
    instances = [file for file in files if file not in domains] if path.is_dir() else [path]
    if not instances:
        raise TaskError(f"{path} holds a domain and no instance; add .pddl files with (define (problem …))")
    return [(file, read_problem(file, domain)) for file in instances]


def read_problem(path: Path, domain: Path) -> Problem:
    """Reads one instance.

    Raises:
        TaskError: unified-planning is not installed, or a file is not what it should be.
    """
    text, domain_text = _text(path), _text(domain)
    try:
        _check_names(domain_text, text)
        _check_domain(domain_text)
        return _problem(_parse(domain_text, text))
    except (_Unreadable, FactError) as reason:
        raise TaskError(f"{path} with the domain {domain}: {reason}") from reason


def write_problem(problem: Problem, name: str = "blocksworld") -> str:
    """``problem`` as PDDL, an instance of :data:`DOMAIN`."""

    def block(facts: Sequence[str]) -> str:
        return " ".join(f"({fact})" for fact in facts)

    return (
        f"(define (problem {name})\n  (:domain blocksworld-4ops)\n  (:objects {' '.join(problem.names)})\n"
        f"  (:init {block(problem.facts(problem.initial))})\n  (:goal (and {block(problem.goal_facts)})))\n"
    )


def _natural_order(file: Path) -> list[tuple[int, str]]:
    """``instance-2`` before ``instance-10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", file.stem)]


def _text(file: Path) -> str:
    """A file in lower case and without comments."""
    try:
        return _COMMENT.sub("", file.read_text(encoding="utf-8-sig")).lower()
    except (OSError, UnicodeDecodeError) as reason:
        raise TaskError(f"cannot read {file}: {reason}") from reason


def _check_names(domain: str, problem: str) -> None:
    """That the first is a domain with requirements that are offered, and the second an instance of it."""
    name = _DOMAIN_NAME.search(domain)
    if name is None:
        raise _Unreadable("the file of the domain has no (define (domain …))")
    for stated in _REQUIREMENTS.findall(domain) + _REQUIREMENTS.findall(problem):
        for requirement in stated.split():
            if requirement not in REQUIREMENTS:
                raise _Unreadable(f"the requirement {requirement} is not supported, only {', '.join(REQUIREMENTS)}")
    wanted = _PROBLEM_DOMAIN.search(problem)
    if wanted is None:
        raise _Unreadable("the instance names no (:domain …)")
    if wanted[1] != name[1]:
        raise _Unreadable(f"the instance is of the domain {wanted[1]!r}, the file of the domain defines {name[1]!r}")


def _parse(domain: str, problem: str | None = None) -> Any:
    """The problem as unified-planning has it; without an instance it has the domain alone."""
    try:
        from pyparsing import ParseBaseException
        from unified_planning.environment import Environment
        from unified_planning.exceptions import UPException
        from unified_planning.io import PDDLReader
    except ImportError as reason:
        raise TaskError("reading PDDL needs unified-planning: pip install 'llm-envs[planning]'") from reason
    # What the parser raises for malformed text, some of it from deep inside.
    malformed = (ParseBaseException, UPException, SyntaxError, LookupError, ValueError, AssertionError, RecursionError)
    try:
        return PDDLReader(Environment()).parse_problem_string(domain, problem)
    except malformed as bad:
        raise _Unreadable(f"not valid PDDL: {type(bad).__name__}: {str(bad)[:300]}") from bad


# Of each operator: preconditions, what becomes true, what becomes false. 0 and 1 are its parameters.
_Atoms = set[tuple[str, *tuple[int, ...]]]
_OPERATORS: dict[str, tuple[_Atoms, _Atoms, _Atoms]] = {
    "pick-up": (
        {("clear", 0), ("ontable", 0), ("handempty",)},
        {("holding", 0)},
        {("clear", 0), ("ontable", 0), ("handempty",)},
    ),
    "put-down": (
        {("holding", 0)},
        {("clear", 0), ("ontable", 0), ("handempty",)},
        {("holding", 0)},
    ),
    "stack": (
        {("holding", 0), ("clear", 1)},
        {("on", 0, 1), ("clear", 0), ("handempty",)},
        {("holding", 0), ("clear", 1)},
    ),
    "unstack": (
        {("on", 0, 1), ("clear", 0), ("handempty",)},
        {("holding", 0), ("clear", 1)},
        {("on", 0, 1), ("clear", 0), ("handempty",)},
    ),
}


@lru_cache(maxsize=8)
def _check_domain(domain: str) -> None:
    """That the operators are those of blocks world."""
    parsed = _parse(domain)
    fix = "only the blocks world with pick-up, put-down, stack and unstack is offered"
    names = sorted(action.name for action in parsed.actions)
    if names != sorted(_OPERATORS):
        raise _Unreadable(f"its operators are {', '.join(names) or 'none'}; {fix}")
    for action in parsed.actions:
        position = {parameter.name: index for index, parameter in enumerate(action.parameters)}
        if not hasattr(action, "preconditions") or any(not effect.is_assignment() for effect in action.effects):
            raise _Unreadable(f"the operator {action.name} is not a STRIPS operator; {fix}")
        conditions = {_atom(fact, position) for condition in action.preconditions for fact in _conjuncts(condition)}
        true: _Atoms = set()
        false: _Atoms = set()
        for effect in action.effects:
            if effect.is_conditional() or effect.is_forall() or not effect.value.is_bool_constant():
                raise _Unreadable(f"the operator {action.name} is not a STRIPS operator; {fix}")
            (true if effect.value.is_true() else false).add(_atom(effect.fluent, position))
        if (conditions, true, false) != _OPERATORS[action.name]:
            raise _Unreadable(f"the operator {action.name} has other preconditions or effects than blocks world; {fix}")


def _conjuncts(condition: FNode) -> Iterator[FNode]:
    """The facts of a conjunction."""
    if condition.is_and():
        for part in condition.args:
            yield from _conjuncts(part)
    elif condition.is_fluent_exp():
        yield condition
    elif not condition.is_true():
        raise _Unreadable(f"{condition} is not a conjunction of facts")


def _atom(fact: FNode, position: dict[str, int]) -> tuple[str, *tuple[int, ...]]:
    return (
        fact.fluent().name,
        *(position[part.parameter().name] if part.is_parameter_exp() else -1 for part in fact.args),
    )


def _problem(parsed: Any) -> Problem:
    if parsed.quality_metrics or parsed.trajectory_constraints:
        raise _Unreadable("it has a metric or constraints; the shortest plan is what counts here")
    for parameter in (parameter for action in parsed.actions for parameter in action.parameters):
        for thing in parsed.all_objects:
            if not parameter.type.is_compatible(thing.type):
                raise _Unreadable(f"the object {thing.name} is no {parameter.type.name}; every object must be a block")
    initial = [_fact(fact) for fact, value in parsed.explicit_initial_values.items() if value.is_true()]
    goal = [_fact(fact) for condition in parsed.goals for fact in _conjuncts(condition)]
    return Problem.from_facts([thing.name for thing in parsed.all_objects], initial, goal)


def _fact(fact: FNode) -> str:
    return " ".join([fact.fluent().name, *(part.object().name for part in fact.args)])
