"""Translation of the platform's messages into the language of the reader.

Messages are written in English where their cause occurs: they are stored, logged, and read by programs. When a person
reads one, ``localized`` looks it up in the tables of this package and returns its translation. Text that is in no table
(a Python error, a name) stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.utils.translation import get_language, gettext

from portal.common.messages import accounts, cluster, data, isolation, jobs, quota, specification, training

# ``{word}`` stands for any text that is not empty, ``{file}`` for one word. The text in a place is looked up in turn.
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
    """Return the message in the active language."""
    language = get_language() or "en"
    return message if language.startswith("en") else _localized(message, language)


def localized_errors(errors: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the messages of invalid fields in the active language."""
    return {field: [localized(message) for message in messages] for field, messages in errors.items()}


def localized_job(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's document in the active language: ``why`` of the job and of its ``replicas``, ``sizing``."""
    replicas = [{**replica, "why": localized(replica["why"])} for replica in document["replicas"]]
    sizing = {"sizing": localized(document["sizing"])} if "sizing" in document else {}
    return {**document, "why": localized(document["why"]), "replicas": replicas, **sizing}


@lru_cache(maxsize=4096)
def _localized(message: str, language: str) -> str:
    # The language is part of the cache key; gettext uses the active one.
    for way in (_as_messages, _translated, _in_parts):
        if (found := way(message, language)) is not None:
            return found
    return message


def _as_messages(message: str, language: str) -> str | None:
    """Split where one known message ends and another begins, before a place of the first takes the text of the
    second."""
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
    """Translate the longest known beginning, or else the longest known end, and then the rest."""
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
    """A message of the table. Its fixed text is searched for first, which is fast and seldom matches."""

    original: str
    words: tuple[str, ...]  # the fixed texts before, between and after its places
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
    """Any text; a file is one word, so that it does not take the words of the places around it."""
    return rf"(?P<{name}>\S+?)" if name == "file" else f"(?P<{name}>.+?)"


# Patterns with the longest fixed text first: they are the most specific.
_PATTERNS = tuple(map(_pattern, sorted(MESSAGES, key=lambda text: -len(_PLACE.sub("", text)))))
