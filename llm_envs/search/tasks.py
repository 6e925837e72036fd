"""Search task sets: questions with short answers, some with the passages that support them.

====================  ============================================================================================
``atlas``             A generated world with its own corpus (:mod:`llm_envs.search.atlas`; the default of the family)
``nq`` …              Published sets from the hub (:data:`PUBLISHED`); they need a retriever over a corpus
====================  ============================================================================================

A task's ``data`` holds ``answers`` (all that count, the first is ``Task.answer``) and, where they are known,
``supporting_titles``, ``supporting_ids``, ``hops`` and ``type``.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from llm_envs import task_rows
from llm_envs.published import Published, load_published
from llm_envs.search.atlas import load_atlas
from llm_envs.task_rows import Columns, Row, RowError
from llm_envs.tasks import Draft, Loader, Task, TaskSet, load_tasks

__all__ = ["DEFAULT_TASKS", "PUBLISHED", "SEARCH_TASKS", "gold_answers", "load_search_tasks", "read_search_row"]

DEFAULT_TASKS = "atlas"

QUESTION_COLUMNS = ("question", "Question", "query", "prompt")
ANSWER_COLUMNS = (
    "answers",
    "golden_answers",
    "answer",
    "possible_answers",
    "Answer",
    "reward_model.ground_truth.target",
)
ALIAS_COLUMNS = ("answer_aliases", "aliases", "metadata.answer_aliases")
_TITLE_COLUMNS = ("supporting_titles", "supporting_facts", "metadata.supporting_facts")
_PARAGRAPH_COLUMNS = ("paragraphs", "metadata.paragraphs")


def gold_answers(task: Task) -> tuple[str, ...]:
    """Every answer of ``task`` that counts."""
    return tuple(task.data.get("answers") or (task.answer,))


def read_search_row(row: Row, columns: Columns) -> Draft:
    """How this family reads a row.

    The question is the first of question, Question, query, prompt that there is. The answers are the first of answers,
    golden_answers, answer, possible_answers, Answer, reward_model.ground_truth.target: a text, a number, a list of
    them (also as JSON), or TriviaQA's ``{"value": …, "aliases": […]}``; answer_aliases and aliases are added.
    Supporting passages come from supporting_titles and supporting_ids, from HotpotQA's supporting_facts, or from
    MuSiQue's paragraphs, also inside metadata.

    Args:
        row: One row.
        columns: The user's column map; it wins. Keys beyond question, answer and id go into ``Task.data``.

    Raises:
        RowError: The row has no question or no answer.
    """
    question = task_rows.question_text(task_rows.pick(row, columns, "question", QUESTION_COLUMNS))
    answers = _answers(task_rows.pick(row, columns, "answer", ANSWER_COLUMNS))
    for name in ALIAS_COLUMNS:
        if (more := task_rows.column(row, name)) is not None:
            answers += _answers(more, may_be_empty=True)
    data: dict[str, Any] = task_rows.extra_data(row, columns)
    data["answers"] = list(dict.fromkeys(answers))
    titles = data.pop("supporting_titles", None)
    titles = _titles(row) if titles is None else _title_list(titles)
    if titles:
        data["supporting_titles"] = titles
    ids = data.pop("supporting_ids", None) or row.get("supporting_ids")
    if isinstance(ids, list | tuple) and ids:
        data["supporting_ids"] = [str(item) for item in ids]
    for name in ("hops", "type"):
        value = task_rows.column(row, name)
        value = task_rows.column(row, f"metadata.{name}") if value is None else value
        if isinstance(value, int | str):
            data.setdefault(name, value)
    return Draft(question, answers[0], data)


def _answers(value: Any, *, may_be_empty: bool = False) -> list[str]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        with contextlib.suppress(json.JSONDecodeError):  # an answer that begins with a bracket
            value = json.loads(value)  # PopQA keeps its list as text
    if isinstance(value, Mapping):
        value = [value.get("value"), *(value.get("aliases") or ()), *(value.get("text") or ())]
    items = list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(item, bool) or not isinstance(item, str | int | float | None) for item in items):
        raise RowError(f"the answers must be texts or numbers, got {value!r:.120}")
    answers = [text for item in items if item is not None and (text := str(item).strip())]
    if not answers and not may_be_empty:
        raise RowError("the answer is empty")
    return answers


def _titles(row: Row) -> list[str]:
    for name in _TITLE_COLUMNS:
        if (value := task_rows.column(row, name)) is not None:
            return _title_list(value)
    for name in _PARAGRAPH_COLUMNS:
        paragraphs = task_rows.column(row, name)
        if isinstance(paragraphs, list | tuple) and all(isinstance(item, Mapping) for item in paragraphs):
            return _title_list([item.get("title") for item in paragraphs if item.get("is_supporting")])
    return []


def _title_list(value: Any) -> list[str]:
    """Titles, each once: of a list of texts, of [title, sentence] pairs, or of ``{"title": [...]}``."""
    if isinstance(value, Mapping):
        value = value.get("title", ())
    if not isinstance(value, list | tuple):
        raise RowError(f"the supporting titles must be a list, got {value!r:.120}")
    titles = [item[0] if isinstance(item, list | tuple) and item else item for item in value]
    if not all(isinstance(title, str) for title in titles):
        raise RowError(f"the supporting titles must be texts, got {value!r:.120}")
    return list(dict.fromkeys(titles))


def _flashrag(config: str, splits: Mapping[str, str], note: str) -> Published:
    columns = {"question": "question", "answer": "golden_answers"}
    return Published("RUC-NLPIR/FlashRAG_datasets", config, splits, columns, note)


_TRAIN_TEST = {"train": "train", "test": "test"}
_TRAIN_DEV = {"train": "train", "test": "dev"}
"""Sets whose test answers are not public are tested on their dev split, as Search-R1 does (arXiv 2503.09516)."""

PUBLISHED: dict[str, Published] = {
    "nq": _flashrag("nq", _TRAIN_TEST, "Natural Questions, open (Kwiatkowski et al. 2019); 79,168 + 3,610"),
    "triviaqa": _flashrag("triviaqa", _TRAIN_TEST, "Joshi et al. 2017, arXiv 1705.03551; 78,785 + 11,313"),
    "popqa": _flashrag("popqa", {"test": "test"}, "Mallen et al. 2023, arXiv 2212.10511; 14,267"),
    "hotpotqa": _flashrag("hotpotqa", _TRAIN_DEV, "Yang et al. 2018, arXiv 1809.09600; with supporting titles"),
    "2wikimultihopqa": _flashrag("2wikimultihopqa", _TRAIN_DEV, "Ho et al. 2020, arXiv 2011.01060"),
    "musique": _flashrag("musique", _TRAIN_DEV, "Trivedi et al. 2022, arXiv 2108.00573; two to four hops"),
    "bamboogle": _flashrag("bamboogle", {"test": "test"}, "Press et al. 2023, arXiv 2210.03350; 125"),
}
"""The published sets by name, as FlashRAG (Jin et al. 2024, arXiv 2405.13576) prepared them."""

SEARCH_TASKS: dict[str, Loader] = {
    "atlas": load_atlas,
    **{
        name: partial(load_published, name, published=published, reader=read_search_row)
        for name, published in PUBLISHED.items()
    },
}
"""Every named set of the family and its loader."""


def load_search_tasks(
    tasks: str | os.PathLike[str] | TaskSet | Sequence[Task] = DEFAULT_TASKS, split: str | None = None, **options: Any
) -> TaskSet:
    """Returns search tasks: a set of :data:`SEARCH_TASKS`, a file or folder, a hub data set, or tasks that are given.

    Args:
        tasks: See :func:`llm_envs.tasks.load_tasks`.
        split: Likewise.
        **options: Options of the set: those of :func:`~llm_envs.search.atlas.load_atlas`; for files and hub data sets
            ``columns`` and ``skip_bad_rows``.

    Raises:
        TaskError: If there is no such set, split, file, option or column.
    """
    return load_tasks(tasks, split, family=SEARCH_TASKS, reader=read_search_row, **options)
