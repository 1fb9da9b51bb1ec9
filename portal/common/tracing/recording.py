"""The tracing of this process: whether spans are recorded, how many, and where they go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from portal.common.tracing.spans import Span


@dataclass(frozen=True)
class Tracing:
    """Settings of a process that records. ``put`` takes finished spans and never blocks.

    ``submissions`` and ``requests``: the recorded ratio of traces that a submission begins, and of other requests.
    ``from_proxies``: a trusted proxy chooses the trace of a request.
    """

    put: Callable[[Span], None]
    submissions: float
    requests: float
    from_proxies: bool = False


_of_process: Tracing | None = None


def current() -> Tracing | None:
    """Return the tracing of this process; None if nothing is recorded."""
    return _of_process


def install(tracing: Tracing | None) -> None:
    """Record from now on, or no more."""
    global _of_process
    _of_process = tracing


def record(span: Span) -> None:
    """Pass on a finished span of a sampled trace. Does nothing without tracing. Never blocks."""
    if _of_process is not None and span.context.sampled:
        _of_process.put(span)
