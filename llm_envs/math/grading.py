r"""Whether an answer equals the gold answer: correct, incorrect, or undecided within the limits.

>>> grade(gold=r"\frac{1}{2}", answer="0.5")
<Verdict.CORRECT: 'correct'>
>>> grade(gold="5", answer="5 or 6")
<Verdict.INCORRECT: 'incorrect'>
>>> grade(gold="5", answer="9^{9^{9^9}}")
<Verdict.UNDECIDED: 'undecided'>

How a verdict comes about:

1. Plain numbers are compared as strings of digits.
2. Both texts are cleaned (`normalize`). The same literal is the same answer, so every gold equals itself. Words and
   numerals with a base (``2516_8``) are compared as such.
3. Both are parsed by a strict grammar (`expressions`). What is not wholly understood equals only its own literal.
4. Structure and rational values are compared exactly, in process (`equality`, which states what counts as the same).
5. Only what has roots, symbols or transcendental constants goes to a worker process with sympy (`algebra`), under a
   hard time limit.

There is no tolerance: decimals are exact fractions. Sizes are bounded before anything is computed, so verdicts do not
depend on the load of the machine unless a computation of bounded size runs into the time limit.
"""

from __future__ import annotations

import os
import re
import threading
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from llm_envs.math import _workers
from llm_envs.math._evaluated import is_numeric, leaves_arithmetic
from llm_envs.math._rational import Undefined
from llm_envs.math.equality import Algebra, NeedsAlgebra, equal
from llm_envs.math.expressions import MAX_CHARACTERS, Node, ParseError, TooComplex, parse
from llm_envs.math.normalize import clean, is_text_command, literal, words

_MAX_WORKERS_OF_DEFAULT_POOL = 4
_PROSE_WORDS = 12

# Possessive (*+) because everything between the spaces may be absent: backtracking would take time to the fourth power.
_PLAIN = re.compile(
    r"\s*+(?:\\?\$)?\s*+([-+]?)(?:([0-9]+)|([1-9][0-9]{0,2}(?:,[0-9]{3})+))?(?:\.([0-9]*))?\s*+\$?\.?\s*+", re.ASCII
)
_NUMERAL = re.compile(
    r"(-?)([0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)_(?:\{([0-9]{1,2})\}|([0-9]{1,2})|\{?\\text\{ ?([a-z]+) ?\}\}?)", re.ASCII
)
_BASE_WORDS = dict(
    zip("two three four five six seven eight nine ten eleven twelve".split(), range(2, 13), strict=True)
) | {"sixteen": 16}
_GROUPS_OR_LIST = re.compile(r"[1-9][0-9]{0,2}(?:,[1-9][0-9]{2})+", re.ASCII)
_WORD = re.compile(r"[A-Za-z]{2,}")
_TEXT_ANSWER = re.compile(r"[A-Za-z][A-Za-z'-]{2,}(?: [A-Za-z'-]+)*|no|up|\([A-Za-z]\)", re.ASCII | re.IGNORECASE)


