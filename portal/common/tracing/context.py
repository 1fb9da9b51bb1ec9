"""Identity of a span as in W3C Trace Context, and the choice of traces to record. Pure but for random numbers."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

_WELL_FORMED = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_SAMPLED = 1
# The lower half of a trace id is compared with the ratio, as the samplers of OpenTelemetry do.
_HALF = 16


@dataclass(frozen=True, slots=True)
class SpanContext:
    """A span's place: 32 and 16 hexadecimal digits, neither all zeros. ``sampled``: the trace is recorded."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def header(self) -> str:
        """Return the value of the header ``traceparent``, 55 characters."""
        return f"00-{self.trace_id}-{self.span_id}-{_SAMPLED if self.sampled else 0:02x}"

    def child(self, *names: object) -> SpanContext:
        """Return a span of the same trace whose id follows from this span and the names.

        Processes that know the same parent agree on the id, so that none has to store it for another one.
        """
        text = "/".join((self.trace_id, self.span_id, *map(str, names)))
        return SpanContext(self.trace_id, hashlib.sha256(text.encode()).hexdigest()[:16], self.sampled)


def parse(header: str | None) -> SpanContext | None:
    """Return the context in a ``traceparent`` of version 00; None for any other text."""
    found = _WELL_FORMED.fullmatch(header or "")
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return SpanContext(found[1], found[2], bool(int(found[3], 16) & _SAMPLED))


def new_trace_id() -> str:
    return secrets.token_hex(16)


def new_span_id() -> str:
    return secrets.token_hex(8)


def is_within(trace_id: str, ratio: float) -> bool:
    """Return whether the trace is among the recorded ``ratio`` (0 to 1). Every process decides alike."""
    return int(trace_id[_HALF:], 16) < ratio * float(16**_HALF)
