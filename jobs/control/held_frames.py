"""Frames of a held program with their variables, as an agent answers them: checked and bounded. Pure.

Agents pass on what the processes of user code say, so everything here is hostile input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FRAMES, VARIABLES, TEXT, MESSAGE = 40, 100, 200, 1000
# Characters of all names and texts in one answer.
CHARACTERS = 2**20
_LARGEST_LINE, _LARGEST_SIZE = 2**31, 2**53


@dataclass(frozen=True)
class Variable:
    """``size`` in bytes; None: not known. ``shape``: length of a container, ``[3]``, or shape and type of an array."""

    name: str
    type: str
    size: int | None
    shape: str
    text: str

    @property
    def characters(self) -> int:
        return 60 + len(self.name) + len(self.type) + len(self.shape) + len(self.text)


@dataclass(frozen=True)
class HeldFrame:
    file: str
    line: int
    function: str
    variables: tuple[Variable, ...] = ()


@dataclass(frozen=True)
class HeldProgram:
    """``frames``: the innermost first. ``complete``: nothing was left out."""

    exception: str
    message: str
    complete: bool
    frames: tuple[HeldFrame, ...] = field(default=())


def read(answer: Mapping[str, Any]) -> HeldProgram:
    """Return the answer of the agent's call ``variables``, without what is not of the expected form."""
    left, complete = CHARACTERS, answer.get("complete") is True
    frames: list[HeldFrame] = []
    for one in _listed(answer.get("frames"), FRAMES):
        variables: list[Variable] = []
        for found in map(_variable, _listed(one.get("variables"), VARIABLES)):
            left -= found.characters
            if left < 0:
                complete = False
                break
            variables.append(found)
        line = _number(one.get("line"), _LARGEST_LINE) or 0
        frames.append(HeldFrame(_text(one.get("file")), line, _text(one.get("function")), tuple(variables)))
    message = _text(answer.get("message"), MESSAGE)
    return HeldProgram(_text(answer.get("exception")), message, complete, tuple(frames))


def _variable(found: Mapping[str, Any]) -> Variable:
    name, kind, shape, text = (_text(found.get(key)) for key in ("name", "type", "shape", "text"))
    return Variable(name, kind, _number(found.get("size"), _LARGEST_SIZE), shape, text)


def _listed(value: object, most: int) -> list[Mapping[str, Any]]:
    return [one for one in (value if isinstance(value, list) else [])[:most] if isinstance(one, dict)]


def _text(value: object, most: int = TEXT) -> str:
    """Return a text without characters that are not printed, except for the ends of lines."""
    text = value[:most] if isinstance(value, str) else ""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)


def _number(value: object, most: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < most else None
