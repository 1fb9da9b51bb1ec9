"""What the platform says, in the reader's language.

Messages are written in English where and when a thing happens: they are stored, logged, and read by programs. Where a
person reads one, ``told`` finds it in the tables of this package and gives its translation. What is in none of them (a
Python error, a name) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.utils.translation import get_language, gettext

from portal.common.messages import accounts, cluster, data, isolation, jobs, quota, specification, training

# ``{word}`` stands for anything that is not empty, ``{file}`` for one word; what it stands for is looked up in turn.
MESSAGES: tuple[str, ...] = (
    *accounts.MESSAGES,
    *cluster.MESSAGES,
    *data.MESSAGES,
    *isolation.MESSAGES,
    *jobs.MESSAGES,
    *quota.MESSAGES,
    *specification.MESSAGES,
    *training.MESSAGES,
)

_PLACE = re.compile(r"\{(\w+)\}")
# Where one message may end and the next begin.
_JOINT = re.compile(r"(?<=[.;:?]) ")


def localized(message: str) -> str:
    """The message in the language that is active now."""
    language = get_language() or "en"
    return message if language.startswith("en") else _localized(message, language)


def localized_errors(errors: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The messages of refused fields."""
    return {field: [localized(message) for message in messages] for field, messages in errors.items()}


def localized_job(document: Mapping[str, Any]) -> dict[str, Any]:
    """A job's document (``why`` of the job and of its ``replicas``, ``sizing``) for a reader."""
    replicas = [{**replica, "why": localized(replica["why"])} for replica in document["replicas"]]
    sizing = {"sizing": localized(document["sizing"])} if "sizing" in document else {}
    return {**document, "why": localized(document["why"]), "replicas": replicas, **sizing}


@lru_cache(maxsize=4096)
def _localized(message: str, language: str) -> str:
    # The language is the key under which the answer is kept; gettext takes the active one.
    for way in (_as_messages, _translated, _in_parts):
        if (found := way(message, language)) is not None:
            return found
    return message


def _as_messages(message: str, language: str) -> str | None:
    """Cut where one known message ends and another begins, before a place of the first swallows the second."""
    for full_stop in re.finditer(r"\.(?= )", message):
        head, tail = message[: full_stop.end()], message[full_stop.end() + 1 :]
        if _known(head) and _known(tail):
            return _joined(_localized(head, language), _localized(tail, language))
    return None


def _known(message: str) -> bool:
    return any(pattern.match(message) for pattern in _PATTERNS)


def _translated(message: str, language: str) -> str | None:
    for pattern in _PATTERNS:
        if found := pattern.match(message):
            values = {name: _localized(value, language) for name, value in found.groupdict().items()}
            return _filled(gettext(pattern.original), values)
    return None


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: values[place[1]], text)


def _in_parts(message: str, language: str) -> str | None:
    """The longest beginning or else the longest end that is known, and the rest in its turn."""
    joints = [joint.start() for joint in _JOINT.finditer(message)]
    for at in reversed(joints):
        if (head := _translated(message[:at], language)) is not None:
            return _joined(head, _localized(message[at + 1 :], language))
    for at in joints:
        if (tail := _translated(message[at + 1 :], language)) is not None:
            return _joined(message[:at], tail)
    return None


def _joined(head: str, tail: str) -> str:
    return head + ("" if head.endswith(("。", "；", "？")) else " ") + tail


@dataclass(frozen=True)
class _Pattern:
    """A message of the table. What it says of its own is looked for first: that is quick, and seldom there."""

    original: str
    words: tuple[str, ...]  # what is between its places, with what is before the first and after the last
    expression: re.Pattern[str]

    def match(self, message: str) -> re.Match[str] | None:
        if not (message.startswith(self.words[0]) and message.endswith(self.words[-1])):
            return None
        return self.expression.fullmatch(message) if all(word in message for word in self.words) else None


def _pattern(original: str) -> _Pattern:
    pieces = _PLACE.split(original)
    literal = [re.escape(piece) if index % 2 == 0 else _place(piece) for index, piece in enumerate(pieces)]
    return _Pattern(original, tuple(pieces[::2]), re.compile("".join(literal), re.DOTALL))


def _place(name: str) -> str:
    """Anything, but a file is one word: where it stands between others, it does not take theirs."""
    return rf"(?P<{name}>\S+?)" if name == "file" else f"(?P<{name}>.+?)"


# Those with the most words of their own first: they say most exactly what they mean.
_PATTERNS = tuple(map(_pattern, sorted(MESSAGES, key=lambda text: -len(_PLACE.sub("", text)))))
