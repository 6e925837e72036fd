"""Text that came from a model, made safe to show in a terminal."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""``text`` with control characters, direction overrides and lone surrogates shown as escapes.

    Line breaks and tabs stay. A model can thus neither move the cursor, recolour the screen nor break the encoder.

    >>> printable("red \x1b[31m text")
    'red \\x1b[31m text'
    """
    return _CONTROL.sub(lambda match: repr(match.group())[1:-1], text)
