"""One message for a mode name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def check_choice(what: str, value: str, options: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``options``.

    Raises:
        ValueError: If it is not, with the nearest option and all of them.
    """
    known = list(options)
    if value in known:
        return value
    close = difflib.get_close_matches(str(value), known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"Unknown {what} {value!r}.{hint} It is one of: {', '.join(known)}")
