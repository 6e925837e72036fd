"""The card of an exported data set: what the Hub and ``datasets.load_dataset`` read, and what people do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.export_columns import Column
from benchmarks.results import read_config
from benchmarks.table import make_leaderboard
from benchmarks.table_formats import escape_markdown, to_markdown

__all__ = ["dataset_card"]

SPLIT = "train"
"""The split that everything is in: what the Hub calls data that is not split."""

_KINDS = {"json": "text (JSON)", "str": "text", "ints": "list of integers", "floats": "list of numbers"}


def dataset_card(names: Mapping[Path, str], tables: Mapping[str, Sequence[Column]], counts: Mapping[str, int]) -> str:
    """Return the ``README.md`` of a data set whose tables are ``data/<table>.parquet``.

    Args:
        names: Names of the runs, by folder.
        tables: The columns of every table. The first is the one that is loaded without a name.
        counts: Their numbers of rows.

    Raises:
        ResultsError: If a folder cannot be read.
    """
    envs = list(dict.fromkeys(str(read_config(path)["identity"]["env"]) for path in names))
    title = f"Episodes of {', '.join(envs)}"
    head = [f"pretty_name: {json.dumps(title)}", "tags:", "- llm-envs", "- evaluation", "- multi-agent", "configs:"]
    for position, table in enumerate(tables):
        head += [f"- config_name: {table}", *(["  default: true"] if position == 0 else []), "  data_files:"]
        head += [f"  - split: {SPLIT}", f"    path: data/{table}.parquet"]
    lines = ["---", *head, "---", "", f"# {escape_markdown(title)}", ""]
    lines += [
        "Played with `llm-bench run` of llm-envs and written by `llm-bench export --format dataset`.",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        *(
            f'{table} = load_dataset("path/of/this/folder", "{table}", split="{SPLIT}")  # {counts[table]} rows'
            for table in tables
        ),
        "```",
        "",
        "## Results",
        "",
        to_markdown(make_leaderboard(list(names))),
        "## Columns",
    ]
    for table, columns in tables.items():
        lines += ["", f"### {table}", "", "| column | type | meaning |", "| :--- | :--- | :--- |"]
        lines += [
            f"| `{column.name}` | {_KINDS.get(column.kind, column.kind)} | {escape_markdown(column.meaning)} |"
            for column in columns
        ]
    return "\n".join(lines) + "\n"
