"""Values as plain data: how arguments and results pass the wall of the sandbox.

A result is copied into JSON by the base types' own methods, never by methods of the program's objects, and compared on
our side of the wall: an object whose ``__eq__`` or ``__repr__`` lies is worth what its base type holds, and an object
that is not data at all is worth nothing. This module is also sent into the sandbox as text: it imports nothing of ours.

>>> decode(encode({"a": (1, [2.5, None])}))
{'a': (1, [2.5, None])}
"""

from __future__ import annotations

from typing import Any

_LARGE = 1 << 53


class NotPlainDataError(ValueError):
    """A value is not built of None, bool, int, float, complex, str, bytes, list, tuple, dict, set and frozenset."""


def encode(value: Any) -> Any:
    """Returns ``value`` as JSON values that keep Python's types apart.

    Raises:
        NotPlainDataError: It is not plain data.
    """
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        number = int.__int__(value)
        return number if -_LARGE < number < _LARGE else {"int": hex(number)}
    if isinstance(value, float):
        return {"float": float.hex(float.__float__(value))}
    if isinstance(value, list):
        return [encode(item) for item in list.__iter__(value)]
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in tuple.__iter__(value)]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in dict.items(value)]}
    if isinstance(value, set):
        return {"set": [encode(item) for item in set.__iter__(value)]}
    if isinstance(value, frozenset):
        return {"frozenset": [encode(item) for item in frozenset.__iter__(value)]}
    if isinstance(value, bytes):
        return {"bytes": bytes.hex(value)}
    if isinstance(value, complex):
        return {"complex": [float.hex(value.real), float.hex(value.imag)]}
    raise NotPlainDataError(f"a result must be plain data (numbers, text, lists, dicts, …), not {type(value).__name__}")


def decode(value: Any) -> Any:
    """The value that :func:`encode` made ``value`` of.

    Raises:
        NotPlainDataError: ``value`` is nothing that :func:`encode` returns.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise NotPlainDataError(f"not an encoded value: {value!r:.80}")
    ((kind, content),) = value.items()
    try:
        if kind == "int":
            return int(content, 16)
        if kind == "float":
            return float.fromhex(content)
        if kind == "tuple":
            return tuple(decode(item) for item in content)
        if kind == "dict":
            return {decode(key): decode(item) for key, item in content}
        if kind == "set":
            return {decode(item) for item in content}
        if kind == "frozenset":
            return frozenset(decode(item) for item in content)
        if kind == "bytes":
            return bytes.fromhex(content)
        if kind == "complex":
            return complex(*(float.fromhex(part) for part in content))
    except (TypeError, ValueError, OverflowError) as error:
        raise NotPlainDataError(f"not an encoded value: {value!r:.80}") from error
    raise NotPlainDataError(f"not an encoded value: {value!r:.80}")
