"""All synchronous work of a request is one turn of a thread, and its connections are returned before the response."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.signals import request_finished, request_started
from django.db import connection
from django.db.backends.signals import connection_created
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from pytest_django import Settings

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


def plain(request: HttpRequest) -> HttpResponse:
    TRACE.note("view")
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


urlpatterns = [path("plain", plain), path("endless", endless)]


@pytest.fixture(autouse=True)
def _traced(settings: Settings) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    TRACE.steps.clear()
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


def request(url: str, *, pieces: int = 1, times: int = 1) -> None:
    scope = {
        "type": "http",
        "method": "GET",
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
            await asyncio.wait_for(handler(dict(scope), client.receive, client.send), 30)

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


def test_a_streamed_response_ends_when_its_client_disconnects() -> None:
    request("/endless", pieces=3)
    assert {"closed", "finished"} <= set(TRACE.order)
