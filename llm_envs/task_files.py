"""Where rows come from: local JSONL, JSON and Parquet files, folders with one file a split, and hub data sets."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from llm_envs.task_rows import Columns, Row, RowReader, Sources, build, load_splits, read_row
from llm_envs.tasks import ListTaskSet, TaskError, reject_options

__all__ = [
    "SUFFIXES",
    "fetch",
    "hub_sources",
    "in_hub_cache",
    "load_files",
    "load_hub",
    "load_path",
    "looks_like_path",
    "split_files",
]

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")
SPLIT_NAMES = ("train", "test", "validation", "valid", "val", "dev")


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
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise TaskError(f"reading {path} needs pyarrow: pip install 'llm-envs[data]'") from error
    try:
        rows: list[Any] = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise TaskError(f"cannot read {path}: {error}") from error
    return rows


def _stem(path: Path) -> str:
    return next((path.name.removesuffix(end) for end in SUFFIXES if path.name.endswith(end)), path.name)


def split_files(folder: Path) -> dict[str, list[Path]]:
    """Returns the files of each split in ``folder``.

    A file's name is its split, or begins with it: ``train.jsonl``, ``test.parquet``, ``train-00000-of-00002.parquet``.

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

    A file with split None gives all rows; with ``"train"`` or ``"test"`` the rows whose content belongs there. A folder
    gives the file of the split (``"train"`` by default); its splits must have no statement in common.

    Args:
        path: File or folder.
        split: See above.
        reader: Makes a draft of a row.
        columns: Which column holds what.
        skip_bad_rows: Leave out (and count) rows that cannot be read instead of raising.
        name: Name of the set; the file's name without its suffix by default.
        **options: None are known; any is an error.

    Raises:
        TaskError: If the path, a row or the split cannot be had.
    """
    reject_options(str(path), options, ("columns", "skip_bad_rows"))
    build_options: dict[str, Any] = {"reader": reader, "columns": columns, "skip_bad_rows": skip_bad_rows}
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
) -> Sources:
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
        TaskError: If the name is malformed, ``datasets`` is not installed, the data set cannot be reached, or a row
            cannot be read.
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


def in_hub_cache(hub_id: str) -> bool:
    """Whether the cache of the datasets library holds a hub data set. Nothing is imported or loaded."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    cache = Path(os.environ.get("HF_DATASETS_CACHE") or Path(home) / "datasets").expanduser()
    wanted = _plain(hub_id.replace("/", "___"))  # the library writes names in its own mix of cases
    return cache.is_dir() and any(_plain(path.name) == wanted and any(path.iterdir()) for path in cache.iterdir())


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def hub_sources(name: str, data: Mapping[str, Any], splits: Mapping[str, str]) -> Sources:
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
