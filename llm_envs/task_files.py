"""Task sets from rows: local JSONL, JSON and Parquet files, folders with one file a split, and hub data sets.

A row becomes a task through a :data:`RowReader`, which a family may write for itself; :func:`read_row` finds the question and
the answer in the columns that data sets usually have. A row that cannot be read is an error that names the row, the
columns there are and the fix.
"""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_envs.tasks import Draft, ListTaskSet, Task, TaskError, normalise, reject_options

__all__ = ["Columns", "Row", "RowError", "RowReader", "column", "load_hub", "load_path", "read_row"]

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]
Columns = Mapping[str, str]
"""Which column holds what: ``{"question": "problem", "answer": "reward_model.ground_truth", "id": "uid"}``. A dot goes into a
nested object. Other keys become entries of ``Task.data``."""
RowReader = Callable[[Row, Columns], Draft]
"""Makes a draft of a row, or raises :class:`RowError`."""

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")
SPLIT_NAMES = ("train", "test", "validation", "valid", "val", "dev")
QUESTION_COLUMNS = ("problem", "question", "prompt", "Problem", "Question")
ANSWER_COLUMNS = ("answer", "Answer", "expected_answer", "final_answer", "reward_model.ground_truth")
ID_COLUMNS = ("id", "unique_id")
DATA_COLUMNS = ("subject", "level", "difficulty")
"""Kept in ``Task.data`` where a row has them, for reports by level."""


class RowError(ValueError):
    """A row cannot be read. The message is the reason; the loader adds the place and the columns there are."""


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


def looks_like_path(name: str) -> bool:
    """Whether a user who types ``name`` means a file or folder rather than a set."""
    return name.endswith(SUFFIXES) or name.startswith(("/", "./", "../", "~"))


def _rows(path: Path) -> Iterator[tuple[str, Row]]:
    """Yields (place for messages, row) of a file."""
    if not path.name.endswith(SUFFIXES):
        raise TaskError(f"cannot read {path}: task files end in {', '.join(SUFFIXES)}")
    if path.name.endswith(".parquet"):
        numbered: Iterable[tuple[str, Any]] = ((f"{path}, row {i}", row) for i, row in enumerate(_parquet(path), 1))
    else:
        numbered = _json_rows(path)
    for place, row in numbered:
        if not isinstance(row, Mapping):
            raise TaskError(f"{place}: expected an object with one key a column, got {type(row).__name__}")
        yield place, row


def _json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.name.endswith(".gz") else raw).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not UTF-8 text (byte {error.start}); convert it first") from error
    except (OSError, EOFError) as error:
        raise TaskError(f"cannot read {path}: {error}") from error
    if path.suffix == ".json" and text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except json.JSONDecodeError as error:
            raise TaskError(f"{path}:{error.lineno}: not valid JSON: {error.msg}") from error
        yield from ((f"{path}, row {i}", row) for i, row in enumerate(rows, 1))
        return
    # Not splitlines(): JSON strings may hold U+2028 and other characters that it takes for line ends.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield f"{path}:{number}", json.loads(line)
        except json.JSONDecodeError as error:
            raise TaskError(f"{path}:{number}: not valid JSON: {error.msg} (column {error.colno})") from error


def _parquet(path: Path) -> list[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TaskError(f"reading {path} needs pyarrow: pip install 'llm-envs[data]'") from error
    try:
        rows: list[Any] = pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise TaskError(f"cannot read {path}: {error}") from error
    return rows


def _check_columns(columns: Any) -> Columns:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not all(isinstance(v, str) for kv in columns.items() for v in kv):
        raise TaskError(
            f'columns must be a mapping such as {{"question": "problem", "answer": "gold"}}, got {columns!r}'
        )
    return columns


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

    Ids are ``<prefix>/<id column>``, or ``<prefix>/<row number from 0>`` where there is no id column or its values repeat. A row
    that repeats an earlier question with the same answer is left out; how many were is logged.

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
            message = (
                f"{place}: {error}. The columns are: {', '.join(map(repr, row))}. Say which to use with "
                'columns={"question": …, "answer": …}, or leave such rows out with skip_bad_rows=True.'
            )
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
                f"{source}: the column {columns['id']!r} that columns names for 'id' has the same value in two rows; leave 'id' out "
                "to number the rows"
            )
        ids = [number for number, _, _ in drafts.values()]
    return [Task(f"{prefix}/{row_id}", *draft) for row_id, (_, _, draft) in zip(ids, drafts.values(), strict=True)]


def _own_id(row: Row) -> str | int | None:
    for name in ID_COLUMNS:
        value = row.get(name)
        if isinstance(value, str | int) and value != "":
            return value
    return None


def _stem(path: Path) -> str:
    return next((path.name.removesuffix(end) for end in SUFFIXES if path.name.endswith(end)), path.name)


