"""Tasks from rows, wherever the rows come from: columns, ids, repeated rows, and splits that must not overlap.

A row becomes a task through a :data:`RowReader`, which a family may write for itself; :func:`read_row` finds the
question and the answer in the columns that data sets usually have. A row that cannot be read is an error that names
the row, the columns there are and the fix.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from llm_envs.tasks import Draft, ListTaskSet, Task, TaskError, normalise

__all__ = [
    "Columns",
    "ContentError",
    "Row",
    "RowError",
    "RowReader",
    "Sources",
    "build",
    "column",
    "load_splits",
    "pick",
    "read_row",
]

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]
Columns = Mapping[str, str]
"""Which column holds what: ``{"question": "problem", "answer": "reward_model.ground_truth", "id": "uid"}``. A dot goes
into a nested object. Other keys become entries of ``Task.data``."""
RowReader = Callable[[Row, Columns], Draft]
"""Makes a draft of a row, or raises :class:`RowError`."""
Sources = Mapping[str, tuple[str, Callable[[], Iterable[tuple[str, Row]]]]]
"""For each split: what it is called in messages, and a function that returns its (place, row) pairs."""

QUESTION_COLUMNS = ("problem", "question", "prompt", "Problem", "Question")
ANSWER_COLUMNS = ("answer", "Answer", "expected_answer", "final_answer", "reward_model.ground_truth")
ID_COLUMNS = ("id", "unique_id")
DATA_COLUMNS = ("subject", "level", "difficulty")
"""Kept in ``Task.data`` where a row has them, for reports by level."""


class RowError(ValueError):
    """A row cannot be read. The message is the reason; the loader adds the place and the columns there are."""


class ContentError(RowError):
    """What is in a row cannot be used, and no other choice of columns would mend it: a puzzle without a solution."""


def column(row: Row, path: str) -> Any:
    """Returns the value at ``path`` (``"answer"`` or ``"reward_model.ground_truth"``), None if there is none."""
    if path in row:
        return row[path]
    value: Any = row
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def pick(row: Row, columns: Columns, what: str, candidates: Sequence[str]) -> Any:
    """Returns the value of the column that ``columns`` names for ``what``, else of the first candidate that has one.

    Raises:
        RowError: If there is no such column or it is empty.
    """
    if what in columns:
        value = column(row, columns[what])
        if value is None:
            raise RowError(f"no value in the column {columns[what]!r} that columns names for {what!r}")
        return value
    for name in candidates:
        value = column(row, name)
        if value is not None:
            return value
    raise RowError(f"no {what} in any of the columns {', '.join(candidates)}")


def question_text(value: Any) -> str:
    """Returns a statement from a column: text, or a list of chat messages of which exactly one is the user's.

    Raises:
        RowError: If the value is neither, or is empty.
    """
    if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
        said = [item.get("content") for item in value if item.get("role") == "user"]
        if len(said) != 1:
            raise RowError(f"the prompt holds {len(said)} user messages; a task is exactly one")
        value = said[0]
    if not isinstance(value, str):
        raise RowError(f"the question must be text or chat messages, got {type(value).__name__}")
    if not value.strip():
        raise RowError("the question is empty")
    return value.strip()


def extra_data(row: Row, columns: Columns) -> dict[str, Any]:
    """Returns what goes into ``Task.data``: the further keys of ``columns``, and :data:`DATA_COLUMNS`."""
    data = {name: row[name] for name in DATA_COLUMNS if row.get(name) is not None}
    for what, name in columns.items():
        if what not in ("question", "answer", "id"):
            data[what] = pick(row, columns, what, (name,))
    return data


def read_row(row: Row, columns: Columns) -> Draft:
    """The default :data:`RowReader`: question and answer as they stand."""
    question = question_text(pick(row, columns, "question", QUESTION_COLUMNS))
    answer = str(pick(row, columns, "answer", ANSWER_COLUMNS)).strip()
    if not answer:
        raise RowError("the answer is empty")
    return Draft(question, answer, extra_data(row, columns))


def _check_columns(columns: Any) -> Columns:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not all(isinstance(v, str) for kv in columns.items() for v in kv):
        raise TaskError(
            f'columns must be a mapping such as {{"question": "problem", "answer": "gold"}}, got {columns!r}'
        )
    return columns


def _choose_columns(row: Row) -> str:
    names = ", ".join(map(repr, row))
    return f'The columns are: {names}. Say which to use with columns={{"question": …, "answer": …}}'


def build(
    rows: Iterable[tuple[str, Row]],
    prefix: str,
    *,
    source: str,
    reader: RowReader,
    columns: Columns | None = None,
    skip_bad_rows: bool = False,
) -> list[Task]:
    """Returns the tasks of ``rows``.

    Ids are ``<prefix>/<id column>``, or ``<prefix>/<row number from 0>`` where there is no id column or its values
    repeat. A row that repeats an earlier question with the same answer is left out; how many were is logged.

    Args:
        rows: (place, row); the place stands in error messages.
        prefix: What the ids begin with.
        source: File or data set, for messages.
        reader: Makes a draft of a row.
        columns: The user's column map.
        skip_bad_rows: Leave out rows that cannot be read, and log how many, instead of raising.

    Raises:
        TaskError: If a row cannot be read, an id that ``columns`` asks for is missing or repeated, or no row is left.
    """
    columns = _check_columns(columns)
    drafts: dict[tuple[str, str], tuple[int, Any, Draft]] = {}
    number, bad, first_bad = -1, 0, ""
    for number, (place, row) in enumerate(rows):
        try:
            draft = reader(row, columns)
            row_id = pick(row, columns, "id", ()) if "id" in columns else _own_id(row)
        except RowError as error:
            message = f"{place}: {error}. {'Mend it' if isinstance(error, ContentError) else _choose_columns(row)}, or "
            message += "leave such rows out with skip_bad_rows=True."
            if not skip_bad_rows:
                raise TaskError(message) from error
            bad, first_bad = bad + 1, first_bad or message
            continue
        drafts.setdefault((normalise(draft.question), draft.answer), (number, row_id, draft))
    if number < 0:
        raise TaskError(f"{source} is empty: it has no rows")
    if not drafts:
        raise TaskError(f"{source}: none of its {number + 1} rows could be read. {first_bad}")
    if bad:
        logger.warning(
            "%s: left out %d of %d rows that could not be read, first %s", source, bad, number + 1, first_bad
        )
    if repeated := number + 1 - bad - len(drafts):
        logger.warning("%s: left out %d rows that repeat an earlier one (of %d)", source, repeated, number + 1)
    ids = [row_id for _, row_id, _ in drafts.values()]
    if None in ids or len(set(map(str, ids))) < len(ids):
        if "id" in columns:
            raise TaskError(
                f"{source}: the column {columns['id']!r} that columns names for 'id' has the same value in two rows; "
                "leave 'id' out to number the rows"
            )
        ids = [number for number, _, _ in drafts.values()]
    return [Task(f"{prefix}/{row_id}", *draft) for row_id, (_, _, draft) in zip(ids, drafts.values(), strict=True)]


def _own_id(row: Row) -> str | int | None:
    for name in ID_COLUMNS:
        value = row.get(name)
        if isinstance(value, str | int) and value != "":
            return value
    return None


def choose_split(name: str, split: str | None, splits: Sequence[str]) -> str:
    """Returns ``split``, or for None ``"train"`` if there is one, else ``"test"``, else the first.

    Raises:
        TaskError: If there is no such split.
    """
    if split is None:
        return next((s for s in ("train", "test") if s in splits), splits[0])
    if split not in splits:
        raise TaskError(f"task set {name!r} has no split {split!r}; it has: {', '.join(splits)}")
    return split


def check_disjoint(name: str, split: str, tasks: Sequence[Task], others: Mapping[str, Sequence[Task]]) -> None:
    """Checks that no statement of ``tasks`` is in another split, up to case and spacing.

    Raises:
        TaskError: If one is. The message has the number and an example.
    """
    mine = {normalise(task.question) for task in tasks}
    for other, theirs in others.items():
        shared = [task for task in theirs if normalise(task.question) in mine]
        if shared:
            raise TaskError(
                f"{name}: {len(shared)} statements are in both {split!r} and {other!r}, e.g. "
                f"{shared[0].question[:80]!r}; take them out of one of the two files, or give all rows in a single "
                "file to have it split by content"
            )


def load_splits(
    name: str,
    split: str | None,
    sources: Sources,
    **build_options: Any,
) -> ListTaskSet:
    """Returns one split of several, checked to be disjoint from the others.

    Args:
        name: Name of the set.
        split: The split; None for ``"train"`` if there is one, else ``"test"``.
        sources: For each split (its description, a function that returns its rows).
        **build_options: For :func:`build`.

    Raises:
        TaskError: If there is no such split, a row cannot be read, or a statement is in two splits.
    """
    split = choose_split(name, split, list(sources))
    built = {
        key: build(rows(), f"{name}/{key}", source=source, **build_options) for key, (source, rows) in sources.items()
    }
    check_disjoint(name, split, built[split], {key: tasks for key, tasks in built.items() if key != split})
    return ListTaskSet(built[split], name=name, split=split)
