"""Spans of requests: which are recorded, what they name, and who chooses their trace."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from portal.asgi import application
from portal.common.monitoring import log_context
from portal.common.tracing import request_spans
from portal.common.trusted_proxies import network
from portal.http.access import Access
from tests.portal.http.test_access import BODY, OK, answering, exchange, requested
from tests.recorded_spans import recorded

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{SPAN}-01"
PROXY = (network("192.0.2.0/24"),)


async def submitting(scope: Any, receive: Any, send: Any) -> None:
    """Submit a job, and answer."""
    scope["traceparent"] = request_spans.of_submission()
    await send(OK)
    await send(BODY)


def submitted(**headers: str) -> str | None:
    """Return the ``traceparent`` that a job of this request gets."""
    scope = requested("/", "POST", **headers)
    exchange(Access(submitting), scope)
    given: str | None = scope["traceparent"]
    return given


def test_without_tracing_a_request_has_no_trace() -> None:
    contexts = []

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        contexts.append(log_context.current())

    exchange(Access(noting), requested("/", traceparent=HEADER))
    assert [(context.trace, context.trace_id) for context in contexts] == [(None, "")]
    assert submitted() is None


@pytest.mark.django_db(transaction=True)
def test_a_span_names_the_template_of_the_route_and_neither_path_nor_query() -> None:
    with recorded(requests=1.0) as spans:
        exchange(application, requested("/api/v1/namespaces/ada-lovelace/jobs"))
    (span,) = spans
    assert span.name == "GET /api/v1/namespaces/<str:ns>/jobs"
    assert span.attributes.keys() == {
        *("http.request.method", "http.route", "http.response.status_code"),
        *("regatta.request.id", "regatta.problem"),
    }
    assert [word for word in ("ada", "secret", "192.0.2.7") if word in str(span)] == []


@pytest.mark.parametrize(("status", "error"), [(200, ""), (404, ""), (503, "503")])
def test_an_error_of_the_server_is_the_status_of_its_span(status: int, error: str) -> None:
    with recorded(requests=1.0) as spans:
        exchange(Access(answering({**OK, "status": status}, BODY)), requested("/"))
    assert [span.error for span in spans] == [error]


def test_the_code_of_a_problem_is_the_error_of_its_span() -> None:
    async def away(scope: Any, receive: Any, send: Any) -> None:
        log_context.note(refusal="database_unavailable")
        await send({**OK, "status": 503})

    with recorded(requests=1.0) as spans:
        exchange(Access(away), requested("/"))
    assert [span.error for span in spans] == ["database_unavailable"]


def test_a_request_beyond_the_ratio_is_not_recorded() -> None:
    with recorded(requests=0.0) as spans:
        exchange(Access(answering(OK, BODY)), requested("/"))
    assert spans == []


def test_a_submission_is_recorded_whatever_the_ratio_of_requests() -> None:
    with recorded(submissions=1.0, requests=0.0) as spans:
        header = submitted()
    assert [span.context.header() for span in spans] == [header]


def test_a_submission_beyond_its_ratio_is_not_recorded() -> None:
    with recorded(submissions=0.0) as spans:
        assert submitted() is None
    assert spans == []


# --- Traces of proxies -----------------------------------------------------------------------------------------------
def test_a_trusted_proxy_chooses_the_trace_if_the_setting_allows_it(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = PROXY
    with recorded(from_proxies=True) as spans:
        exchange(Access(answering(OK, BODY)), requested("/", traceparent=HEADER))
    assert [(span.context.trace_id, span.parent) for span in spans] == [(TRACE, SPAN)]


def test_a_trace_that_the_proxy_does_not_record_is_not_recorded_for_a_job(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = PROXY
    with recorded(from_proxies=True) as spans:
        assert submitted(traceparent=HEADER[:-1] + "0") is None
    assert spans == []


@pytest.mark.invariant("Only a trusted proxy chooses the trace of a request, and only if a setting allows it.")
@pytest.mark.parametrize(("proxies", "allowed"), [((), True), (PROXY, False)], ids=["not trusted", "not allowed"])
def test_another_caller_does_not_choose_the_trace(settings: Settings, proxies: Any, allowed: bool) -> None:
    settings.TRUSTED_PROXIES = proxies
    with recorded(requests=1.0, from_proxies=allowed) as spans:
        exchange(Access(answering(OK, BODY)), requested("/", traceparent=HEADER))
    assert [(span.context.trace_id == TRACE, span.parent) for span in spans] == [(False, "")]


@pytest.mark.invariant("No request of an agent joins a trace that its header names.")
def test_an_agent_does_not_choose_the_trace_of_its_request(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = PROXY
    with recorded(requests=1.0, from_proxies=True) as spans:
        path = "/ingest/v1/attempts/a/metrics"
        exchange(Access(answering(OK, BODY)), requested(path, "POST", traceparent=HEADER))
    assert [(span.context.trace_id == TRACE, span.parent) for span in spans] == [(False, "")]
