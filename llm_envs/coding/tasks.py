r"""Coding task sets: generated, published, and the user's own.

====================  ============================================================================================
``templates``         Generated from templates in seven domains (the default; :mod:`llm_envs.coding.templates`)
``humaneval``         164 functions with assertions (Chen et al. 2021)
``mbpp``              974 small functions with assertions (Austin et al. 2021)
``apps``              10,000 competition problems (Hendrycks et al. 2021)
``code_contests``     Competition problems with wrong submissions (Li et al. 2022)
``livecodebench``     Competition problems with release dates (Jain et al. 2024); no reference solutions
====================  ============================================================================================

Published sets load through ``datasets``. Where there is no network, point the environment variable ``LLM_ENVS_DATA`` at
a folder that holds ``<set>/<split>.jsonl`` or ``<set>_<split>.jsonl`` (or another suffix of
:data:`llm_envs.task_files.SUFFIXES`, or ``<set>.jsonl`` for a set with one split); files there win over the hub. A
file's format is told by its columns (:mod:`llm_envs.coding.rows`), so the path of a copy works as well.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from llm_envs.coding.rows import read_code_row
from llm_envs.coding.templates import VERSION, check_choice, draw_template_task
from llm_envs.published import Published, load_published
from llm_envs.task_rows import Columns
from llm_envs.tasks import (
    ListTaskSet,
    Loader,
    ProceduralTaskSet,
    Task,
    TaskError,
    TaskSet,
    check_split,
    load_tasks,
    reject_options,
)

__all__ = ["CODING_TASKS", "DEFAULT_TASKS", "PUBLISHED", "load_coding_tasks"]

DEFAULT_TASKS = "templates"


PUBLISHED: dict[str, Published] = {
    "humaneval": Published("openai/openai_humaneval", None, {"test": "test"}),
    "mbpp": Published("google-research-datasets/mbpp", "full", {"train": "train", "test": "test"}),
    "apps": Published("codeparrot/apps", "all", {"train": "train", "test": "test"}),
    "code_contests": Published("deepmind/code_contests", None, {"train": "train", "test": "test"}),
    "livecodebench": Published("livecodebench/code_generation_lite", None, {"test": "test"}),
}
"""The published sets by name."""

DATED = frozenset({"livecodebench"})
"""The published sets whose tasks have a release date."""


def load_templates(
    split: str | None = None,
    *,
    size: int | None = None,
    seed: int = 0,
    domains: Sequence[str] | None = None,
    templates: Sequence[str] | None = None,
    **options: Any,
) -> TaskSet:
    """Returns tasks made from templates.

    Args:
        split: ``"train"`` (also for None) or ``"test"``. A problem (statement and parameters) is in one of the two.
        size: Number of tasks.
        seed: Another seed gives other tasks.
        domains: Only these domains.
        templates: Only these templates.
        **options: None are known; any is an error.

    Raises:
        TaskError: There is no such split, option, domain or template.
    """
    reject_options("templates", options, ("size", "seed", "domains", "templates"))
    check_choice(domains, templates)
    split = check_split("templates", split or "train")
    chosen: dict[str, Any] = {"split": split}
    chosen |= {k: list(v) for k, v in (("domains", domains), ("templates", templates)) if v is not None}
    return ProceduralTaskSet(
        "templates", split, draw_template_task, options=chosen, size=size, seed=seed, version=VERSION
    )


def load_published_code(
    name: str,
    split: str | None = None,
    *,
    columns: Columns | None = None,
    skip_bad_rows: bool = False,
    released_from: str | None = None,
    released_until: str | None = None,
    **options: Any,
) -> TaskSet:
    """Returns a set of :data:`PUBLISHED`, from ``$LLM_ENVS_DATA`` if it is there, else from the hub.

    Args:
        name: Its name.
        split: One of its splits; ``"train"`` by default where there is one, else ``"test"``.
        columns: Which column holds what, for a copy in the plain format.
        skip_bad_rows: Leave out (and count) rows that cannot be read instead of raising.
        released_from: Only tasks released on this day (``"2024-09-01"``) or later; for a set with dates.
        released_until: Only tasks released on this day or earlier.
        **options: None are known; any is an error.

    Raises:
        TaskError: There is no such split or option, the set cannot be reached, a row cannot be read, or no task lies in
            the window.
    """
    window = ("released_from", "released_until") if name in DATED else ()
    given = {k: v for k, v in (("released_from", released_from), ("released_until", released_until)) if v is not None}
    reject_options(name, [*options, *given], ("columns", "skip_bad_rows", *window))
    tasks = load_published(
        name,
        split,
        published=PUBLISHED[name],
        reader=read_code_row,
        columns=columns,
        skip_bad_rows=skip_bad_rows,
    )
    return _in_window(tasks, released_from, released_until) if given else tasks


def _in_window(tasks: ListTaskSet, first: str | None, last: str | None) -> ListTaskSet:
    for day in (first, last):
        if day is not None:
            try:
                dt.date.fromisoformat(day)
            except (TypeError, ValueError) as error:
                raise TaskError(f"a release date is written like 2024-09-01, got {day!r}") from error
    dates = {task.id: str(task.data.get("released", "")) for task in tasks}
    undated = [name for name, date in dates.items() if not date]
    if undated:
        raise TaskError(
            f"{tasks.name}: {len(undated)} tasks have no release date, e.g. {undated[0]}; leave the window out"
        )
    # Dates in ISO form are in the order of their text.
    kept = [task for task in tasks if (first or "") <= dates[task.id] <= (last or "9999-12-31")]
    if not kept:
        raise TaskError(
            f"{tasks.name}: no task was released from {first or 'the start'} until {last or 'today'}; there are tasks "
            f"from {min(dates.values())} until {max(dates.values())}"
        )
    return ListTaskSet(kept, name=tasks.name, split=tasks.split)


CODING_TASKS: dict[str, Loader] = {
    "templates": load_templates,
    **{name: partial(load_published_code, name) for name in PUBLISHED},
}
"""Every named set of the family and its loader."""


def load_coding_tasks(
    tasks: str | os.PathLike[str] | TaskSet | Sequence[Task] = DEFAULT_TASKS, split: str | None = None, **options: Any
) -> TaskSet:
    """Returns coding tasks: a set of :data:`CODING_TASKS`, a file or folder, a hub data set, or tasks that are given.

    Args:
        tasks: See :func:`llm_envs.tasks.load_tasks`.
        split: Likewise.
        **options: Options of the set.

    Raises:
        TaskError: If there is no such set, split, file, option or column.
    """
    return load_tasks(tasks, split, family=CODING_TASKS, reader=read_code_row, **options)
