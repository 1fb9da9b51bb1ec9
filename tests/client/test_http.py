from __future__ import annotations

import httpx
import pytest

from regatta.errors import Missing, NotSignedIn, PortalError, QuotaExceeded, Refused, ServerFailed, Unreachable
from regatta.http import LONGEST_WAIT, TRIES, Http
from tests.client.portal import SERVER, Answer, Clock, PaperPortal, ok, problem


def http(*answers: Answer) -> tuple[Http, PaperPortal, Clock]:
    clock, portal = Clock(), PaperPortal({"GET /x": list(answers), "POST /x": list(answers)})
    return Http(SERVER, "rgt_secret", transport=portal, sleep=clock.sleep), portal, clock


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code"),
    [
        (401, "not_signed_in", NotSignedIn, 3),
        (403, "forbidden", Refused, 1),
        (404, "not_found", Missing, 4),
        (409, "quota_exceeded", QuotaExceeded, 5),
        (409, "conflict", Refused, 1),
        (413, "too_large", Refused, 1),
        (422, "validation_failed", Refused, 1),
        (429, "throttled", ServerFailed, 6),
        (500, "", ServerFailed, 6),
        (503, "storage_failed", ServerFailed, 6),
        (507, "storage_full", ServerFailed, 6),
    ],
)
def test_every_answer_has_its_error_and_exit_code(status: int, code: str, kind: type, exit_code: int) -> None:
    client, _, _ = http(problem(status, code, "A message."))
    with pytest.raises(kind, match="A message") as caught:
        client.get("/x")
    assert (type(caught.value), caught.value.exit_code, caught.value.code) == (kind, exit_code, code)


def test_an_error_has_the_fields_of_the_refusal() -> None:
    client, _, _ = http(
        problem(422, "validation_failed", "no", errors={"roles.trainer.memory": ["12 potatoes is no size."]})
    )
    with pytest.raises(Refused) as caught:
        client.post("/x", {})
    assert caught.value.fields == {"roles.trainer.memory": ["12 potatoes is no size."]}


def test_the_token_goes_with_every_request() -> None:
    client, portal, _ = http(ok({}))
    client.get("/x")
    assert portal.asked[0].headers["Authorization"] == "Bearer rgt_secret"


@pytest.mark.parametrize("first", [problem(503, "", ""), problem(429, "", ""), httpx.ConnectError("refused")])
def test_a_temporary_failure_is_retried(first: Answer) -> None:
    client, portal, _ = http(first, ok({"a": 1}))
    assert client.get("/x") == {"a": 1}
    assert len(portal.asked) == 2


def test_retries_end_and_wait_longer_each_time() -> None:
    client, portal, clock = http(httpx.ReadError("cut"))
    with pytest.raises(Unreachable, match="cannot be reached: cut"):
        client.get("/x")
    assert len(portal.asked) == TRIES
    assert clock.slept == sorted(set(clock.slept))


@pytest.mark.parametrize(
    ("retry_after", "waited"),
    [("7", 7.0), ("0", 0.0), ("86400", LONGEST_WAIT), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("soon", 0.25)],
)
def test_retry_after_is_followed_up_to_a_limit(retry_after: str, waited: float) -> None:
    busy = httpx.Response(429, headers={"Retry-After": retry_after})
    client, _, clock = http(busy, ok({}))
    client.get("/x")
    assert clock.slept == [waited]


def test_a_refusal_is_not_retried() -> None:
    client, portal, _ = http(problem(422, "validation_failed", "no"))
    with pytest.raises(Refused):
        client.get("/x")
    assert len(portal.asked) == 1


def test_a_response_that_is_not_json_is_not_the_portals() -> None:
    client, _, _ = http(httpx.Response(200, text="<html>Welcome to nginx"))
    with pytest.raises(Unreachable, match="is not a Regatta portal"):
        client.get("/x")


def test_an_error_page_of_a_proxy_is_reported_by_its_status() -> None:
    client, _, _ = http(httpx.Response(502, text="<html>Bad Gateway"))
    with pytest.raises(ServerFailed, match="502 Bad Gateway"):
        client.get("/x")


@pytest.mark.parametrize("address", ["portal.test", "http://", "http://[", "ftp://portal.test"])
def test_a_bad_address_is_an_error(address: str) -> None:
    with pytest.raises(PortalError, match="portal"):
        Http(address, sleep=Clock().sleep).get("/x")


PAGE = httpx.Response(404, html="<html>default backend - 404</html>")


def test_a_request_to_a_proxy_without_a_route_is_repeated() -> None:
    client, portal, _ = http(PAGE, ok({"a": 1}))
    assert client.get("/x") == {"a": 1}
    assert len(portal.asked) == 2


@pytest.mark.invariant("A proxy's answer never counts as an answer of the portal.")
def test_a_proxy_s_404_does_not_mean_that_there_is_no_such_thing() -> None:
    client, _, _ = http(PAGE)
    with pytest.raises(Unreachable, match="Status 404 did not come from the portal") as caught:
        client.get("/x")
    assert caught.value.exit_code == 6


@pytest.mark.invariant("A proxy's answer never counts as an answer of the portal.")
def test_a_page_in_answer_to_a_deletion_does_not_mean_that_it_was_done() -> None:
    portal = PaperPortal({"DELETE /x": [httpx.Response(200, html="<html>sign in</html>")]})
    with pytest.raises(Unreachable, match="is not a Regatta portal"):
        Http(SERVER, transport=portal, sleep=Clock().sleep).delete("/x")


SIGN_IN = httpx.Response(302, headers={"Location": "https://sso.example.org/"}, html="<html>sign in</html>")
ELSEWHERE = httpx.Response(302, headers={"Location": "https://sso.example.org/"}, json={})


@pytest.mark.parametrize("answer", [SIGN_IN, ELSEWHERE], ids=["page", "JSON"])
def test_a_redirection_to_a_sign_in_page_is_no_success(answer: httpx.Response) -> None:
    portal = PaperPortal({"DELETE /x": [answer], "GET /x": [answer, answer]})
    client = Http(SERVER, transport=portal, sleep=Clock().sleep)
    with pytest.raises(Unreachable, match="is not a Regatta portal"):
        client.delete("/x")
    with pytest.raises(Unreachable, match="is not a Regatta portal"):
        client.get("/x")
    with pytest.raises(Unreachable, match="is not a Regatta portal"), client.stream("/x"):
        pass


def test_json_of_another_server_is_not_the_portals() -> None:
    client, _, _ = http(ok({"status": "ok"}))
    with pytest.raises(Unreachable, match="it has no 'results'"):
        client.get("/x")["results"]


@pytest.mark.parametrize("status", [401, 403, 407])
def test_a_page_that_refuses_access_is_not_the_portal_s_refusal(status: int) -> None:
    client, _, _ = http(httpx.Response(status, html="<html>proxy</html>"))
    with pytest.raises(Unreachable, match=f"Status {status} did not come from the portal"):
        client.get("/x")
