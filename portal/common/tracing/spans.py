"""A finished span. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from portal.common.tracing.context import SpanContext

AGENT = "regatta-agent"


@dataclass(frozen=True, slots=True)
class Span:
    """A finished piece of work.

    * ``start`` and ``end``: nanoseconds since 1970; a span never ends before it starts.
    * ``parent``: id of the parent span in the same trace; empty for the first span of a trace.
    * ``error``: a code; empty if the work succeeded.
    * ``service``: name of the service; empty: the process that records the span.
    * ``is_server``: the span is the answer to a request.
    """

    name: str
    context: SpanContext
    parent: str
    start: int
    end: int
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    error: str = ""
    service: str = ""
    is_server: bool = False

    def __post_init__(self) -> None:
        # Clocks of several servers made the times.
        object.__setattr__(self, "end", max(self.start, self.end))


def nanoseconds(moment: datetime) -> int:
    """Return the time in nanoseconds since 1970."""
    return int(moment.timestamp() * 1_000_000) * 1000
