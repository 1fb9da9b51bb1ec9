"""The exporter of OpenTelemetry, with a real HTTP server that decodes what it sends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from portal.common.tracing.context import SpanContext
from portal.common.tracing.otlp import OtlpExport
from portal.common.tracing.spans import Span
from tests.servers.otlp_collector import Collector, silent

TRACE, PARENT, CHILD = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
ROOT = Span(
    "GET /", SpanContext(TRACE, PARENT), "", 10**18, 10**18 + 5000, {"http.response.status_code": 200}, is_server=True
)
BELOW = Span("job.build", SpanContext(TRACE, CHILD), PARENT, 10**18, 10**18 + 1, error="build_failed", service="other")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector().open() as collector:
        yield collector


def export_to(collector: Collector) -> OtlpExport:
    return OtlpExport(f"{collector.endpoint}/v1/traces", {"X-Key": "k1"}, "regatta-web", timeout=2.0)


def test_a_span_arrives_with_its_ids_times_and_attributes(collector: Collector) -> None:
    assert export_to(collector)([ROOT])
    (span,) = collector.spans
    assert (span.trace, span.id, span.parent) == (TRACE, PARENT, "")
    assert (span.start, span.end) == (ROOT.start, ROOT.end)
    assert (span.name, span.service, span.is_server, span.error) == ("GET /", "regatta-web", True, "")
    assert span.attributes == {"http.response.status_code": 200}


def test_a_child_arrives_with_its_parent_service_and_error(collector: Collector) -> None:
    assert export_to(collector)([ROOT, BELOW])
    (child,) = [span for span in collector.spans if span.name == "job.build"]
    assert (child.trace, child.id, child.parent) == (TRACE, CHILD, PARENT)
    assert (child.service, child.error, child.is_server) == ("other", "build_failed", False)


def test_a_child_of_another_process_needs_no_parent_in_the_batch(collector: Collector) -> None:
    export = export_to(collector)
    assert export([BELOW])
    assert export([replace(ROOT, context=SpanContext("c" * 32, "d" * 16))])
    assert [(span.trace, span.parent) for span in collector.spans] == [(TRACE, PARENT), ("c" * 32, "")]


def test_requests_have_the_given_headers(collector: Collector) -> None:
    export_to(collector)([ROOT])
    assert [headers["x-key"] for headers in collector.headers] == ["k1"]


def test_a_refusal_is_no_success(collector: Collector) -> None:
    collector.status = 401
    assert not export_to(collector)([ROOT])


def test_a_collector_that_never_answers_is_given_up() -> None:
    with silent() as address:
        assert not OtlpExport(f"{address}/v1/traces", {}, "regatta-web", timeout=0.2)([ROOT])
