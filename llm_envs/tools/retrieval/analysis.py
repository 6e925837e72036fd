"""Text to terms, as Lucene's analyzer for English does it: lower case, no possessive, stop words out, Porter stems."""

from __future__ import annotations

import re
from threading import Lock

import Stemmer

STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)
"""Lucene's ``EnglishAnalyzer.ENGLISH_STOP_WORDS_SET``."""

_WORD = re.compile(r"\w+(?:['\u2019.]\w+)*")
_MAX_STEMS = 200_000


class Analyzer:
    """Makes terms of texts. Safe to use from several threads.

    >>> Analyzer().terms("The composer's first symphonies")
    ['compos', 'first', 'symphoni']
    """

    def __init__(self) -> None:
        self._stemmer = Stemmer.Stemmer("porter")
        self._stems: dict[str, str] = {}
        self._lock = Lock()  # a PyStemmer object must not be used by two threads at once

    def terms(self, text: str) -> list[str]:
        """The terms of ``text`` in order, repeated as often as they occur."""
        terms = []
        for word in _WORD.findall(text.lower()):
            stem = self._stems.get(word)
            if stem is None:
                stem = self._stem(word)
            if stem:
                terms.append(stem)
        return terms

    def _stem(self, word: str) -> str:
        plain = word.removesuffix("'s").removesuffix("\u2019s")
        with self._lock:
            stem = "" if plain in STOP_WORDS else self._stemmer.stemWord(plain)
            if len(self._stems) < _MAX_STEMS:
                self._stems[word] = stem
        return stem
