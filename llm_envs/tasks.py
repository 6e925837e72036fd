"""Tasks and task sets: what an episode is about, where it comes from, and which split it belongs to.

A :class:`Task` is a statement, a gold answer that is never shown, and whatever else its family needs. A
:class:`TaskSet` is a sequence of tasks with a name and a split. There are two kinds: :class:`ListTaskSet` (rows of a
file or a hub data set) and :class:`ProceduralTaskSet` (generated on demand, the same task at the same index in every
process).

Splits are decided by content. :func:`split_of` hashes the statement, so one statement is in one split whatever the
seed, the index, the options or the set it came from: train and test cannot overlap.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import random
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, NoReturn, cast, overload

import gymnasium.error

__all__ = [
    "Draft",
    "FrozenDict",
    "ListTaskSet",
    "ProceduralTaskSet",
    "Task",
    "TaskError",
    "TaskSet",
    "enumerate_tasks",
    "load_tasks",
    "split_of",
    "stable_hash",
]

SPLITS = ("train", "test")
TEST_FRACTION = 10
"""One statement in this many belongs to the test split."""

DEFAULT_SIZE = {"train": 100_000, "test": 1_000}
"""Number of tasks of a procedural set, by split."""


class TaskError(gymnasium.error.Error):
    """Tasks that were asked for do not exist or cannot be read. The message names the value and the fix."""


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed: JSON and pickle treat it as a dict, every mutator raises TypeError."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("task data is shared by all episodes and cannot be changed; copy it with dict(task.data)")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


def _freeze(value: Any) -> Any:
    """Returns ``value`` with mappings as :class:`FrozenDict` and lists as tuples, all the way down."""
    if isinstance(value, FrozenDict):
        return value
    if isinstance(value, Mapping):
        return FrozenDict({str(key): _freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    return value


_NO_DATA = FrozenDict()


@dataclass(frozen=True, slots=True)
class Task:
    """One task. Immutable: environments share it between episodes and forks.

    Attributes:
        id: Unique in its set and stable: ``<set>/<split>/<index>`` or ``<file>/<row>``.
        question: The statement as an agent sees it.
        answer: The gold answer as text. Never part of an observation.
        data: What the task's family needs beyond that (JSON values; lists become tuples).
    """

    id: str
    question: str
    answer: str
    data: Mapping[str, Any] = field(default_factory=lambda: _NO_DATA)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", _freeze(self.data))

    def __hash__(self) -> int:
        return hash((self.id, self.question, self.answer))

    def __copy__(self) -> Task:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Task:
        return self

    @property
    def hash(self) -> str:
        """16 hexadecimal digits of SHA-256 over the canonical JSON of question, answer and data, without the id."""
        content = json.dumps([self.question, self.answer, self.data], sort_keys=True, ensure_ascii=False, default=str)
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def stable_hash(*parts: str | int) -> int:
    """Returns a 64-bit hash of ``parts`` that is the same in every process, Python version and on every machine."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        text = f"i{int(part)}" if isinstance(part, int) else f"s{part}"
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return int.from_bytes(digest.digest(), "big")


def normalise(question: str) -> str:
    """Returns ``question`` without case and spacing: statements that are equal so far count as the same statement."""
    return " ".join(question.split()).casefold()


def split_of(question: str) -> str:
    """Returns the split (``"train"`` or ``"test"``) that a statement belongs to: one in ten is for testing."""
    return "test" if stable_hash("split", normalise(question)) % TEST_FRACTION == 0 else "train"


class TaskSet(Sequence[Task]):
    """A named, immutable sequence of tasks.

    Attributes:
        name: What the user typed (``"gsm8k"``), or the file's name.
        split: ``"train"``, ``"test"``, or ``"all"`` for rows that were not split.
    """

    name: str
    split: str

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _task(self, index: int) -> Task:
        """Returns the task at ``index``, which is in range and not negative."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change when any task of the set does."""

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> ListTaskSet: ...
    def __getitem__(self, index: int | slice) -> Task | ListTaskSet:
        """Returns one task, or for a slice a :class:`ListTaskSet` of the same name and split.

        Raises:
            IndexError: If there is no such task.
        """
        if isinstance(index, slice):
            rows = range(len(self))[index]
            return ListTaskSet([self._task(i) for i in rows], name=self.name, split=self.split)
        number = operator.index(index)
        size = len(self)
        if not -size <= number < size:
            raise IndexError(f"task index {number} is out of range: {self.name} ({self.split}) has {size} tasks")
        return self._task(number % size)

    def __copy__(self) -> TaskSet:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> TaskSet:
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, split={self.split!r}, size={len(self)})"


