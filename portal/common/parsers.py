"""JSON bodies of the API, with a limit on their depth.

Python's parser and the code that walks over its result (serializers, encoders, database drivers) recurse. Without a
limit a body of a few kilobytes could exhaust the stack and become an internal error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from portal.common.messages import requests as messages

DEPTH_LIMIT = 64
_TOO_DEEP = messages.BODY_NESTED_TOO_DEEPLY(limit=DEPTH_LIMIT)


class BoundedJSONParser(JSONParser):
    """The framework's parser; raises ParseError also for a body that is nested deeper than ``DEPTH_LIMIT``."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            body = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise ParseError(_TOO_DEEP) from None
        if is_deeper(body, DEPTH_LIMIT):
            raise ParseError(_TOO_DEEP)
        return body


def is_deeper(value: Any, limit: int) -> bool:
    """Return whether lists and objects are nested more than ``limit`` levels deep."""
    level = _containers([value])
    for _ in range(limit):
        level = [inner for each in level for inner in _containers(each.values() if isinstance(each, dict) else each)]
        if not level:
            return False
    return bool(level)


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]
