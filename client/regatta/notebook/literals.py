"""Constants as Python source: numbers, texts, bytes, None, and lists, tuples, dictionaries and sets of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 100_000  # characters; larger values are data, which belong into a dataset
_DEPTH = 50
_TOO_DEEP = ValueError("nested too deeply, or contains itself")


def source_of(value: object) -> str | None:
    """Return an expression that evaluates to an equal value of the same type; None if the value is no constant.

    The text is the same in every process: the elements of sets are sorted.
    """
    try:
        return _source(value, 0)
    except ValueError:
        return None


def _source(value: Any, depth: int) -> str:
    write = _WRITERS.get(type(value))
    if write is None or depth > _DEPTH:
        raise _TOO_DEEP
    return write(value, depth + 1)


def _float(value: float, depth: int) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def _items(values: Any, depth: int) -> str:
    return ", ".join(_source(each, depth) for each in values)


def _tuple(value: tuple[Any, ...], depth: int) -> str:
    return f"({_items(value, depth)}{',' if len(value) == 1 else ''})"


def _dict(value: dict[Any, Any], depth: int) -> str:
    return f"{{{', '.join(f'{_source(key, depth)}: {_source(each, depth)}' for key, each in value.items())}}}"


def _set(value: set[Any], depth: int) -> str:
    return f"{{{', '.join(sorted(_source(each, depth) for each in value))}}}" if value else "set()"


def _frozenset(value: frozenset[Any], depth: int) -> str:
    return f"frozenset({_set(set(value), depth) if value else ''})"


def _plain(value: object, depth: int) -> str:
    return repr(value)


_WRITERS: Mapping[type, Callable[[Any, int], str]] = {
    **dict.fromkeys((bool, int, str, bytes, type(None), type(...), range), _plain),
    float: _float,
    complex: lambda value, depth: f"complex({_float(value.real, depth)}, {_float(value.imag, depth)})",
    list: lambda value, depth: f"[{_items(value, depth)}]",
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _frozenset,
}
