"""Messages for people: a code and parameters, with their English text.

A ``Template`` is one entry of a catalogue; called with its parameters it returns a ``Message``. A message is a ``str``,
its English text, so that it can be raised, logged, compared and stored as any text. It also carries the code and the
parameters, from which the portal renders it in another language (``portal.common.messages.localized``).

A catalogue is a module of templates that ends with ``register``::

    from runtime.messages import Template as _
    from runtime.messages import register

    TRAINING = _("Training with {trainers}.")
    register("jobs", globals())

``messages.TRAINING(trainers=messages.TRAINERS(count=2))`` has the code ``jobs.training``. Changing the wording changes
the one line of the catalogue, and its translation. Formatting a message into another text (an f-string, ``join``)
returns a plain ``str`` without a code: give it as a parameter to another template instead, or use ``paragraph``.

Every package may import this one; it needs the standard library alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Parameter = str | int | float
# The code of several messages in one text. Its parameters are the messages, "1", "2" and so on.
PARAGRAPH: Final = "paragraph"
# Messages are at most this deep in one another when they are read from a peer.
MAX_DEPTH: Final = 6

_LARGEST = 2**63  # of a number that a peer sends
_PLACE = re.compile(r"\{(\w+)\}")


class Message(str):
    """A text for a person, in English, with the code and the parameters that it was made from."""

    code: str
    params: Mapping[str, Parameter]

    def __new__(cls, text: str, code: str, params: Mapping[str, Parameter]) -> Message:
        self = super().__new__(cls, text)
        self.code, self.params = code, params
        return self

    def __str__(self) -> str:
        """Return itself: ``str(error)`` of an exception keeps the code of its message."""
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self[:], self.code, dict(self.params)


class Template:
    """An entry of a catalogue: English text with named places, such as ``{trainers}``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = _PLACE.split(text)  # texts, and between them the names of places
        self.places = frozenset(self._parts[1::2])
        self.code = ""  # set by ``register``

    def __call__(self, **params: Any) -> Message:
        """Return the message with these parameters. Raises ``TypeError`` if they are not those of the text."""
        if params.keys() != self.places:
            raise TypeError(f"{self.code or self.text} takes {sorted(self.places)}, not {sorted(params)}")
        values = {name: _parameter(value) for name, value in params.items()}
        parts = self._parts.copy()
        parts[1::2] = [f"{values[name]}" for name in parts[1::2]]
        return Message("".join(parts), self.code, values)


_TEMPLATES: dict[str, Template] = {}


def register(catalogue: str, names: Mapping[str, Any]) -> None:
    """Give each template of a module its code, ``<catalogue>.<name in lower case>``."""
    for name, template in names.items():
        if isinstance(template, Template):
            template.code = f"{catalogue}.{name.lower()}"
            _TEMPLATES[template.code] = template


def find(code: str) -> Template | None:
    """Return the template with the code, if its catalogue has been imported."""
    return _TEMPLATES.get(code)


def registered() -> Mapping[str, Template]:
    """Return all templates by their code."""
    return dict(_TEMPLATES)


def fill(text: str, values: Mapping[str, Parameter]) -> str:
    """Return the text with the values in its places. Braces in a value stay as they are."""
    return _PLACE.sub(lambda place: f"{values[place[1]]}", text)


def paragraph(*texts: object) -> str:
    """Return several messages as one, separated by spaces. Empty ones are left out."""
    parts = [text for text in map(str, texts) if text]
    if len(parts) < 2:
        return parts[0] if parts else ""
    params = {str(number): part for number, part in enumerate(parts, 1)}
    return Message(" ".join(parts), PARAGRAPH, params)


def mapped(text: str, change: Callable[[str], str]) -> str:
    """Return a text after ``change``, which is applied to the parameters of a message: it keeps its code."""
    if not isinstance(text, Message):
        return change(text)
    params = {name: mapped(value, change) if isinstance(value, str) else value for name, value in text.params.items()}
    if text.code == PARAGRAPH:
        return paragraph(*params.values())
    template = _TEMPLATES.get(text.code)
    return template(**params) if template is not None else change(text)


def shortened(text: str, limit: int) -> str:
    """Return a text of at most ``limit`` characters; a longer message loses its end, and its code with it."""
    return text if len(text) <= limit else text[:limit]


# --- Exchange between processes --------------------------------------------------------------------------------------
def to_json(text: str) -> Any:
    """Return a text for a JSON document: a plain ``str`` as it is, a message as ``{"code", "params", "text"}``."""
    if not isinstance(text, Message):
        return text
    params = {name: to_json(value) if isinstance(value, str) else value for name, value in text.params.items()}
    return {"code": text.code, "params": params, "text": text[:]}


def from_json(document: Any) -> str:
    """Return the text of a JSON document that ``to_json`` or a peer made.

    A code that is not known here, or parameters that are not those of its template, give the plain text. The text of a
    known code is rendered again, so that it cannot differ from its parameters. Raises ``ValueError`` for a document
    that is neither text nor a message.
    """
    return _read(document, MAX_DEPTH)


def restore(document: Any) -> str:
    """Return the text of a document of ``to_json`` that this process trusts, in the words in which it was written."""
    if not isinstance(document, Mapping):
        return str(document)
    params = {
        name: restore(value) if isinstance(value, Mapping) else value for name, value in document["params"].items()
    }
    return Message(document["text"], document["code"], params)


def _read(document: Any, depth: int) -> str:
    if isinstance(document, str):
        return document
    if not (isinstance(document, Mapping) and isinstance(document.get("text"), str)):
        raise ValueError("a message is a text, or an object with code, params and text")
    text: str = document["text"]
    params = document.get("params")
    if not depth or not isinstance(params, Mapping):
        return text[:]
    try:
        values = {str(name): _value(value, depth - 1) for name, value in params.items()}
    except ValueError:
        return text[:]
    if document.get("code") == PARAGRAPH and values:
        return paragraph(*values.values())
    template = _TEMPLATES.get(str(document.get("code")))
    return template(**values) if template is not None and template.places == values.keys() else text[:]


def _value(value: Any, depth: int) -> Parameter:
    if (type(value) is int and abs(value) <= _LARGEST) or (type(value) is float and math.isfinite(value)):
        return value
    return _read(value, depth)


_KEPT = frozenset({Message, int, str})


def _parameter(value: Any) -> Parameter:
    if type(value) in _KEPT:
        return value  # type: ignore[no-any-return]
    if type(value) is float and math.isfinite(value):
        return value
    return f"{value}"
