"""Composition of messages: lists and clauses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from runtime.messages import Message, Template, register
from runtime.messages import Template as _

AND = _("{first} and {last}")
COMMA = _("{first}, {second}")
CLAUSES = _("{first}; {second}")
PREFIXED = _("{place}: {text}")
FULL_STOP = _("{text}.")
register("text", globals())


def enumerated(texts: Sequence[str]) -> str:
    """Return texts as a list in a with_full_stop: ``a``, ``a and b``, ``a, b and c``; empty for none."""
    if len(texts) < 2:
        return texts[0] if texts else ""
    return AND(first=listed(texts[:-1]), last=texts[-1])


def listed(texts: Iterable[str]) -> str:
    """Return texts separated by commas: ``a, b, c``."""
    return _chained(COMMA, texts)


def clauses(texts: Iterable[str]) -> str:
    """Return texts separated by semicolons: ``a; b``."""
    return _chained(CLAUSES, texts)


def prefixed(place: str, text: str) -> Message:
    """Return a text after the place that it is about: ``train.csv: the row is empty.``"""
    return PREFIXED(place=place, text=text)


def with_full_stop(text: str) -> Message:
    """Return a clause with a full stop: ``trainer-0 is gone.``"""
    return FULL_STOP(text=text)


def without_full_stop(text: str) -> str:
    """Return a text as a clause. A message stays as it is: those that are used as clauses have no full stop."""
    plain = text.strip().rstrip(".")
    return text if isinstance(text, Message) and plain == text else plain


def _chained(separator: Template, texts: Iterable[str]) -> str:
    parts = list(texts)
    return reduce(lambda first, second: separator(first=first, second=second), parts) if parts else ""
