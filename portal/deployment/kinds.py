"""Kinds of values in a values file: what is accepted, and how an error message describes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Returns what is wrong with a value of the right kind, or an empty text.
Check = Callable[[Any], str]


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. ``accepts`` is checked first; ``expected`` completes "write ..." in the error. ``read`` returns
    the value in its only form."""

    expected: str
    accepts: Callable[[Any], bool]
    read: Callable[[Any], Any] = _same


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_text_pairs(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(part, str) for pair in value.items() for part in pair)


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


TEXT = Kind("a text; a number needs quotes", lambda value: isinstance(value, str))
QUANTITY = Kind("a quantity such as 500m, 2 or 512Mi", lambda value: isinstance(value, str) or _is_integer(value), str)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
INTEGER = Kind("a whole number", _is_integer)
TEXTS = Kind("a list of texts", _are_texts)
# Such as nodeSelector: texts by name.
TEXT_PAIRS = Kind("a mapping of texts to texts; numbers and true need quotes", _are_text_pairs)
# Such as tolerations: objects of the Kubernetes API.
MAPPINGS = Kind("a list of mappings", _are_mappings)
MAPPING = Kind("a mapping", lambda value: isinstance(value, dict))

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_HOST = re.compile(rf"{_LABEL}(\.{_LABEL})+")
_REGISTRY = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?(/[a-z0-9._-]+)*")
_REPOSITORY = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_ADDRESS = re.compile(r"https?://[^\s@]+")


def matching(pattern: re.Pattern[str], expected: str, *, empty: bool = False) -> Check:
    """Return a check of a text, or of each text of a list. ``empty`` also accepts the empty text."""

    def check(value: Any) -> str:
        texts = value if isinstance(value, list) else [value]
        wrong = [text for text in texts if not pattern.fullmatch(text) and not (empty and not text)]
        return f"{wrong[0]!r} is not {expected}" if wrong else ""

    return check


def between(least: int, most: int) -> Check:
    return lambda value: "" if least <= value <= most else f"{value} is not between {least} and {most}"


def one_of(*choices: str) -> Check:
    return lambda value: "" if value in choices else f"{value!r} is not one of {', '.join(repr(c) for c in choices)}"


def anything(value: Any) -> str:
    return ""


object_name = matching(_NAME, "a name of a Kubernetes object")
optional_object_name = matching(_NAME, "a name of a Kubernetes object", empty=True)
host_name = matching(_HOST, "a host name such as train.example.org")
registry = matching(_REGISTRY, "a registry such as registry.example.com:5000, without https://", empty=True)
repository = matching(_REPOSITORY, "a repository such as regatta/portal, without a registry and a tag")
tag = matching(_TAG, "a tag such as 0.1.0")
optional_tag = matching(_TAG, "a tag such as 0.1.0", empty=True)
quantity = matching(_QUANTITY, "a quantity such as 500m, 2 or 512Mi")
secret_key = matching(_KEY, "a key of a Secret")
address = matching(_ADDRESS, "an address such as https://host:port, without a password", empty=True)
