"""Messages in the language of the reader.

Services and the runtime return ``Message``: English text with a code and parameters (``runtime.messages``).
``localized`` renders one in the active language, by the translation of its template in ``portal/locale``. A text
without a code (an error of Python, a row that an older release stored) stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import get_language, gettext

from runtime.messages import PARAGRAPH, Message, fill, find

# A text that ends with one of these is not followed by a space.
_FULL_WIDTH = ("。", "；", "？", "！", "：")


def localized(text: str) -> str:
    """Return a message in the active language."""
    if not isinstance(text, Message) or (get_language() or "en").startswith("en"):
        return text
    values = {name: localized(value) if isinstance(value, str) else value for name, value in text.params.items()}
    if text.code == PARAGRAPH:
        return _sequence([f"{value}" for value in values.values()])
    template = find(text.code)
    return fill(gettext(template.text), values) if template is not None else text


def _sequence(texts: list[str]) -> str:
    return "".join(text if text.endswith(_FULL_WIDTH) else f"{text} " for text in texts).rstrip(" ")


def localized_errors(errors: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the messages of invalid fields in the active language."""
    return {field: [localized(message) for message in messages] for field, messages in errors.items()}


def localized_job(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job's document in the active language: ``why`` of the job and of its ``replicas``, ``sizing``."""
    replicas = [{**replica, "why": localized(replica["why"])} for replica in document["replicas"]]
    sizing = {"sizing": localized(document["sizing"])} if "sizing" in document else {}
    return {**document, "why": localized(document["why"]), "replicas": replicas, **sizing}
