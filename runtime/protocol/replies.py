"""Replies of a server: to a request, to one that is refused, and to a peer that is disconnected."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from runtime.errors import Refused, WireError
from runtime.messages import to_json
from runtime.protocol import frames
from runtime.protocol.connection import Connection, Message
from runtime.protocol.frames import Flag, Header
from runtime.protocol.proof import UNPROVEN, Unproven


def reply(request: Message, body: Mapping[str, Any] | None = None) -> Message:
    """A reply without blocks."""
    return Message(reply_head(request.head), body or {})


def reply_head(head: Header, version: int = 0) -> Header:
    return Header(head.op, Flag.REPLY, job=head.job, shard=head.shard, seq=head.seq, version=version)


def error_reply(head: Header, refused: Refused) -> Message:
    """The reply to a request that is refused."""
    header = reply_head(head)._replace(flags=Flag.REPLY | Flag.ERROR)
    return Message(header, {"code": refused.code, "why": to_json(refused.why)})


def send_bye(connection: Connection, error: WireError) -> None:
    """Send a peer with invalid bytes or without proof the reason of the disconnect."""
    head = Header(frames.Op.BYE)
    code = UNPROVEN if isinstance(error, Unproven) else frames.BAD_FRAME
    with contextlib.suppress(WireError):
        connection.send(error_reply(head, Refused(code, str(error))), 1.0)