class ListTaskSet(TaskSet):
    """Tasks held in memory.

    Args:
        tasks: At least one task, with ids that are unique.
        name: Name of the set.
        split: The split that the tasks are.

    Raises:
        TaskError: If there are no tasks, or two have one id.
    """

    def __init__(self, tasks: Iterable[Task], *, name: str = "tasks", split: str = "all") -> None:
        self.name = name
        self.split = split
        self._tasks = tuple(tasks)
        seen: set[str] = set()
        for task in self._tasks:
            if not isinstance(task, Task):
                raise TaskError(f"task set {name!r} must hold Task objects, got {type(task).__name__}: {task!r:.80}")
            if task.id in seen:
                raise TaskError(f"task set {name!r} has two tasks with the id {task.id!r}; ids must be unique")
            seen.add(task.id)
        self._fingerprint = ""

    def __len__(self) -> int:
        return len(self._tasks)

    def _task(self, index: int) -> Task:
        return self._tasks[index]

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over the ids and hashes of the tasks."""
        if not self._fingerprint:
            content = json.dumps([[task.id, task.hash] for task in self._tasks])
            self._fingerprint = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return self._fingerprint

    def only(self, split: str) -> ListTaskSet:
        """Returns the tasks whose statement belongs to ``split`` by content (see :func:`split_of`).

        Raises:
            TaskError: If the split is unknown or no task belongs to it.
        """
        check_split(self.name, split)
        tasks = [task for task in self._tasks if split_of(task.question) == split]
        if not tasks:
            raise TaskError(
                f"none of the {len(self)} tasks of {self.name!r} belongs to the {split!r} split (one in "
                f"{TEST_FRACTION} is for testing, chosen by content); use split=None for all of them"
            )
        return ListTaskSet(tasks, name=self.name, split=split)


class Draft(NamedTuple):
    """A task before it has an id: what a generator returns."""

    question: str
    answer: str
    data: Mapping[str, Any] = _NO_DATA


class ProceduralTaskSet(TaskSet):
    """Tasks that are generated when they are asked for.

    Task ``i`` comes from a generator seeded with (name, options, seed, i) that draws until the statement belongs to the
    split. It therefore depends on nothing else: not on the process, the order of access or any global generator. Draws
    are independent, so a statement can come twice where the domain is not much larger than the set; a domain that is
    small enough to be listed should be a :class:`ListTaskSet` (see :func:`enumerate_tasks`).

    Args:
        name: Name of the set.
        split: ``"train"`` (also for None) or ``"test"``.
        draw: Returns a random draft from the generator that it is given. A module-level function, so that the set can
            be sent to another process.
        options: Keyword arguments of ``draw``.
        size: Number of tasks; 100,000 for train and 1,000 for test by default.
        seed: Another seed gives other tasks of the same kind (and never a task of the other split).
        version: Raise it when ``draw`` changes what it returns: results of different versions are not comparable.

    Raises:
        TaskError: If the split, the size or the seed is not valid.
    """

    _MAX_DRAWS = 10_000
    _CACHE = 4096

    def __init__(
        self,
        name: str,
        split: str | None,
        draw: Callable[..., Draft],
        *,
        options: Mapping[str, Any] | None = None,
        size: int | None = None,
        seed: int = 0,
        version: int | str = 1,
    ) -> None:
        self.name = name
        self.split = check_split(name, split or "train")
        self.seed = _whole(name, "seed", seed, 0)
        self.options = FrozenDict(_freeze(options or {}))
        self.version = version
        self._size = _whole(name, "size", DEFAULT_SIZE[self.split] if size is None else size, 1)
        self._draw = draw
        self._key = json.dumps([name, version, self.options, self.seed], sort_keys=True)
        self._cache: OrderedDict[int, Task] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return self._size

    def _task(self, index: int) -> Task:
        with self._lock:
            task = self._cache.get(index)
            if task is not None:
                self._cache.move_to_end(index)
                return task
        task = self._generate(index)
        with self._lock:
            self._cache[index] = task
            if len(self._cache) > self._CACHE:
                self._cache.popitem(last=False)
        return task

    def _generate(self, index: int) -> Task:
        rng = random.Random(stable_hash(self._key, self.split, index))
        for _ in range(self._MAX_DRAWS):
            draft = self._draw(rng, **self.options)
            if split_of(draft.question) == self.split:
                return Task(f"{self.name}/{self.split}/{index}", *draft)
        raise TaskError(
            f"{self.name}: no statement of the {self.split!r} split in {self._MAX_DRAWS} draws with the options "
            f"{dict(self.options)}; choose options that allow more tasks"
        )

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over what the tasks depend on: name, version, options, seed, split, size."""
        return f"{stable_hash(self._key, self.split, self._size):016x}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _procedural, (
            self.name,
            self.split,
            self._draw,
            dict(self.options),
            self._size,
            self.seed,
            self.version,
        )


def _procedural(
    name: str, split: str, draw: Callable[..., Draft], options: dict[str, Any], size: int, seed: int, version: int | str
) -> ProceduralTaskSet:
    return ProceduralTaskSet(name, split, draw, options=options, size=size, seed=seed, version=version)


