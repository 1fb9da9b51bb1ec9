"""Only the portal's own problem documents and acknowledgements count as its answers, and no proxy's."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from runtime.agent.delivery.ingest_client import (
    Failed,
    Gap,
    Ingest,
    Missing,
    Persistence,
    Refused,
    Replaced,
    Taken,
    headers_of,
    meaning,
)
from tests.runtime.agent.ingest_server import IngestServer, problem

PAGE = b"<html><title>default backend</title>404</html>"
ODD_TYPE = {"code": "stale_attempt", "type": "about:blank"}


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


@pytest.mark.invariant(
    "A proxy's answer ends no process, loses no log line and never counts as an answer of the portal."
)
@pytest.mark.parametrize("status", [*range(300, 309), *range(400, 432), 451, *range(500, 512)])
@pytest.mark.parametrize(
    "content", [PAGE, b"", b"{}", b"[]", b"null", encoded({"code": "not_found"}), encoded(ODD_TYPE)], ids=range(7)
)
def test_no_status_of_a_proxy_means_anything_but_try_again(status: int, content: bytes) -> None:
    assert isinstance(meaning(status, content), Failed)


@pytest.mark.parametrize("content", [PAGE, b"", b"[1]", b'"ok"', b'{"last": 1', b"[" * 100_000], ids=range(6))
def test_a_page_with_status_200_is_no_acknowledgement(content: bytes) -> None:
    assert isinstance(meaning(200, content), Failed)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "not_found", Missing),
        (409, "stale_attempt", Replaced),
        (409, "conflict", Refused),
        (413, "too_large", Refused),
        (422, "validation_failed", Refused),
        (429, "throttled", Failed),
        (401, "not_signed_in", Failed),
        (500, "server_error", Failed),
        (404, "stale_attempt", Failed),
        (409, "not_found", Refused),
    ],
)
def test_the_portal_s_own_problems_are_answered_by_their_code(status: int, code: str, kind: type) -> None:
    assert isinstance(meaning(status, encoded(problem(code, "why"))), kind)


def test_the_portal_s_acknowledgement_is_taken() -> None:
    assert meaning(200, b'{"last": 7}') == Taken({"last": 7})
    assert meaning(201, b"{}") == Taken({})


@pytest.mark.parametrize(
    ("traceparent", "headers"),
    [
        ("", {"Authorization": "Bearer t"}),
        ("00-a-b-01", {"Authorization": "Bearer t", "traceparent": "00-a-b-01"}),
    ],
)
def test_requests_name_the_trace_of_the_attempt_if_it_has_one(traceparent: str, headers: dict[str, str]) -> None:
    assert headers_of("t", traceparent) == headers


@pytest.mark.parametrize("last", [None, "7", -1, 1.5, True, []])
def test_a_gap_without_a_number_is_tried_again(last: Any) -> None:
    assert isinstance(meaning(409, encoded({**problem("gap", "why"), "last": last})), Failed)
    assert meaning(409, encoded({**problem("gap", "why"), "last": 7})) == Gap(7)


def test_a_reason_of_any_length_is_cut() -> None:
    answer = meaning(500, encoded({"detail": "x" * 100_000}))
    assert isinstance(answer, Failed)
    assert len(answer.why) <= 500


def test_an_answer_persists_only_if_no_other_answer_comes_in_between() -> None:
    now = [0.0]
    persistence = Persistence(60.0, lambda: now[0])
    assert not persistence.persists()
    now[0] = 59.9
    assert not persistence.persists()
    persistence.reset()
    now[0] = 61.0
    assert not persistence.persists()
    now[0] = 121.0
    assert persistence.persists()


def test_an_answer_of_any_length_is_not_read_to_its_end_nor_into_the_next() -> None:
    portal = IngestServer()
    portal.proxy = (502, "x" * 3_000_000)
    ingest = Ingest(portal.url, "attempt", "token")
    assert isinstance(ingest.post_json("heartbeat", b"{}"), Failed)
    portal.proxy = None
    assert ingest.post_json("heartbeat", b"{}") == Taken({})
    ingest.close()
    portal.close()


@pytest.mark.parametrize("error", [http.client.BadStatusLine("x"), OSError("reset"), ValueError("no host")])
def test_a_broken_call_is_retried(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(connection: http.client.HTTPConnection) -> None:
        raise error

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    assert isinstance(Ingest("http://portal.test", "attempt", "token").post_json("report", b"{}"), Failed)
