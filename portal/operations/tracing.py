"""Start and stop of tracing in a process of the portal. Without ``REGATTA_OTLP_ENDPOINT`` nothing is imported."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.core.management.base import CommandError

from portal.common.monitoring.metrics import Process
from portal.common.tracing import recording
from portal.common.tracing.recording import Tracing
from portal.common.tracing.span_queue import SpanQueue

# How long the end of a process waits for spans that were not sent yet.
EXIT_SECONDS = 0.5


def start(process: Process) -> Callable[[], None]:
    """Record the spans of this process; return the function that ends it. Raises CommandError."""
    if not settings.OTLP_ENDPOINT:
        return _nothing
    try:
        from portal.common.tracing.otlp import OtlpExport
    except ImportError as error:
        raise CommandError(
            f"REGATTA_OTLP_ENDPOINT is set, but a package for traces is missing ({error}). Install "
            "requirements-traces.txt, or remove the setting."
        ) from None
    queue = SpanQueue(OtlpExport(settings.OTLP_ENDPOINT, settings.OTLP_HEADERS, f"regatta-{process}"))
    ratios = settings.TRACE_SUBMISSIONS, settings.TRACE_REQUESTS
    recording.install(Tracing(queue.put, *ratios, from_proxies=settings.TRACE_FROM_PROXIES))
    return lambda: queue.stop(EXIT_SECONDS)


def _nothing() -> None:
    """End no tracing."""
