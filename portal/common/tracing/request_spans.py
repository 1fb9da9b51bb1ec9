"""The span of a request, and the trace that a submission gives to its job.

Only a trusted proxy may name the trace that a request belongs to, as with request ids, and only if a setting allows it.
Agents never may: the trace of an attempt is the one in the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from portal.common import trusted_proxies
from portal.common.monitoring import log_context
from portal.common.tracing import recording
from portal.common.tracing.context import SpanContext, is_within, new_span_id, new_trace_id, parse
from portal.common.tracing.spans import Span
from portal.common.trusted_proxies import Network

HEADER = "traceparent"
_INGEST = "/ingest/"
_ERROR = 500  # the first status that is an error of the server


@dataclass(slots=True)
class RequestTrace:
    """The span of the present request. ``parent``: the span of a trusted proxy, if it named one.

    ``start``: nanoseconds since 1970.
    """

    context: SpanContext
    parent: str
    start: int


def begin(peer: str, path: str, given: str, trusted: Sequence[Network], start: int) -> RequestTrace | None:
    """Begin the span of a request from ``peer`` with the header ``given``. None if this process records nothing."""
    tracing = recording.current()
    if tracing is None:
        return None
    may_choose = tracing.from_proxies and not path.startswith(_INGEST)
    above = _accepted(peer, given, trusted) if may_choose else None
    if above is not None:
        return RequestTrace(replace(above, span_id=new_span_id()), above.span_id, start)
    trace_id = new_trace_id()
    return RequestTrace(SpanContext(trace_id, new_span_id(), is_within(trace_id, tracing.requests)), "", start)


def _accepted(peer: str, given: str, trusted: Sequence[Network]) -> SpanContext | None:
    return parse(given) if given and trusted_proxies.is_trusted(trusted_proxies.address(peer), trusted) else None


def of_submission() -> str | None:
    """Return the ``traceparent`` for a job that the present request submits; None if its trace is not recorded.

    The span of the request is recorded too. A proxy's decision not to record the trace holds for the job.
    """
    tracing, trace = recording.current(), log_context.current().trace
    if tracing is None or trace is None:
        return None
    if not trace.parent and is_within(trace.context.trace_id, tracing.submissions):
        trace.context = replace(trace.context, sampled=True)
    if not trace.context.sampled:
        return None
    log_context.note(trace_id=trace.context.trace_id)
    return trace.context.header()


def finished(context: log_context.LogContext, status: int, seconds: float) -> Span | None:
    """Return the span of a request that was answered with ``status`` (0: not at all); None if it is not recorded."""
    trace = context.trace
    if trace is None or not trace.context.sampled:
        return None
    template = f"/{context.template}" if context.template else ""
    found: dict[str, str | int] = {
        "http.request.method": context.method,
        "http.route": template,
        "http.response.status_code": status,
        "regatta.request.id": context.request_id,
        "regatta.problem": context.refusal,
        "regatta.job.id": context.job,
        "regatta.attempt": context.attempt or 0,
    }
    return Span(
        name=f"{context.method} {template or context.route}",
        context=trace.context,
        parent=trace.parent,
        start=trace.start,
        end=trace.start + int(seconds * 1e9),
        attributes={name: value for name, value in found.items() if value},
        error=(context.refusal or str(status)) if status >= _ERROR else "",
        is_server=True,
    )
