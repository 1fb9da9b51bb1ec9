"""The middleware around every request: request id, metrics and access lines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from pytest_django import Settings

from portal.asgi import application
from portal.common.monitoring import metrics
from portal.common.trusted_proxies import network
from portal.http.access import Access, status_class

Message = dict[str, Any]


class Clock:
    """Advances a second at each reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def requested(path: str, method: str = "GET", **headers: str) -> Message:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"token=secret",
        "headers": [(b"host", b"localhost"), *pairs],
        "client": ("192.0.2.7", 1234),
        "server": ("127.0.0.1", 8000),
        "scheme": "http",
    }


def exchange(app: Any, scope: Message) -> list[Message]:
    """Send a request without a body and return the messages of the response."""

    async def run() -> list[Message]:
        sent: list[Message] = []
        received = asyncio.Queue[Message]()
        received.put_nowait({"type": "http.request", "body": b"", "more_body": False})

        async def send(message: Message) -> None:
            sent.append(message)

        await app(scope, received.get, send)
        return sent

    return asyncio.run(asyncio.wait_for(run(), 100))


def answering(*messages: Message) -> Callable[[Any, Any, Any], Awaitable[None]]:
    """Return an application that sends these messages."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    return app


OK: Message = {"type": "http.response.start", "status": 200, "headers": []}
BODY: Message = {"type": "http.response.body", "body": b"x"}


def count(route: str, method: str, status: str) -> float:
    return float(metrics.REQUESTS.labels(route, method, status)._value.get())


def header(messages: list[Message], name: bytes) -> bytes:
    return dict(messages[0]["headers"])[name] if messages else b""


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "portal.access")
    return caplog


@pytest.mark.parametrize(("status", "name"), [(200, "2xx"), (101, "1xx"), (404, "4xx"), (503, "5xx"), (0, "aborted")])
def test_statuses_are_counted_by_class(status: int, name: str) -> None:
    assert status_class(status) == name


@pytest.mark.django_db(transaction=True)
def test_a_request_is_counted_under_the_name_of_its_route() -> None:
    before = count("healthz", "GET", "2xx")
    exchange(application, requested("/healthz"))
    assert count("healthz", "GET", "2xx") == before + 1


@pytest.mark.invariant("No label of a metric names a user, a namespace, a job, an address or a path.")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("path", "route"), [("/ada-lovelace", "other"), ("/static/nowhere.css", "static"), ("/api/v1/jobs/x/y", "other")]
)
def test_a_path_without_a_route_adds_no_label(path: str, route: str) -> None:
    before = count(route, "GET", "4xx")
    exchange(application, requested(path))
    assert count(route, "GET", "4xx") == before + 1


def test_an_invented_method_adds_no_label() -> None:
    before = count("other", "other", "2xx")
    exchange(Access(answering(OK, BODY)), requested("/", "BREW"))
    assert count("other", "other", "2xx") == before + 1


def test_a_streamed_response_lasts_until_its_end() -> None:
    sums = metrics.REQUEST_SECONDS.labels("other", "GET")._sum
    before = sums.get()
    more = {**BODY, "more_body": True}
    exchange(Access(answering(OK, more, more, BODY), clock=Clock()), requested("/"))
    assert sums.get() == before + 1.0


def test_a_request_that_ends_in_an_error_is_counted_and_leaves_nothing_open() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("broken")

    before, opened = count("other", "GET", "aborted"), metrics.REQUESTS_IN_PROGRESS._value.get()
    with pytest.raises(RuntimeError, match="broken"):
        exchange(Access(failing), requested("/"))
    assert count("other", "GET", "aborted") == before + 1
    assert metrics.REQUESTS_IN_PROGRESS._value.get() == opened


@pytest.mark.django_db(transaction=True)
def test_a_refused_request_is_counted_by_the_code_of_its_problem() -> None:
    reason = metrics.REFUSED_REQUESTS.labels("not_signed_in")
    before = reason._value.get()
    exchange(application, requested("/api/v1/me"))
    assert reason._value.get() == before + 1


@pytest.mark.django_db(transaction=True)
def test_the_problem_document_and_the_header_have_the_request_s_id() -> None:
    messages = exchange(application, requested("/api/v1/me"))
    number = header(messages, b"X-Request-ID") or header(messages, b"x-request-id")
    assert number.isalnum()
    assert b'"request_id":"%b"' % number in b"".join(m.get("body", b"") for m in messages).replace(b'": "', b'":"')


def test_a_response_that_django_does_not_make_has_the_id_too() -> None:
    late: Message = {"type": "http.response.start", "status": 408, "headers": []}
    assert header(exchange(Access(answering(late, BODY)), requested("/")), b"x-request-id")


def test_a_trusted_proxy_chooses_the_id(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = (network("192.0.2.0/24"),)
    messages = exchange(Access(answering(OK, BODY)), requested("/", x_request_id="abc-1"))
    assert header(messages, b"x-request-id") == b"abc-1"


@pytest.mark.invariant("Only a trusted proxy chooses the id of a request.")
def test_another_caller_does_not_choose_the_id() -> None:
    messages = exchange(Access(answering(OK, BODY)), requested("/", x_request_id="abc-1"))
    assert header(messages, b"x-request-id") != b"abc-1"


@pytest.mark.django_db(transaction=True)
def test_an_access_line_names_the_route_and_neither_path_nor_query(lines: pytest.LogCaptureFixture) -> None:
    exchange(application, requested("/ada-lovelace"))
    (line,) = [record for record in lines.records if record.name == "portal.access"]
    assert line.levelno == logging.INFO
    assert (line.__dict__["status"], line.getMessage().rpartition(" in ")[0]) == (404, "GET other 404")
    assert "secret" not in line.getMessage()


@pytest.mark.django_db(transaction=True)
def test_probes_are_logged_at_debug(lines: pytest.LogCaptureFixture) -> None:
    exchange(application, requested("/healthz"))
    assert [r.levelno for r in lines.records if r.name == "portal.access"] == [logging.DEBUG]


@pytest.mark.django_db(transaction=True)
def test_an_open_websocket_is_counted_until_it_is_closed() -> None:
    closes = metrics.WEBSOCKET_CLOSES.labels("4404")
    before, opened = closes._value.get(), metrics.WEBSOCKETS_OPEN._value.get()

    async def run() -> None:
        scope = {**requested("/ws/nowhere"), "type": "websocket", "subprotocols": []}
        socket = ApplicationCommunicator(application, scope)
        await socket.send_input({"type": "websocket.connect"})
        assert (await socket.receive_output(20))["type"] == "websocket.accept"
        assert metrics.WEBSOCKETS_OPEN._value.get() == opened + 1
        assert (await socket.receive_output(20))["code"] == 4404
        await socket.send_input({"type": "websocket.disconnect", "code": 1005})
        await socket.wait(60)

    asyncio.run(run())
    assert closes._value.get() == before + 1
    assert metrics.WEBSOCKETS_OPEN._value.get() == opened


def test_a_lifespan_passes_through_unseen() -> None:
    async def run() -> Message:
        communicator = ApplicationCommunicator(
            Access(answering({"type": "lifespan.startup.complete"})), {"type": "lifespan"}
        )
        return dict(await communicator.receive_output(20))

    assert asyncio.run(run()) == {"type": "lifespan.startup.complete"}
