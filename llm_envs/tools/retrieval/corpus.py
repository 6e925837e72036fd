r"""Corpora: passages from JSONL files, and a store on disk that finds them by position.

A line of a corpus is ``{"id": …, "title": …, "contents": …}``; ``text`` may stand for ``contents``. Contents may begin
with a line that holds the title, in quotes or not, as in the Wikipedia dump of Search-R1
(``"\"Ada Lovelace\"\nAda Lovelace was …"``).
"""

from __future__ import annotations

import gzip
import json
import mmap
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np

from llm_envs.tools.retrieval.base import Passage, RetrieverError

PASSAGES = "passages.jsonl"
OFFSETS = "passages.offsets.npy"
_TEXT_COLUMNS = ("contents", "text")


def read_corpus(path: Path | str) -> Iterator[Passage]:
    """Yields the passages of a ``.jsonl`` or ``.jsonl.gz`` file.

    Raises:
        RetrieverError: The file cannot be read, a line is no passage, or an id comes twice.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise RetrieverError(f"there is no corpus file {path} (looked in {Path.cwd()})")
    seen: set[str] = set()
    number = 0
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                passage = _read(line, f"{path}:{number}", number)
                if passage.id in seen:
                    raise RetrieverError(f"{path}:{number}: the id {passage.id!r} comes twice; ids must be unique")
                seen.add(passage.id)
                yield passage
    except UnicodeDecodeError as error:
        raise RetrieverError(f"{path}: line {number + 1} is not UTF-8 text; convert the file first") from error
    except (OSError, EOFError) as error:
        raise RetrieverError(f"cannot read {path}: {error}") from error
    if not seen:
        raise RetrieverError(f"{path} is empty: it has no passages")


def _open(path: Path) -> IO[str]:
    if path.name.endswith(".jsonl.gz"):
        return gzip.open(path, "rt", encoding="utf-8", newline="\n")
    if path.name.endswith(".jsonl"):
        return path.open(encoding="utf-8", newline="\n")
    raise RetrieverError(f"cannot read {path}: a corpus is a .jsonl or .jsonl.gz file, one passage a line")


def _read(line: str, place: str, number: int) -> Passage:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise RetrieverError(f"{place}: not valid JSON: {error.msg} (column {error.colno})") from error
    if not isinstance(row, Mapping):
        raise RetrieverError(f"{place}: expected an object with id, title and contents, got {type(row).__name__}")
    contents = next((row[name] for name in _TEXT_COLUMNS if isinstance(row.get(name), str)), None)
    if contents is None:
        raise RetrieverError(f"{place}: no text in the columns contents, text; the columns are: {', '.join(row)}")
    title = row.get("title")
    if title is not None and not isinstance(title, str):
        raise RetrieverError(f"{place}: the title must be text, got {title!r}")
    return make_passage(str(row.get("id", number - 1)), title, contents)


def make_passage(passage_id: str, title: str | None, contents: str, score: float = 0.0) -> Passage:
    r"""Returns a passage of contents that may begin with a line that holds the title.

    >>> make_passage("7", None, '"Ada Lovelace"\nA mathematician.')
    Passage(id='7', title='Ada Lovelace', text='A mathematician.', score=0.0)
    >>> make_passage("7", "Ada Lovelace", "A mathematician.").text
    'A mathematician.'
    """
    first, line_end, rest = contents.partition("\n")
    unquoted = first[1:-1] if len(first) > 1 and first[0] == first[-1] == '"' else None
    if title is not None:
        title = " ".join(title.split())
        own_line = line_end and (first.strip() == title or unquoted == title)
        return Passage(passage_id, title, rest if own_line else contents, score)
    if unquoted is not None and line_end:
        return Passage(passage_id, unquoted, rest, score)
    return Passage(passage_id, "", contents, score)


def contents_of(passage: Passage) -> str:
    """The passage as one text, the title in quotes on the first line: what :func:`make_passage` takes apart."""
    return f'"{passage.title}"\n{passage.text}'


class PassageStore:
    """Passages on disk, found by position: a JSONL file and the offsets of its lines, both mapped into memory."""

    def __init__(self, folder: Path) -> None:
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r", allow_pickle=False)
        with (folder / PASSAGES).open("rb") as file:
            self._lines = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def get(self, position: int, score: float = 0.0) -> Passage:
        """The passage at ``position`` (from 0) with ``score``."""
        row: dict[str, Any] = json.loads(self._lines[int(self._offsets[position]) : int(self._offsets[position + 1])])
        return Passage(row["id"], row["title"], row["text"], score)

    @staticmethod
    def write(folder: Path, passages: Iterable[Passage]) -> Iterator[Passage]:
        """Writes ``passages`` into ``folder`` and yields them; the store is complete once all were taken."""
        offsets = [0]
        passages = iter(passages)
        first = next(passages, None)
        if first is None:
            raise RetrieverError("an index needs at least one passage")
        with (folder / PASSAGES).open("wb") as file:
            for passage in chain([first], passages):
                row = {"id": passage.id, "title": passage.title, "text": passage.text}
                file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
                offsets.append(file.tell())
                yield passage
        np.save(folder / OFFSETS, np.asarray(offsets, dtype=np.int64))


class PassageList:
    """Passages in memory, with the interface of :class:`PassageStore`."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self._passages = list(passages)

    def __len__(self) -> int:
        return len(self._passages)

    def __iter__(self) -> Iterator[Passage]:
        return iter(self._passages)

    def get(self, position: int, score: float = 0.0) -> Passage:
        """The passage at ``position`` (from 0) with ``score``."""
        passage = self._passages[position]
        return Passage(passage.id, passage.title, passage.text, score)
