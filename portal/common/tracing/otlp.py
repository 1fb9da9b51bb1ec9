"""Export of spans to a collector by OTLP over HTTP, with the packages of OpenTelemetry.

The only module that imports them: ``requirements-traces.txt``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanKind, Status, StatusCode, TraceFlags

from portal.common.tracing.spans import Span
from portal.common.version import VERSION

TIMEOUT_SECONDS = 5.0  # of one call of the collector, with its retries
_SCOPE = "regatta"


class OtlpExport:
    """Sends spans to ``endpoint``, the address with its path. For one thread.

    ``service``: name of the service of spans that name none.
    """

    def __init__(
        self, endpoint: str, headers: Mapping[str, str], service: str, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        self._exporter = OTLPSpanExporter(endpoint, headers=dict(headers), timeout=timeout)
        self._service = service
        self._ids, self._ended = _GivenIds(), _Ended()
        self._tracers: dict[str, trace.Tracer] = {}

    def __call__(self, spans: Sequence[Span]) -> bool:
        """Send the spans; return whether the collector has accepted them."""
        for span in spans:
            self._make(span)
        return self._exporter.export(self._ended.taken()) is SpanExportResult.SUCCESS

    def _make(self, span: Span) -> None:
        self._ids.trace_id, self._ids.span_id = int(span.context.trace_id, 16), int(span.context.span_id, 16)
        made = self._tracer(span.service or self._service).start_span(
            span.name,
            context=self._context(span),
            kind=SpanKind.SERVER if span.is_server else SpanKind.INTERNAL,
            attributes=span.attributes,
            start_time=span.start,
        )
        if span.error:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(span.end)

    def _context(self, span: Span) -> Context:
        if not span.parent:
            return Context()
        sampled = TraceFlags(TraceFlags.SAMPLED)
        parent = trace.SpanContext(self._ids.trace_id, int(span.parent, 16), is_remote=True, trace_flags=sampled)
        return trace.set_span_in_context(NonRecordingSpan(parent), Context())

    def _tracer(self, service: str) -> trace.Tracer:
        if service not in self._tracers:
            resource = Resource({"service.name": service, "service.version": VERSION})
            provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids)
            provider.add_span_processor(self._ended)
            self._tracers[service] = provider.get_tracer(_SCOPE, VERSION)
        return self._tracers[service]


class _GivenIds(IdGenerator):
    """Gives a new span the ids that were set."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Ended(SpanProcessor):
    """Collects the spans that have ended."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def taken(self) -> list[ReadableSpan]:
        """Return the spans and forget them."""
        spans, self._spans = self._spans, []
        return spans
