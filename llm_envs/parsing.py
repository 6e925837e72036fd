r"""Every answer format in one place, strict: one clear answer, or :class:`InvalidAction` with the reason.

The reason is shown to the agent, so it says what was wrong and what is expected. Nothing here guesses: a format that is
missing, doubled, unbalanced or empty is not repaired.

>>> boxed(r"2+2 is \boxed{4}.")
'4'
>>> tag("Looks right. <verify>approve</verify>", "verify", choices=("approve", "reject"))
'approve'
>>> code_block("```python\nprint(4)\n```")
'print(4)\n'
>>> moves("Up, then right: [U, r]", {"U": "U", "u": "U", "R": "R", "r": "R"}.get, limit=10)
['U', 'R']
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from gymnasium import error

MAX_DIFFERENT_BOXES = 3
"""More different boxed answers than this in one text is an enumeration of candidates, not an answer."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_FENCE = re.compile(r"[ \t]*```[ \t]*([\w+-]*)[ \t]*")


class InvalidAction(error.InvalidAction):
    """The text of an action cannot be used. ``str(exception)`` is the reason as the agent reads it."""


def _balanced(text: str, start: int) -> int:
    r"""Index of the ``}`` that closes the group opened just before ``start``, or -1. ``\{`` and ``\}`` do not count."""
    depth, i, end = 1, start, len(text)
    while i < end:
        char = text[i]
        if char == "\\":
            i += 2
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                return i
        i += 1
    return -1


def boxed(text: str) -> str:
    r"""The content of the last ``\boxed{…}`` of ``text``.

    The last one counts, so that an agent may correct itself; but a text with more than :data:`MAX_DIFFERENT_BOXES`
    different boxed contents lists candidates and is no answer.

    Raises:
        InvalidAction: No box, a box that is not closed, an empty box, or too many different ones.
    """
    found: list[str] = []
    position = 0
    while match := _BOX.search(text, position):
        close = _balanced(text, match.end())
        if close < 0:
            raise InvalidAction(r"The last \boxed{ is not closed. Write the final answer as \boxed{answer}.")
        found.append(text[match.end() : close].strip())
        position = close + 1
    if not found:
        raise InvalidAction(r"No final answer was found. Write it as \boxed{answer}.")
    if len(set(found)) > MAX_DIFFERENT_BOXES:
        raise InvalidAction(rf"{len(set(found))} different boxed answers were given. Give one: \boxed{{answer}}.")
    if not found[-1]:
        raise InvalidAction(r"The box is empty. Write the final answer as \boxed{answer}.")
    return found[-1]


def tag(text: str, name: str, choices: Collection[str] | None = None) -> str:
    """The content of the one ``<name>…</name>`` of ``text``, stripped.

    Args:
        text: The action.
        name: The tag, without brackets.
        choices: The accepted contents, compared in lower case; the matching choice is returned.

    Raises:
        InvalidAction: The tag is missing, unclosed, out of order, empty, doubled, or not among ``choices``.
    """
    form = f"<{name}>{'|'.join(choices) if choices else '…'}</{name}>"
    opening, closing = f"<{name}>", f"</{name}>"
    opens, closes = text.count(opening), text.count(closing)
    if opens == 0 and closes == 0:
        raise InvalidAction(f"No {opening} tag was found. Write {form}.")
    if opens != 1 or closes != 1:
        raise InvalidAction(f"Expected {form} exactly once, found {opens} {opening} and {closes} {closing}.")
    start, end = text.index(opening) + len(opening), text.index(closing)
    if end < start:
        raise InvalidAction(f"{closing} comes before {opening}. Write {form}.")
    content = text[start:end].strip()
    if not content:
        raise InvalidAction(f"The {opening} tag is empty. Write {form}.")
    if choices is None:
        return content
    lowered = content.lower()
    for choice in choices:
        if lowered == choice.lower():
            return choice
    raise InvalidAction(f"{content[:60]!r} is not one of {', '.join(choices)}. Write {form}.")


def one_tag(text: str, names: Sequence[str]) -> tuple[str, str]:
    """Which of several tags ``text`` holds, and its content: exactly one of them, once.

    Args:
        text: The action.
        names: The tags that are accepted, without brackets.

    Raises:
        InvalidAction: None of them is there, more than one is, or the one that is there is malformed (as :func:`tag`).

    >>> one_tag("I must look it up. <search>blue whale</search>", ("search", "answer"))
    ('search', 'blue whale')
    """
    found = [name for name in names if f"<{name}>" in text or f"</{name}>" in text]
    if len(found) == 1:
        return found[0], tag(text, found[0])
    forms = " or ".join(f"<{name}>…</{name}>" for name in names)
    if found:
        raise InvalidAction(f"Found {' and '.join(f'<{name}>' for name in found)}. Write one of them only: {forms}.")
    raise InvalidAction(f"No tag was found. Write {forms}.")


def _fenced(text: str) -> list[tuple[str, str]]:
    """Label and content of every fenced block, from a fence to the next one without a label, in one pass."""
    blocks: list[tuple[str, str]] = []
    label, body = None, list[str]()
    for line in text.split("\n"):
        fence = _FENCE.fullmatch(line)
        if label is None:
            label, body = (fence[1] if fence else None), []
        elif fence and not fence[1]:
            blocks.append((label, "".join(f"{line}\n" for line in body)))
            label = None
        else:
            body.append(line)
    return blocks


def code_block(text: str, language: str = "python") -> str:
    r"""The content of the last fenced code block of ``text`` in ``language`` (an unlabelled fence counts too).

    Raises:
        InvalidAction: There is no such block, or it is empty.
    """
    blocks = [body for label, body in _fenced(text) if label.lower() in ("", language, language[:2])]
    if not blocks:
        raise InvalidAction(
            f"No {language} code block was found. Write ```{language} … ``` with the fences on their own lines."
        )
    if not blocks[-1].strip():
        raise InvalidAction(f"The {language} code block is empty.")
    return blocks[-1]


def moves(text: str, read: Callable[[str], str | None], *, limit: int, form: str = "[move, move, ...]") -> list[str]:
    """The items of the last bracketed list of ``text``, such as ``[U, R, R]``.

    The last list counts, so that an agent may think aloud and correct itself. Items are separated by commas; spaces
    around them and quotes as Python prints them do not matter. What an item may be is for ``read`` to say; one item
    that cannot be read makes the whole list unusable.

    Args:
        text: The action.
        read: Returns the canonical spelling of an item (stripped, without quotes), or None if it is no move. The
            ``get`` of a dict from spellings to moves will do.
        limit: The most items that are accepted.
        form: How a list is written, for the reason that the agent reads. It should not itself be a list of moves:
            an agent that echoes it must not have answered.

    Returns:
        At least one and at most ``limit`` moves.

    Raises:
        InvalidAction: There is no list, the last one is not closed or is empty, an item is no move, or there are more
            than ``limit``.
    """
    close, start = text.rfind("]"), text.rfind("[")
    if start > close:
        raise InvalidAction(f"The last [ is not closed. Write {form}.")
    start = text.rfind("[", 0, close) if close > 0 else -1
    if start < 0:
        raise InvalidAction(f"No list of moves was found. Write {form}.")
    count = text.count(",", start, close) + 1
    if count > limit:
        raise InvalidAction(f"{count} moves were given; the limit is {limit}.")
    items = text[start + 1 : close].split(",")
    found = [read(_unquoted(item)) for item in items]
    for item, move in zip(items, found, strict=True):
        if move is None:
            if count == 1 and not item.strip():
                raise InvalidAction(f"The list of moves is empty. Write {form}.")
            raise InvalidAction(f"{item.strip()[:60]!r} is not a move. Write {form}.")
    return [move for move in found if move is not None]


def _unquoted(item: str) -> str:
    """``item`` without surrounding spaces and without one pair of equal quotes."""
    item = item.strip()
    if len(item) > 1 and item[0] in "'\"" and item[-1] == item[0]:
        return item[1:-1].strip()
    return item
