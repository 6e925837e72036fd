"""Runs as tables for other tools: Parquet, CSV, or a folder for the library ``datasets``. Nothing is uploaded."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from benchmarks.export_card import dataset_card
from benchmarks.export_columns import TABLES, TOKEN_COLUMNS, Column, run_rows
from benchmarks.results import ResultsError, read_config

__all__ = ["FORMATS", "export"]

FORMATS = ("parquet", "csv", "dataset")
"""What runs can be exported to."""

ROWS_AT_ONCE = 500
"""Rows that are held in memory, which become a row group of a Parquet file."""


def export(paths: Sequence[str | Path], out: str | Path, form: str) -> dict[str, int]:
    """Write the tables ``episodes``, ``turns`` and ``runs`` of results folders.

    ==========  ========================================================================================================
    format      what is written
    ==========  ========================================================================================================
    parquet     ``episodes.parquet``, ``turns.parquet``, ``runs.parquet``
    csv         the same as ``.csv``, in UTF-8; nothing where there is no value
    dataset     ``data/*.parquet`` and a ``README.md`` that tells ``datasets.load_dataset(folder)`` what they are
    ==========  ========================================================================================================

    Episodes that failed (``errors.jsonl``) are left out. The folder is there whole or not at all.

    Args:
        paths: Results folders. One that is given twice is written once.
        out: The folder to write, which must be empty or not there.
        form: One of :data:`FORMATS`.

    Returns:
        The number of rows by table.

    Raises:
        ResultsError: If a folder cannot be read, ``out`` cannot be written or holds something, or pyarrow is missing.
        ValueError: If there is no such format.
    """
    if form not in FORMATS:
        raise ValueError(f"There is no format {form!r}; the formats are {', '.join(FORMATS)}")
    out = Path(out)
    names = _names(paths)
    tokens = any(read_config(path)["identity"].get("save_tokens") for path in names)
    unfinished = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ResultsError(f"{out} is not empty; give another --out")
        unfinished.mkdir(parents=True)
        counts = _write(names, unfinished / "data" if form == "dataset" else unfinished, form, tokens=tokens)
        if form == "dataset":
            card = dataset_card(names, _columns(tokens=tokens), counts)
            (unfinished / "README.md").write_text(card, encoding="utf-8")
        os.replace(unfinished, out)
    except OSError as error:
        raise ResultsError(f"Cannot write {out}: {error.strerror or error}. Nothing of it was left there") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return counts


def _names(paths: Sequence[str | Path]) -> dict[Path, str]:
    """Return a name for each folder: its own, with a number if another one has it."""
    names: dict[Path, str] = {}
    seen = set()
    for path in map(Path, paths):
        real = path.resolve()
        if real in seen:
            continue
        seen.add(real)
        name, number = real.name, 1
        while name in names.values():
            number += 1
            name = f"{real.name}-{number}"
        names[path] = name
    return names


def _columns(*, tokens: bool) -> dict[str, tuple[Column, ...]]:
    return {name: columns + (TOKEN_COLUMNS if tokens and name == "turns" else ()) for name, columns in TABLES.items()}


class _Writer(Protocol):
    def write(self, rows: list[dict[str, Any]]) -> None: ...

    def close(self) -> None: ...


def _write(names: Mapping[Path, str], folder: Path, form: str, *, tokens: bool) -> dict[str, int]:
    folder.mkdir(exist_ok=True)
    kind: type[_Csv | _Parquet] = _Csv if form == "csv" else _Parquet
    counts = dict.fromkeys(TABLES, 0)
    with ExitStack() as stack:
        writers: dict[str, _Writer] = {}
        for table, columns in _columns(tokens=tokens).items():
            writers[table] = kind(folder / table, columns)
            stack.callback(writers[table].close)
        waiting: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES}
        for table, row in _rows(names, tokens=tokens):
            counts[table] += 1
            waiting[table].append(row)
            if len(waiting[table]) >= ROWS_AT_ONCE:
                writers[table].write(waiting[table])
                waiting[table] = []
        for table, rows in waiting.items():
            if rows:
                writers[table].write(rows)
    return counts


def _rows(names: Mapping[Path, str], *, tokens: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, name in names.items():
        yield from run_rows(path, name, tokens=tokens)


class _Csv:
    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        self._lists = [column.name for column in columns if column.kind in ("ints", "floats")]
        self._file = path.with_suffix(".csv").open("w", encoding="utf-8", newline="")
        # Lines end as RFC 4180 says; with "\n" alone the module would leave a "\r" within a text unquoted, and lose it.
        self._writer = csv.DictWriter(self._file, [column.name for column in columns], lineterminator="\r\n")
        self._writer.writeheader()

    def write(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            lists = {name: json.dumps(row[name]) for name in self._lists if row[name] is not None}
            self._writer.writerow({**row, **lists})

    def close(self) -> None:
        self._file.close()


class _Parquet:
    def __init__(self, path: Path, columns: Sequence[Column]) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError as error:
            raise ResultsError(
                "Writing Parquet needs pyarrow: pip install 'llm-envs[data]', or give --format csv"
            ) from error
        types = {
            "str": pa.string(), "json": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(),
            "ints": pa.list_(pa.int64()), "floats": pa.list_(pa.float64()),
        }  # fmt: skip
        self._schema = pa.schema([(column.name, types[column.kind]) for column in columns])
        self._table = pa.Table
        self._writer = pq.ParquetWriter(path.with_suffix(".parquet"), self._schema, compression="zstd")

    def write(self, rows: list[dict[str, Any]]) -> None:
        self._writer.write_table(self._table.from_pylist(rows, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
