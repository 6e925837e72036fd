"""Exact match and F1 of short answers, as SQuAD defines them (Rajpurkar et al. 2016, official evaluation script v1.1).

There is no credit for an answer that merely contains the gold answer, or is contained in it, in exact match.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Lower case, ASCII punctuation and articles removed, white space collapsed.

    >>> normalize("The  Beatles' \\"Help!\\"")
    'beatles help'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, golds: Sequence[str]) -> bool:
    """Whether ``answer`` equals one of ``golds`` after :func:`normalize`.

    A gold answer of which nothing is left (``"The The"``, ``"!!!"``) is compared in lower case as it stands, so that
    an answer without content does not match it.

    >>> exact_match("the Eiffel Tower.", ["Eiffel tower"]), exact_match("Eiffel", ["Eiffel tower"])
    (True, False)
    """
    normalized = normalize(answer)
    return any(
        normalized == wanted if (wanted := normalize(gold)) else _plain(answer) == _plain(gold)
        for gold in _given(golds)
    )


def f1(answer: str, golds: Sequence[str]) -> float:
    """The best F1 of the words of ``answer`` against one of ``golds``, in [0, 1].

    The harmonic mean of precision and recall over normalised words counted with repetition. Where either side has no
    word left the score is 1 if :func:`exact_match` holds, else 0.

    >>> round(f1("tower of Eiffel", ["the Eiffel Tower"]), 3)
    0.8
    """
    return max((_f1(answer, gold) for gold in _given(golds)), default=0.0)


def _f1(answer: str, gold: str) -> float:
    said, wanted = normalize(answer).split(), normalize(gold).split()
    if not said or not wanted:
        return float(exact_match(answer, [gold]))
    common = (Counter(said) & Counter(wanted)).total()
    return 2 * common / (len(said) + len(wanted))


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _given(golds: Iterable[str]) -> Iterable[str]:
    if isinstance(golds, str):
        raise TypeError("golds must be a sequence of answers, not one text")
    return golds
