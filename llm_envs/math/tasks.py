r"""Math task sets: generated, published, and the user's own.

======================  ==========================================================================================
``one-digit``           All sums and differences of one-digit numbers
``arithmetic``          Whole numbers, ``+ - *`` and brackets (the default of the family)
``fractions``           Sums, differences, products and quotients of fractions
``linear-equations``    One unknown
``word-problems``       Two to four steps, templated
``number-theory``       gcd, lcm, remainders, powers modulo m, divisors
``counting``            Letters, multiples, arrangements, committees
``sequences``           Terms and sums of sequences whose rule is stated
``rg:<name>``           Sets of reasoning-gym (:mod:`llm_envs.math.reasoning_gym_sets`)
``gsm8k`` …             Published sets from the hub (:data:`PUBLISHED`)
======================  ==========================================================================================

Published sets load through ``datasets``. Where there is no network, point the environment variable ``LLM_ENVS_DATA`` at
a folder that holds ``<set>/<split>.jsonl``, ``<set>_<split>.jsonl``, or ``<set>.jsonl`` for a set with one split (or
the same with another suffix of :data:`llm_envs.task_files.SUFFIXES`); files there win over the hub.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from llm_envs import task_files, task_rows
from llm_envs.math.procedural import PROCEDURAL, load_procedural
from llm_envs.math.reasoning_gym_sets import REASONING_GYM, load_reasoning_gym
from llm_envs.parsing import InvalidAction, boxed
from llm_envs.task_rows import ANSWER_COLUMNS, QUESTION_COLUMNS, Columns, Row, RowError
from llm_envs.tasks import Draft, Loader, Task, TaskSet, load_tasks, reject_options

__all__ = ["DEFAULT_TASKS", "MATH_TASKS", "PUBLISHED", "Published", "gold", "load_math_tasks", "read_math_row"]

DEFAULT_TASKS = "arithmetic"

_INTEGER = re.compile(r"([+-]?)0*(\d+)(?:\.0*)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
# DAPO-Math-17k wraps each problem in instructions for another answer format than ours.
_WRAPPED = re.compile(
    r"Solve the following math problem step by step\. The last line of your response should be of the form "
    r"Answer:[^\n]*\n\n(?P<problem>.*?)\n\n"
    r'Remember to put your answer on its own line after "Answer:"\.?',
    re.DOTALL,
)


def gold(value: Any) -> str:
    r"""Returns a gold answer as text.

    Numbers lose what only a file format gave them: ``27.0`` and ``"27.0"`` become ``27``, ``"073"`` becomes ``73``. Of
    a worked solution the answer is what follows the last ``####`` (GSM8K; its thousands separators are removed), else
    the last ``\boxed{}``. A list with one entry is that entry; several are joined by commas.

    >>> gold("Half of 48 is 24.\n#### 1,080"), gold(27.0), gold(r"So $x = \boxed{\frac{1}{2}}$.")
    ('1080', '27', '\\frac{1}{2}')

    Raises:
        RowError: If it is empty, not finite, or of another type.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | list | tuple):
        raise RowError(f"the answer must be text or a number, got {value!r}")
    if isinstance(value, list | tuple):
        if not value:
            raise RowError("the answer is an empty list")
        return ", ".join(gold(item) for item in value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise RowError(f"the answer is {value}")
        return str(int(value)) if value.is_integer() else repr(value)
    text = str(value).strip()
    if "####" in text:
        text = text.rpartition("####")[2].strip()
        if _THOUSANDS.fullmatch(text):
            text = text.replace(",", "")
    elif "\\boxed" in text:
        text = _boxed(text)
    if len(text) > 2 and text.startswith("$") and text.endswith("$") and text.count("$") == 2:
        text = text[1:-1].strip()
    if not text:
        raise RowError("the answer is empty")
    if number := _INTEGER.fullmatch(text):
        sign = "-" if number[1] == "-" and number[2] != "0" else ""
        return sign + number[2]
    return text


def _boxed(text: str) -> str:
    try:
        return boxed(text)
    except InvalidAction as error:
        raise RowError(f"the answer has no usable \\boxed{{}}: {error}") from error


def read_math_row(row: Row, columns: Columns) -> Draft:
    r"""How this family reads a row.

    The question is the first of problem, question, prompt, Problem, Question that there is; a prompt may be a list of
    chat messages. The answer is the first of answer, Answer, expected_answer, final_answer, reward_model.ground_truth;
    without one, the last ``\boxed{}`` of the column solution. Both as :func:`gold` and the DAPO wrapper are undone.

    Args:
        row: One row.
        columns: The user's column map; it wins.

    Raises:
        RowError: If the row has no question or no usable answer.
    """
    raw = task_rows.column(row, "extra_info.question") if "question" not in columns else None
    if not isinstance(raw, str):
        raw = task_rows.pick(row, columns, "question", QUESTION_COLUMNS)
    question = task_rows.question_text(raw)
    if wrapped := _WRAPPED.fullmatch(question):
        question = wrapped["problem"].strip()
    if "answer" in columns or any(task_rows.column(row, name) is not None for name in ANSWER_COLUMNS):
        answer = gold(task_rows.pick(row, columns, "answer", ANSWER_COLUMNS))
    elif isinstance(row.get("solution"), str):
        answer = gold(_boxed(row["solution"]))
    else:
        raise RowError(f"no answer in any of the columns {', '.join(ANSWER_COLUMNS)}, solution")
    return Draft(question, answer, task_rows.extra_data(row, columns))


@dataclass(frozen=True)
class Published:
    """A published set and where its columns are.

    Attributes:
        hub_id: Data set on the hub.
        config: Its configuration, None for the default.
        splits: Our name of each split and the hub's. Competition sets are for testing whatever the hub calls them.
        columns: Which column holds what.
        note: What one should know of it.
    """

    hub_id: str
    config: str | None
    splits: Mapping[str, str]
    columns: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


_TEST = {"test": "test"}
_TRAIN = {"train": "train"}

PUBLISHED: dict[str, Published] = {
    "gsm8k": Published(
        "openai/gsm8k",
        "main",
        {"train": "train", "test": "test"},
        {"question": "question", "answer": "answer"},
        "7,473 + 1,319 grade-school word problems (Cobbe et al. 2021, arXiv 2110.14168)",
    ),
    "math500": Published(
        "HuggingFaceH4/MATH-500",
        None,
        _TEST,
        {"question": "problem", "answer": "answer"},
        "500 problems of MATH (Lightman et al. 2023, arXiv 2305.20050)",
    ),
    "aime24": Published(
        "HuggingFaceH4/aime_2024", None, {"test": "train"}, {"question": "problem", "answer": "answer"}, "30 problems"
    ),
    "aime25": Published("math-ai/aime25", None, _TEST, {"question": "problem", "answer": "answer"}, "30 problems"),
    "amc23": Published("math-ai/amc23", None, _TEST, {"question": "question", "answer": "answer"}, "40 problems"),
    "minerva": Published(
        "math-ai/minervamath",
        None,
        _TEST,
        {"question": "question", "answer": "answer"},
        "272 undergraduate science problems (Lewkowycz et al. 2022, arXiv 2206.14858)",
    ),
    "olympiadbench": Published(
        "math-ai/olympiadbench",
        None,
        _TEST,
        {"question": "question", "answer": "final_answer"},
        "674 text-only problems in English (He et al. 2024, arXiv 2402.14008); final_answer is a list",
    ),
    "dapo-math-17k": Published(
        "BytedTsinghua-SIA/DAPO-Math-17k",
        None,
        _TRAIN,
        {"question": "prompt", "answer": "reward_model.ground_truth"},
        "Yu et al. 2025, arXiv 2503.14476; rows are repeated many times on the hub and kept once here",
    ),
    "polaris-53k": Published(
        "POLARIS-Project/Polaris-Dataset-53K",
        None,
        _TRAIN,
        {"question": "problem", "answer": "answer"},
        "53,291 problems with a difficulty such as 3/8",
    ),
    "deepscaler": Published(
        "agentica-org/DeepScaleR-Preview-Dataset",
        None,
        _TRAIN,
        {"question": "problem", "answer": "answer"},
        "about 40,000 competition problems",
    ),
}
"""The published sets by name."""


def _read_published(published: Published, row: Row, columns: Columns) -> Draft:
    # Copies of a set are often saved with other column names: fall back on the usual ones where a named column is
    # absent.
    known = {what: name for what, name in published.columns.items() if task_rows.column(row, name) is not None}
    return read_math_row(row, {**known, **columns})


def load_published(
    name: str,
    split: str | None = None,
    *,
    columns: Columns | None = None,
    skip_bad_rows: bool = False,
    **options: Any,
) -> TaskSet:
    """Returns a set of :data:`PUBLISHED`, from ``$LLM_ENVS_DATA`` if it is there, else from the hub.

    Args:
        name: Its name.
        split: One of its splits; ``"train"`` by default where there is one, else ``"test"``.
        columns: Which column holds what, for a copy with other names.
        skip_bad_rows: Leave out (and count) rows that cannot be read instead of raising.
        **options: None are known; any is an error.

    Raises:
        TaskError: If there is no such split or option, the set cannot be reached, or a row cannot be read.
    """
    published = PUBLISHED[name]
    reject_options(name, options, ("columns", "skip_bad_rows"))
    return task_files.load_published(
        name,
        split,
        hub_id=published.hub_id,
        config=published.config,
        splits=published.splits,
        reader=partial(_read_published, published),
        columns=columns,
        skip_bad_rows=skip_bad_rows,
    )


MATH_TASKS: dict[str, Loader] = {
    **{name: partial(load_procedural, name) for name in PROCEDURAL},
    **{name: partial(load_published, name) for name in PUBLISHED},
    **{f"rg:{name}": partial(load_reasoning_gym, f"rg:{name}") for name in REASONING_GYM},
}
"""Every named set of the family and its loader."""


def load_math_tasks(
    tasks: str | os.PathLike[str] | TaskSet | Sequence[Task] = DEFAULT_TASKS, split: str | None = None, **options: Any
) -> TaskSet:
    """Returns math tasks: a set of :data:`MATH_TASKS`, a file or folder, a hub data set, or tasks that are given.

    Args:
        tasks: See :func:`llm_envs.tasks.load_tasks`.
        split: Likewise.
        **options: Options of the set: ``size``, ``seed`` and those of its generator; for files and hub data sets
            ``columns`` and ``skip_bad_rows``.

    Raises:
        TaskError: If there is no such set, split, file, option or column.
    """
    return load_tasks(tasks, split, family=MATH_TASKS, reader=read_math_row, **options)
