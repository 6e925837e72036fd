"""Text on its way to a terminal and from a command line."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

_PYTHON_WORDS = {"True": True, "False": False, "None": None}
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""``text`` with control characters, direction overrides and lone surrogates shown as escapes.

    Line breaks and tabs stay. A model can thus neither move the cursor, recolour the screen nor break the encoder.

    >>> printable("red \x1b[31m text")
    'red \\x1b[31m text'
    """
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], text)


def read_value(text: str) -> Any:
    """What a value on a command line means: JSON where it is JSON, Python's True, False and None, else text.

    >>> [read_value(text) for text in ("3", "0.5", "true", "False", '{"a": 1}', "Think: then answer.", '"3"')]
    [3, 0.5, True, False, {'a': 1}, 'Think: then answer.', '3']
    """
    if text in _PYTHON_WORDS:  # "False" as text would be true
        return _PYTHON_WORDS[text]
    try:
        return json.loads(text)
    except ValueError:
        return text


class PrintableFormatter(logging.Formatter):
    """Formats log records for a terminal: what a model or a server said is shown, and not obeyed."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record, with its control characters as escapes (see :func:`printable`)."""
        return printable(super().format(record))
