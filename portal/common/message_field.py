"""Database field for messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db import models

from runtime.messages import Message, restore, to_json

if TYPE_CHECKING:
    _TextField = models.TextField[str, str]
else:
    _TextField = models.TextField

# How the JSON of a message begins. Plain text that begins so is stored as a message without a code.
_PREFIX = '{"code": '


class MessageField(_TextField):
    """A text, or a message with its code and parameters.

    A plain text is stored as it is, a message as ``{"code": ..., "params": ..., "text": ...}`` in the same column, and
    read as ``Message``. Texts of older releases are therefore read as they were written. A stored message is never
    rendered again: it stays in the words in which it was written.
    """

    def from_db_value(self, value: str | None, expression: Any, connection: Any) -> str | None:
        return decoded(value) if value is not None else None

    def get_prep_value(self, value: Any) -> Any:
        return encoded(value) if isinstance(value, str) else super().get_prep_value(value)

    def deconstruct(self) -> tuple[str, str, Sequence[Any], dict[str, Any]]:
        """The column is that of a text: no migration is needed."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.TextField", args, kwargs


def encoded(text: str) -> str:
    """Return the content of the column for a text."""
    if not isinstance(text, Message):
        text = Message(text, "", {}) if text.startswith(_PREFIX) else text
    return json.dumps(to_json(text), ensure_ascii=False) if isinstance(text, Message) else text


def decoded(content: str) -> str:
    """Return the text of a column."""
    if not content.startswith(_PREFIX):
        return content
    restored = restore(json.loads(content))
    return restored if getattr(restored, "code", "") else restored[:]