def split_files(folder: Path) -> dict[str, list[Path]]:
    """Returns the files of each split in ``folder``: ``train.jsonl``, ``test.parquet``, ``train-00000-of-00002.parquet``, ….

    Raises:
        TaskError: If one split comes in more than one format.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        split = _stem(path).split("-")[0]
        if path.name.endswith(SUFFIXES) and split in SPLIT_NAMES:
            found.setdefault(split, []).append(path)
    for split, paths in found.items():
        if len({path.name.removeprefix(_stem(path)) for path in paths}) > 1:
            raise TaskError(
                f"{folder} has the split {split!r} in several formats: {', '.join(p.name for p in paths)}; keep one"
            )
    return found


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
                f"{name}: {len(shared)} statements are in both {split!r} and {other!r}, e.g. {shared[0].question[:80]!r}; take them "
                "out of one of the two files, or give all rows in a single file to have it split by content"
            )


def load_splits(
    name: str,
    split: str | None,
    sources: Mapping[str, tuple[str, Callable[[], Iterable[tuple[str, Row]]]]],
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


def load_path(
    path: Path,
    split: str | None,
    *,
    reader: RowReader = read_row,
    columns: Columns | None = None,
    skip_bad_rows: bool = False,
    name: str | None = None,
    **options: Any,
) -> ListTaskSet:
    """Returns the tasks of a file, or of a folder with ``train.*``, ``test.*``, ….

    A file with split None gives all rows; with ``"train"`` or ``"test"`` the rows whose content belongs there. A folder gives the
    file of the split (``"train"`` by default); its splits must have no statement in common.

    Args:
        path: File or folder.
        split: See above.
        reader: Makes a draft of a row.
        columns: Which column holds what.
        skip_bad_rows: Leave out (and count) rows that cannot be read instead of raising.
        name: Name of the set; the file's name without its suffix by default.

    Raises:
        TaskError: If the path, a row or the split cannot be had.
    """
    reject_options(str(path), options, ("columns", "skip_bad_rows"))
    build_options = {"reader": reader, "columns": columns, "skip_bad_rows": skip_bad_rows}
    if not path.exists():
        raise TaskError(f"there is no file or folder {path} (looked in {Path.cwd()}); give the path of a task file")
    if path.is_dir():
        files = split_files(path)
        if not files:
            raise TaskError(
                f"{path} has no task files; expected train.* and test.* with the suffix {', '.join(SUFFIXES)}"
            )
        return load_splits(name or path.resolve().name, split, _file_sources(files), **build_options)
    name = name or _stem(path)
    tasks = ListTaskSet(build(_rows(path), name, source=str(path), **build_options), name=name)
    return tasks if split is None else tasks.only(split)


def _file_sources(
    files: Mapping[str, Sequence[Path]],
) -> dict[str, tuple[str, Callable[[], Iterable[tuple[str, Row]]]]]:
    def rows(paths: Sequence[Path]) -> Iterator[tuple[str, Row]]:
        for path in paths:
            yield from _rows(path)

    return {
        split: (", ".join(map(str, paths)), lambda paths=paths: rows(paths))  # type: ignore[misc]
        for split, paths in files.items()
    }


def load_files(name: str, split: str | None, files: Mapping[str, Sequence[Path]], **build_options: Any) -> ListTaskSet:
    """Like :func:`load_splits`, from files."""
    return load_splits(name, split, _file_sources(files), **build_options)


def load_hub(
    name: str,
    split: str | None,
    *,
    reader: RowReader = read_row,
    columns: Columns | None = None,
    skip_bad_rows: bool = False,
    **options: Any,
) -> ListTaskSet:
    """Returns one split of ``hub:<owner>/<name>[:<config>]``.

    Raises:
        TaskError: If the name is malformed, ``datasets`` is not installed, the data set cannot be reached, or a row cannot be read.
    """
    reject_options(name, options, ("columns", "skip_bad_rows"))
    parts = name.removeprefix("hub:").split(":")
    if len(parts) > 2 or not all(parts) or parts[0].count("/") > 1:
        raise TaskError(f"{name!r} is not a hub data set; write hub:<owner>/<name> or hub:<owner>/<name>:<config>")
    fix = "download its files where there is a network and give the path of the file or folder as tasks"
    data = fetch(parts[0], parts[1] if len(parts) == 2 else None, fix)
    return load_splits(
        name,
        split,
        hub_sources(name, data, {key: key for key in data}),
        reader=reader,
        columns=columns,
        skip_bad_rows=skip_bad_rows,
    )


def fetch(hub_id: str, config: str | None, fix: str) -> Mapping[str, Any]:
    """Returns all splits of a hub data set, from the hub or from its local cache.

    Args:
        hub_id: ``<owner>/<name>``.
        config: The data set's configuration, None for its default.
        fix: What a user without a network can do, for the message.

    Raises:
        TaskError: If ``datasets`` is not installed or the data set cannot be had.
    """
    try:
        import datasets
    except ImportError as error:
        raise TaskError(
            f"the hub data set {hub_id} needs the datasets library: pip install 'llm-envs[data]'"
        ) from error
    try:
        data: Mapping[str, Any] = datasets.load_dataset(hub_id, config)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        label = f"{hub_id} ({config})" if config else hub_id
        raise TaskError(f"cannot load the hub data set {label}: {error}. Without a network: {fix}.") from error
    return data


def hub_sources(
    name: str, data: Mapping[str, Any], splits: Mapping[str, str]
) -> dict[str, tuple[str, Callable[[], Iterable[tuple[str, Row]]]]]:
    """Returns the sources for :func:`load_splits` of a hub data set.

    Args:
        name: For messages.
        data: Its splits.
        splits: Our name of each split and the hub's.

    Raises:
        TaskError: If the data set lacks one of the splits.
    """
    missing = [theirs for theirs in splits.values() if theirs not in data]
    if missing:
        raise TaskError(f"{name}: the hub data set has no split {missing[0]!r}; it has: {', '.join(data)}")

    def rows(theirs: str) -> Iterator[tuple[str, Row]]:
        for number, row in enumerate(data[theirs], 1):
            yield f"{name} ({theirs}), row {number}", row

    return {
        ours: (f"{name} ({theirs})", lambda theirs=theirs: rows(theirs))  # type: ignore[misc]
        for ours, theirs in splits.items()
    }
