"""Task templates for the coding family: one module a domain."""

from __future__ import annotations

import random
from collections.abc import Sequence

from llm_envs.coding.templates import arithmetic, graphs, grids, intervals, lists, simulation, strings
from llm_envs.coding.templates.base import Template
from llm_envs.tasks import Draft, TaskError, split_of

__all__ = ["DOMAINS", "TEMPLATES", "VERSION", "Template", "check_choice", "draw_template_task"]

VERSION = 1
_MOST_DRAWS = 10_000

DOMAINS: dict[str, tuple[Template, ...]] = {
    "strings": strings.TEMPLATES,
    "lists": lists.TEMPLATES,
    "arithmetic": arithmetic.TEMPLATES,
    "graphs": graphs.TEMPLATES,
    "intervals": intervals.TEMPLATES,
    "grids": grids.TEMPLATES,
    "simulation": simulation.TEMPLATES,
}
"""The templates of each domain."""

TEMPLATES: dict[str, Template] = {template.name: template for group in DOMAINS.values() for template in group}
"""All templates by name."""


def draw_template_task(
    rng: random.Random,
    *,
    split: str,
    domains: Sequence[str] | None = None,
    templates: Sequence[str] | None = None,
) -> Draft:
    """A task of a random template, whose problem belongs to ``split``.

    Args:
        rng: Source of randomness.
        split: ``"train"`` or ``"test"``, by content (:func:`llm_envs.tasks.split_of`).
        domains: Draw from these domains only.
        templates: Draw from these templates only.

    Raises:
        TaskError: There is no such domain or template, or no problem of them belongs to the split.
    """
    chosen = check_choice(domains, templates)
    for _ in range(_MOST_DRAWS):
        template = rng.choice(chosen)
        parameters = template.chosen(rng)
        if split_of(template.question(parameters)) == split:  # Before its tests are made, which takes longer.
            return template.task(rng, parameters)
    raise TaskError(f"no problem of these templates belongs to the {split!r} split; choose more templates")


def check_choice(domains: Sequence[str] | None, templates: Sequence[str] | None) -> list[Template]:
    """The templates that are in ``domains`` and among ``templates``; None stands for all.

    Raises:
        TaskError: There is no such domain or template, or none is left.
    """
    for what, given, known in (("domain", domains, DOMAINS), ("template", templates, TEMPLATES)):
        for name in given or ():
            if name not in known:
                raise TaskError(f"there is no {what} {name!r}; there are: {', '.join(known)}")
    chosen = [
        template
        for domain, group in DOMAINS.items()
        for template in group
        if (domains is None or domain in domains) and (templates is None or template.name in templates)
    ]
    if not chosen:
        raise TaskError(f"no template is in the domains {domains} and among {templates}; give one of the two only")
    return chosen
