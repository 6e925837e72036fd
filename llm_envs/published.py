"""Published task sets: on the hub, or as local copies under ``$LLM_ENVS_DATA``.

Where there is no network, point the environment variable ``LLM_ENVS_DATA`` at a folder that holds
``<set>/<split>.jsonl``, ``<set>_<split>.jsonl``, or ``<set>.jsonl`` for a set with one split (or the same with another
suffix of :data:`llm_envs.task_files.SUFFIXES`); files there win over the hub.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from llm_envs import task_files, task_rows
from llm_envs.task_rows import Columns, Row, RowReader
from llm_envs.tasks import Draft, ListTaskSet, TaskError, reject_options

__all__ = ["DATA_VARIABLE", "Published", "how_to_get", "is_here", "load_published"]

DATA_VARIABLE = "LLM_ENVS_DATA"


@dataclass(frozen=True)
class Published:
    """A published set and where its columns are.

    Attributes:
        hub_id: Data set on the hub.
        config: Its configuration, None for the default.
        splits: Our name of each split and the hub's.
        columns: Which column holds what.
        note: What one should know of it.
    """

    hub_id: str
    config: str | None
    splits: Mapping[str, str]
    columns: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def load_published(
    name: str,
    split: str | None = None,
    *,
    published: Published,
    reader: RowReader,
    columns: Columns | None = None,
    skip_bad_rows: bool = False,
    **options: Any,
) -> ListTaskSet:
    """Returns a published set, from ``$LLM_ENVS_DATA`` if it is there, else from the hub.

    Args:
        name: Its name.
        split: One of its splits; ``"train"`` by default where there is one, else ``"test"``.
        published: Where it is.
        reader: How its family reads a row.
        columns: Which column holds what, for a copy with other names.
        skip_bad_rows: Leave out (and count) rows that cannot be read instead of raising.
        **options: None are known; any is an error.

    Raises:
        TaskError: If there is no such split or option, the set cannot be reached, or a row cannot be read.
    """
    reject_options(name, options, ("columns", "skip_bad_rows"))
    split = task_rows.choose_split(name, split, list(published.splits))
    build: dict[str, Any] = {
        "reader": partial(_read, published, reader),
        "columns": columns,
        "skip_bad_rows": skip_bad_rows,
    }
    files = _local_files(name, list(published.splits))
    if files is not None:
        if split not in files:
            raise TaskError(
                f"{DATA_VARIABLE} has {name!r} but not its {split!r} split; add {name}/{split}.jsonl or "
                f"{name}_{split}.jsonl there"
            )
        return task_files.load_files(name, split, files, **build)
    data = task_files.fetch(published.hub_id, published.config, how_to_get(name, split))
    sources = task_files.hub_sources(f"{name} = {published.hub_id}", data, published.splits)
    return task_rows.load_splits(name, split, sources, **build)


def how_to_get(name: str, split: str) -> str:
    """Returns what a user without a network can do to have a published set."""
    return (
        f"put a copy, {name}/{split}.jsonl (or .parquet) or {name}_{split}.jsonl, into a folder and point the "
        f"environment variable {DATA_VARIABLE} at it"
    )


def is_here(name: str, split: str, published: Published) -> bool:
    """Whether a split of a published set can be had without a network: from ``$LLM_ENVS_DATA``, or a cache of the hub.

    Nothing is loaded: a copy may still turn out to be incomplete.

    Raises:
        TaskError: If ``$LLM_ENVS_DATA`` is no folder.
    """
    files = _local_files(name, list(published.splits))
    return split in files if files is not None else task_files.in_hub_cache(published.hub_id)


def _read(published: Published, reader: RowReader, row: Row, columns: Columns) -> Draft:
    # Copies of a set are often saved with other column names: fall back on the usual ones where a named column is
    # absent.
    known = {what: name for what, name in published.columns.items() if task_rows.column(row, name) is not None}
    return reader(row, {**known, **columns})


def _local_files(name: str, splits: Sequence[str]) -> dict[str, list[Path]] | None:
    """Returns the files of a published set under ``$LLM_ENVS_DATA``, or None if there are none."""
    variable = os.environ.get(DATA_VARIABLE)
    if not variable:
        return None
    root = Path(variable).expanduser()
    if not root.is_dir():
        raise TaskError(f"{DATA_VARIABLE}={variable} is not a folder; point it at one or unset it")
    found = {key: paths for key, paths in _in_folder(root / name).items() if key in splits}
    for split in splits:
        stems = [f"{name}_{split}"] + ([name] if len(splits) == 1 else [])
        for path in (root / (stem + suffix) for stem in stems for suffix in task_files.SUFFIXES):
            if split not in found and path.is_file():
                found[split] = [path]
    return found or None


def _in_folder(folder: Path) -> dict[str, list[Path]]:
    return task_files.split_files(folder) if folder.is_dir() else {}