def enumerate_tasks(
    name: str, split: str | None, drafts: Iterable[Draft], *, size: int | None = None, seed: int = 0
) -> ListTaskSet:
    """Returns all distinct tasks of a domain small enough to be listed, in an order that ``seed`` decides.

    Args:
        name: Name of the set.
        split: ``"train"`` (also for None) or ``"test"``.
        drafts: The whole domain; the same statement twice counts once.
        size: Keep at most so many; all by default.
        seed: Decides the order.

    Raises:
        TaskError: If the split, the size or the seed is not valid, or the split holds none of the drafts.
    """
    split = check_split(name, split or "train")
    seed = _whole(name, "seed", seed, 0)
    mine = {draft.question: draft for draft in drafts if split_of(draft.question) == split}
    if not mine:
        raise TaskError(f"{name}: with these options no task belongs to the {split!r} split; allow more tasks")
    ordered = sorted(mine.values(), key=lambda draft: stable_hash("order", name, seed, draft.question))
    if size is not None:
        ordered = ordered[: _whole(name, "size", size, 1)]
    return ListTaskSet(
        (Task(f"{name}/{split}/{index}", *draft) for index, draft in enumerate(ordered)), name=name, split=split
    )


def check_split(name: str, split: str, splits: Sequence[str] = SPLITS) -> str:
    """Returns ``split``.

    Raises:
        TaskError: If it is not one of ``splits``.
    """
    if split not in splits:
        raise TaskError(f"task set {name!r} has no split {split!r}; it has: {', '.join(splits)}")
    return split


def reject_options(name: str, given: Iterable[str], accepted: Iterable[str]) -> None:
    """Checks that no option is given that the set does not have.

    Raises:
        TaskError: If one is. The message has the options that there are.
    """
    accepted = sorted(accepted)
    for option in given:
        if option not in accepted:
            close = get_close_matches(option, accepted, n=1, cutoff=0.5)
            hint = f" Did you mean: {close[0]!r}?" if close else ""
            raise TaskError(
                f"task set {name!r} has no option {option!r}.{hint} It has: {', '.join(accepted) or 'none'}"
            )


def _whole(name: str, what: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TaskError(f"{name}: {what} must be a whole number of at least {least}, got {value!r}")
    return value


Loader = Callable[..., TaskSet]
"""``loader(split, **options) -> TaskSet``; ``split`` None means the set's own default."""


def load_tasks(
    tasks: str | os.PathLike[str] | TaskSet | Sequence[Task],
    split: str | None = None,
    *,
    family: Mapping[str, Loader],
    reader: Callable[..., Draft] | None = None,
    **options: Any,
) -> TaskSet:
    """Returns the tasks that a user asked for.

    Args:
        tasks: A name of ``family``; ``hub:<owner>/<name>[:<config>]``; the path of a ``.jsonl``, ``.jsonl.gz``,
            ``.json`` or ``.parquet`` file or of a folder with ``train.*`` / ``test.*``; or tasks themselves.
        split: None means: ``"train"`` of a procedural set, all rows of a file or of tasks that are given, the default
            of a named set. ``"train"`` / ``"test"`` of one file or of given tasks selects rows by content, one in ten
            for test.
        family: The named sets of the environment's family.
        reader: How this family reads a row of a file (``llm_envs.task_rows.RowReader``); question and answer columns by
            default.
        **options: Options of the set (``size``, ``seed``, …) or, for files, ``columns={"question": …, "answer": …}``.

    Raises:
        TaskError: If there is no such set, split, file, option or column.
    """
    if isinstance(tasks, str | os.PathLike):
        return _load_named(os.fspath(tasks), split, family, reader, options)
    if options:
        raise TaskError(f"options {sorted(options)} do not apply to tasks that are given as objects; leave them out")
    if isinstance(tasks, TaskSet):
        given = tasks
    elif isinstance(tasks, Sequence):
        given = ListTaskSet(cast("Sequence[Task]", tasks))
    else:
        raise TaskError(f"tasks must be a name, a path, a TaskSet or a sequence of Task, got {type(tasks).__name__}")
    if not len(given):
        raise TaskError(f"task set {given.name!r} is empty; give at least one task")
    if split is None or split == given.split:
        return given
    if given.split == "all" and isinstance(given, ListTaskSet):
        return given.only(split)
    raise TaskError(
        f"task set {given.name!r} is the {given.split!r} split, not {split!r}; leave split out or load the other"
    )


def _load_named(
    name: str,
    split: str | None,
    family: Mapping[str, Loader],
    reader: Callable[..., Draft] | None,
    options: dict[str, Any],
) -> TaskSet:
    if name in family:
        return family[name](split, **options)
    from llm_envs import task_files, task_rows

    path = Path(name).expanduser()
    if name.startswith("hub:"):
        return task_files.load_hub(name, split, reader=reader or task_rows.read_row, **options)
    if path.exists() or task_files.looks_like_path(name):
        return task_files.load_path(path, split, reader=reader or task_rows.read_row, **options)
    close = get_close_matches(name, family, n=1, cutoff=0.5)
    hint = f" Did you mean: {close[0]!r}?" if close else ""
    raise TaskError(
        f"There is no task set {name!r}.{hint} The sets are: {', '.join(sorted(family))}; or give the path of a "
        ".jsonl, .json or .parquet file, or hub:<owner>/<name>."
    )
