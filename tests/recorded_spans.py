"""Recording of spans in a list, in the place of a collector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from portal.common.monitoring import log_context
from portal.common.tracing import recording, request_spans
from portal.common.tracing.recording import Tracing
from portal.common.tracing.spans import Span


@contextmanager
def recorded(submissions: float = 1.0, requests: float = 0.0, *, from_proxies: bool = False) -> Iterator[list[Span]]:
    """Record the spans of the block."""
    spans: list[Span] = []
    recording.install(Tracing(spans.append, submissions, requests, from_proxies=from_proxies))
    try:
        yield spans
    finally:
        recording.install(None)


@contextmanager
def in_a_request() -> Iterator[str]:
    """Run the block as part of a request, and give the id of its trace."""
    trace = request_spans.begin("192.0.2.7", "/", "", (), 1)
    assert trace is not None
    with log_context.use(trace=trace):
        yield trace.context.trace_id
