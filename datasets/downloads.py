"""HTTP responses with the content of a file: all of it, or the requested range."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import AsyncIterator
from typing import BinaryIO, NamedTuple

from asgiref.sync import sync_to_async
from django.http import HttpResponse, StreamingHttpResponse
from django.utils.http import content_disposition_header

from datasets import messages
from datasets.errors import BadRange

_PIECE = 1 << 18
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


class Span(NamedTuple):
    """Bytes ``first`` to ``last``, both included."""

    first: int
    last: int


def span_of(header: str, size: int) -> Span | None:
    """Return the range that a Range header requests, or None for the whole file.

    A request for several ranges is answered with the whole file (RFC 9110, 14.2). Raises BadRange for a range beyond
    the end.
    """
    asked = _RANGE.fullmatch(header.strip())
    if asked is None or not any(asked.groups()):
        return None
    first, last = asked.groups()
    if not first:
        begin, end = max(0, size - int(last)), size - 1
    else:
        begin, end = int(first), min(int(last), size - 1) if last else size - 1
    if first and last and int(last) < int(first):
        return None
    if begin > end:
        raise BadRange(messages.RANGE_BEYOND_FILE(size=size), size=size)
    return Span(begin, end)


def answer(stream: BinaryIO, name: str, size: int, sha256: str, span: Span | None) -> StreamingHttpResponse:
    """Return a response that streams from ``stream``.

    ``stream`` must be positioned at the first byte to send; it is closed at the end.
    """
    first, last = span or (0, size - 1)
    headers = {
        "Content-Length": str(last - first + 1),
        "Accept-Ranges": "bytes",
        "ETag": f'"{sha256}"',
        # Uploaded content is never displayed by the browser, whatever its type.
        "Content-Disposition": content_disposition_header(True, name.rpartition("/")[2]) or "attachment",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "private, max-age=0, must-revalidate",
    }
    if span is not None:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return StreamingHttpResponse(
        _pieces(stream, last - first + 1),
        status=206 if span is not None else 200,
        content_type=mimetypes.guess_type(name)[0] or "application/octet-stream",
        headers=headers,
    )


def unchanged(sha256: str) -> HttpResponse:
    """Return the response for a client that already has the content."""
    return HttpResponse(status=304, headers={"ETag": f'"{sha256}"'})


async def _pieces(stream: BinaryIO, left: int) -> AsyncIterator[bytes]:
    """Read in a thread, so that a slow disk or client does not block other requests."""
    read = sync_to_async(stream.read, thread_sensitive=False)
    try:
        while left and (piece := await read(min(_PIECE, left))):
            left -= len(piece)
            yield piece
    finally:
        stream.close()