class Verdict(str, Enum):  # noqa: UP042 - `StrEnum` prints as its value, which hides what it is
    """The outcome of grading one answer."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    UNDECIDED = "undecided"


class _Reading(NamedTuple):
    """What is known of one text before it is compared."""

    literal: str
    words: str | None  # the plain words, if the whole text is words
    numeral: tuple[str, int] | None  # digits and base of 2516_8
    node: Node | None
    too_complex: bool


class Grader:
    """A pool of killable worker processes that grade answers. Thread safe; a context manager.

    Worker processes are started when first needed, as clean processes (never forks of this one), and die with this
    process.

    Args:
        workers: The most worker processes at a time.
        timeout_s: Seconds a worker may take for one answer before it is killed and the verdict is undecided. Waiting
            for a free worker and starting one do not count.

    Raises:
        ValueError: If ``workers`` is less than 1 or ``timeout_s`` not positive.
    """

    def __init__(self, workers: int = 1, timeout_s: float = 5.0) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        self._timeout_s = _checked_timeout(timeout_s)
        self._pool = _workers.WorkerPool(workers)

    def grade(self, *, gold: str, answer: str, timeout_s: float | None = None, evaluated: bool = False) -> Verdict:
        """Grade one answer; see the module `grade`.

        Raises:
            RuntimeError: If this grader is closed, or a worker process cannot be started.
        """
        timeout = self._timeout_s if timeout_s is None else _checked_timeout(timeout_s)
        if self._pool.closed:
            raise RuntimeError("this Grader is closed; make a new one")
        _check_texts(gold, answer)
        quick = _plain_verdict(gold, answer)
        if quick is not None:
            return quick
        try:
            if evaluated and _not_evaluated(gold, answer):
                return Verdict.INCORRECT
            return decide(gold, answer, None)
        except TooComplex:
            return Verdict.UNDECIDED
        except NeedsAlgebra:
            reply = self._pool.request({"gold": gold, "answer": answer}, timeout)
        return Verdict.UNDECIDED if reply is None else Verdict(reply["verdict"])

    def close(self) -> None:
        """Kill the workers. Requests that are under way end undecided; later ones raise. Idempotent."""
        self._pool.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def grade(*, gold: str, answer: str, timeout_s: float = 5.0, evaluated: bool = False) -> Verdict:
    r"""Grade one answer with the process-wide pool of workers.

    Args:
        gold: The reference answer, LaTeX or plain text.
        answer: The answer to grade: the content of the last ``\boxed{}``, not a whole response.
        timeout_s: Seconds of worker time before the verdict is undecided.
        evaluated: Whether an answer that leaves something to compute (``3+4`` or ``\log_{10} 10^7`` for ``7``,
            ``\sqrt{4}`` for ``2``) is incorrect, unless the gold leaves some too. By default any expression of the
            right value is correct, which lets a question such as "What is 3+4?" be answered by its own words.

    Returns:
        CORRECT only if the whole answer is understood and equals the gold (or is the same literal); UNDECIDED if it is
        too large, took too long, or is numerically equal without a proof; INCORRECT otherwise.

    Raises:
        TypeError: If gold or answer is not a string.
        ValueError: If gold is blank or ``timeout_s`` is not positive.
    """
    return _default_grader().grade(gold=gold, answer=answer, timeout_s=timeout_s, evaluated=evaluated)


_default: Grader | None = None
_default_lock = threading.Lock()


def _default_grader() -> Grader:
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
                _default = Grader(workers=min(cores, _MAX_WORKERS_OF_DEFAULT_POOL))
    return _default


def _forget_default_grader() -> None:
    """In a forked child the workers belong to the parent: start afresh."""
    global _default, _default_lock
    _default, _default_lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_default_grader)


def _checked_timeout(timeout_s: float) -> float:
    if not timeout_s > 0:
        raise ValueError(f"timeout_s must be a positive number of seconds, got {timeout_s!r}")
    return float(timeout_s)


def _check_texts(gold: str, answer: str) -> None:
    for name, text in (("gold", gold), ("answer", answer)):
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a str, got {type(text).__name__}: {text!r}")
    if not gold or gold.isspace():
        raise ValueError(f"gold must not be blank, got {gold!r}: a task without an answer cannot be graded")


# Deciding


def _plain_verdict(gold: str, answer: str) -> Verdict | None:
    """The verdict on two plain numbers, by their digits; None if either is anything else."""
    if len(answer) > MAX_CHARACTERS or len(gold) > MAX_CHARACTERS:
        return None
    left = _plain_number(gold)
    if left is None:
        return None
    right = _plain_number(answer)
    if right is None:
        return None
    return Verdict.CORRECT if left == right else Verdict.INCORRECT


def _plain_number(text: str) -> tuple[bool, str, str] | None:
    """Sign, integer digits and decimal digits of a plain number without redundant zeros."""
    match = _PLAIN.fullmatch(text)
    if match is None:
        return None
    sign, digits, grouped, decimals = match.groups()
    whole = digits if digits is not None else grouped.replace(",", "") if grouped is not None else ""
    if not whole and not decimals:
        return None
    whole, decimals = whole.lstrip("0"), (decimals or "").rstrip("0")
    return sign == "-" and bool(whole or decimals), whole, decimals


def decide(gold: str, answer: str, algebra: Algebra | None) -> Verdict:
    """Compare two answers; with ``algebra=None`` only as far as needs no worker.

    Raises:
        NeedsAlgebra: If ``algebra`` is None and it is needed.
        TooComplex: If the comparison is undecided because of its size or for want of a proof.
    """
    left, right = _read(gold), _read(answer)
    if not right.literal:
        return Verdict.INCORRECT
    if left.literal == right.literal:
        return Verdict.CORRECT
    if left.words is not None or right.words is not None:
        return Verdict.CORRECT if words(clean(gold)) == words(clean(answer)) else Verdict.INCORRECT
    if left.numeral is not None or right.numeral is not None:
        return Verdict.CORRECT if left.numeral == right.numeral else Verdict.INCORRECT
    if left.too_complex or right.too_complex:
        return Verdict.UNDECIDED
    if left.node is None or right.node is None:
        return Verdict.INCORRECT
    try:
        same = equal(left.node, right.node, algebra) or _equal_as_lists(left, right, algebra)
    except Undefined:
        same = False
    return Verdict.CORRECT if same else Verdict.INCORRECT


def _not_evaluated(gold: str, answer: str) -> bool:
    """Whether the answer leaves something to compute that the gold does not."""
    left, right = _read(gold).node, _read(answer).node
    if left is None or right is None or leaves_arithmetic(left):
        return False
    return leaves_arithmetic(right) or (is_numeric(left) and not is_numeric(right))


def _read(text: str) -> _Reading:
    if len(text) > 2 * MAX_CHARACTERS:  # not kept: a cache of such texts could fill the memory
        # Prose of any length is no answer; only something that could be a formula is undecided.
        return _Reading(text.strip(), None, None, None, len(_WORD.findall(text)) <= _PROSE_WORDS)
    return _read_short(text)


@lru_cache(maxsize=2048)
def _read_short(text: str) -> _Reading:
    cleaned = clean(text)
    match = _NUMERAL.fullmatch(literal(cleaned))
    numeral = None if match is None else _numeral(match)
    node, too_complex = None, False
    text_answer = is_text_command(cleaned) or _TEXT_ANSWER.fullmatch(cleaned) is not None
    if numeral is None:
        try:
            node = parse(cleaned)
        except ParseError:
            node = None
        except TooComplex:
            too_complex = len(_WORD.findall(re.sub(r"\\[A-Za-z]+", " ", cleaned))) <= _PROSE_WORDS
    spoken = words(cleaned) if text_answer and node is None and not too_complex else None
    return _Reading(literal(cleaned), spoken, numeral, node, too_complex)


def _numeral(match: re.Match[str]) -> tuple[str, int] | None:
    sign, digits, braced, bare, word = match.groups()
    base = int(braced or bare) if braced or bare else _BASE_WORDS.get(word)
    if base is None or not 2 <= base <= 36 or digits.isalpha() or any(int(c, 36) >= base for c in digits if c != "."):
        return None
    whole, _, fraction = digits.upper().partition(".")
    return sign + (whole.lstrip("0") or "0") + ("." + fraction.rstrip("0") if fraction.rstrip("0") else ""), base


def _equal_as_lists(gold: _Reading, answer: _Reading, algebra: Algebra | None) -> bool:
    """Whether ``100,200`` on one side is meant as the list that the other side is."""
    for grouped, other in ((gold, answer), (answer, gold)):
        if other.node is not None and other.node.kind in ("list", "set") and _GROUPS_OR_LIST.fullmatch(grouped.literal):
            as_list = parse(grouped.literal, thousands=False)
            return equal(as_list, other.node, algebra)
    return False
