"""All synchronous work of a request is one turn of a thread, and its connections are returned before the response."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.signals import request_finished, request_started
from django.db import connection, connections
from django.db.backends.signals import connection_created
from django.http import FileResponse, HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from pytest_django import Settings

from portal.common import request_load
from portal.http import body_limits, request_threads
from portal.http.handler import Handler

pytestmark = pytest.mark.django_db(transaction=True)


class Trace:
    """What happened, in order, and the thread in which it did."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []

    def note(self, what: str, **_: Any) -> None:
        self.steps.append((what, threading.current_thread().name))

    @property
    def order(self) -> list[str]:
        return [what for what, _ in self.steps]

    def threads(self, *steps: str) -> set[str]:
        return {thread for what, thread in self.steps if what in steps}


TRACE = Trace()
USED: list[Any] = []  # connections of views


def plain(request: HttpRequest) -> HttpResponse:
    TRACE.note("view")
    USED.append(connections["default"])
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return HttpResponse("done")


def endless(request: HttpRequest) -> StreamingHttpResponse:
    async def pieces() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"piece"
                await asyncio.sleep(0)
        finally:
            TRACE.note("closed")

    return StreamingHttpResponse(pieces())


def queries(request: HttpRequest) -> StreamingHttpResponse:
    USED.append(connections["default"])
    connection.close()  # that of an earlier request
    connection.ensure_connection()
    return StreamingHttpResponse([b"piece"])


def file(request: HttpRequest) -> FileResponse:
    return FileResponse(io.BytesIO(bytes(3 * Handler.chunk_size)))


@csrf_exempt
def counts(request: HttpRequest) -> HttpResponse:
    TRACE.note(f"{request_load.OF_PROCESS._in_progress} in progress")
    return HttpResponse()


UPLOAD = "ingest/v1/attempts/1/artifacts"
BATCH = "ingest/v1/attempts/1/logs"
urlpatterns = [path("plain", plain), path("endless", endless), path("queries", queries), path("file", file)]
urlpatterns += [path(UPLOAD, counts), path(BATCH, counts)]


@pytest.fixture(autouse=True)
def _traced(settings: Settings) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    TRACE.steps.clear()
    USED.clear()
    receivers = {
        request_started: lambda **_: TRACE.note("started"),
        request_finished: lambda **_: TRACE.note("finished"),
        connection_created: lambda **_: TRACE.note("connected"),
    }
    for signal, receiver in receivers.items():
        signal.connect(receiver)
    yield
    for signal, receiver in receivers.items():
        signal.disconnect(receiver)


class Client:
    """A client that disconnects after ``pieces`` pieces of the body of a response, or after its end."""

    def __init__(self, pieces: int) -> None:
        self._left = pieces
        self._sent = False
        self._leaves = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._sent:
            await self._leaves.wait()
            return {"type": "http.disconnect"}
        self._sent = True
        return {"type": "http.request"}

    async def send(self, message: Any) -> None:
        TRACE.note(message["type"])
        if message["type"] == "http.response.body":
            self._left -= 1
            if not self._left or not message.get("more_body"):
                self._leaves.set()
        await asyncio.sleep(0)


def request(url: str, *, method: str = "GET", pieces: int = 1, times: int = 1) -> None:
    scope = {
        "type": "http",
        "method": method,
        "path": url,
        "query_string": b"",
        "headers": [(b"host", b"testserver")],
        "client": ("192.0.2.1", 1),
        "server": ("testserver", 80),
    }

    async def scenario() -> None:
        handler = Handler()
        for _ in range(times):
            client = Client(pieces)
            await asyncio.wait_for(handler(dict(scope), client.receive, client.send), 100)

    async_to_sync(scenario)()


def test_signals_middleware_and_view_of_a_request_share_a_thread() -> None:
    request("/plain")
    assert len(TRACE.threads("started", "view", "finished")) == 1
    assert TRACE.threads("view").isdisjoint(TRACE.threads("http.response.start"))


@pytest.mark.invariant("A client that reads slowly holds no connection to the database.")
def test_a_request_is_finished_before_its_response_is_sent() -> None:
    request("/plain")
    assert TRACE.order.index("finished") < TRACE.order.index("http.response.start")


def test_a_thread_opens_one_connection_to_sqlite_for_all_of_its_requests() -> None:
    request("/plain", times=20)
    assert TRACE.order.count("view") == 20
    assert TRACE.order.count("connected") <= len(TRACE.threads("view"))


def test_threads_of_a_burst_keep_no_connection_to_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_threads, "_keeping", set())
    request("/plain")
    monkeypatch.setattr(request_threads, "KEEPING", 0)
    monkeypatch.setattr(request_threads, "_keeping", set())
    kept = [each.connection is not None for each in USED]
    request("/plain")
    assert (kept, USED[-1].connection) == ([True], None)


def test_a_streamed_response_ends_when_its_client_disconnects() -> None:
    request("/endless", pieces=3)
    assert {"closed", "finished"} <= set(TRACE.order)


def test_a_file_is_sent_in_large_pieces() -> None:
    request("/file", pieces=100)
    assert TRACE.order.count("http.response.body") == 3 + 1


@pytest.fixture
def _unpooled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections as to PostgreSQL without a pool: one for each request in progress."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    connection.close()


@pytest.mark.usefixtures("_unpooled")
def test_a_streamed_response_leaves_no_connection_in_the_thread_of_its_view() -> None:
    request("/queries", pieces=100)
    assert [each.connection for each in USED] == [None]


@pytest.mark.usefixtures("_unpooled")
def test_the_look_at_the_sender_of_a_large_body_leaves_no_connection_in_its_thread() -> None:
    assert not body_limits._is_known({"headers": [(b"authorization", b"Bearer unknown")]})
    assert connection.connection is None


@pytest.mark.parametrize(("url", "counted"), [(BATCH, 1), (UPLOAD, 0)])
def test_a_batch_counts_as_load_and_an_upload_that_waits_for_its_client_does_not(url: str, counted: int) -> None:
    request(f"/{url}", method="POST")
    assert f"{counted} in progress" in TRACE.order
