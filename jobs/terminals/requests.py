"""The query of a socket and its messages, checked. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

from portal.common.errors import ValidationFailed

MOST_TEXT, MOST_BYTES = 128 * 1024, 64 * 1024
_REPLICA = re.compile(r"[a-z]{1,16}-[0-9]{1,6}")
_SESSION = re.compile(r"[0-9a-f]{1,64}")
_LARGEST = 2**62
_PORTS = range(1, 2**16)
# Fields that are passed on to the agent, by the operation of a message.
_OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "resize": ("columns", "rows"),
    "end": (),
    "end_input": (),
    "ack": ("bytes",),
}


@dataclass(frozen=True)
class Query:
    """The query of ``/ws/v1/exec``. ``session``: a terminal to return to. ``after``: the cursor, -1 for all output.

    ``command``: the first message names a command to run, instead of a terminal. ``acknowledges``: the client sends
    ``{"op": "ack", "bytes"}`` for output that it has shown, because it cannot slow its connection itself.
    """

    job: str
    replica: str = ""
    session: str = ""
    after: int = -1
    columns: int = 80
    rows: int = 24
    command: bool = False
    acknowledges: bool = False


def query_of(text: bytes) -> Query:
    """Parse a query string. Raises ValidationFailed with a message for an invalid field."""
    given = dict(parse_qsl(text.decode("latin-1"), max_num_fields=20))
    try:
        job = str(UUID(given.get("job", "")))
    except ValueError:
        raise ValidationFailed({"job": ["Must be the id of a job."]}) from None
    return Query(
        job=job,
        replica=_matching(given, "replica", _REPLICA, "Must be <role>-<index>, such as trainer-0."),
        session=_matching(given, "session", _SESSION, "Must be the id of a terminal."),
        after=_number(given, "after", -1),
        columns=_number(given, "columns", 80),
        rows=_number(given, "rows", 24),
        command=given.get("command") == "1",
        acknowledges=given.get("ack") == "1",
    )


@dataclass(frozen=True)
class PortQuery:
    """The query of ``/ws/v1/connect``: a port on the loopback of a replica."""

    job: str
    replica: str
    port: int


def port_query_of(text: bytes) -> PortQuery:
    """Parse a query string. Raises ValidationFailed with a message for an invalid field."""
    query = query_of(text)
    port = _number(dict(parse_qsl(text.decode("latin-1"), max_num_fields=20)), "port", 0)
    if port not in _PORTS:
        raise ValidationFailed({"port": ["Must be a number from 1 to 65535."]})
    return PortQuery(query.job, query.replica, port)


def command_of(text: str | None) -> dict[str, Any]:
    """Return the request of a command from the first message. The agent checks it. Raises ValidationFailed."""
    message = _object(text)
    return {"command": message.get("command")}


def operation_of(text: str) -> dict[str, Any]:
    """Return a message to a running program, with its known fields only. Raises ValidationFailed."""
    message = _object(text)
    name = message.get("op")
    if not isinstance(name, str) or name not in _OPERATIONS:
        raise ValidationFailed({"op": [f"Must be one of {', '.join(_OPERATIONS)}."]})
    return {"op": name, **{field: message.get(field) for field in _OPERATIONS[name]}}


def _object(text: str | None) -> dict[str, Any]:
    if text is None or len(text) > MOST_TEXT:
        raise ValidationFailed({"message": [f"Send a JSON object of at most {MOST_TEXT:,} characters."]})
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise ValidationFailed({"message": ["This is not JSON."]}) from None
    if not isinstance(message, dict):
        raise ValidationFailed({"message": ["Send a JSON object."]})
    return message


def _matching(given: Mapping[str, str], name: str, pattern: re.Pattern[str], otherwise: str) -> str:
    value = given.get(name, "")
    if value and not pattern.fullmatch(value):
        raise ValidationFailed({name: [otherwise]})
    return value


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name, "")
    if not text:
        return default
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValidationFailed({name: ["Must be a whole number."]})
    return max(-1, min(int(text), _LARGEST))
