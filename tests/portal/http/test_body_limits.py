"""Body limits per caller, applied before a part of the body is stored."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from portal.http import body_limits
from portal.http.body_limits import ANONYMOUS_LIMIT
from portal.http.handler import Handler
from portal.http.request_streaming import is_streamed
from tests.factories import make_attempt, make_job, make_token, make_user
from tests.personas import session_of

pytestmark = pytest.mark.django_db(transaction=True)
NOBODY_S = uuid.UUID(int=7)  # an attempt that does not exist
PIECE = bytes(16 * 1024)
FAR_TOO_MUCH = 601 * 1024**2


class Sender:
    """Sends one request with ``pieces`` and waits for the answer; counts how much of its body was read."""

    def __init__(self, pieces: int, *, hangs: bool = False) -> None:
        self.left, self.read, self._hangs = pieces, 0, hangs
        self.status = 0
        self.body = b""
        self._answered = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._hangs:
            await asyncio.Event().wait()
        if self.left:
            self.left -= 1
            self.read += len(PIECE)
            return {"type": "http.request", "body": PIECE, "more_body": True}
        await self._answered.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._answered.set()


@pytest.fixture(autouse=True)
def spooled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes of each write to a temporary file."""
    written: list[int] = []
    write = tempfile.SpooledTemporaryFile.write
    monkeypatch.setattr(
        tempfile.SpooledTemporaryFile, "write", lambda file, data: written.append(len(data)) or write(file, data)
    )
    return written


def ask(path: str, length: int | None, *, method: str = "POST", pieces: int = 0, **headers: str) -> Sender:
    """Send a request; return the sender after the answer."""
    content_type = "application/x-www-form-urlencoded" if path == "/sign-in" else "application/json"
    named = {"host": "testserver", "content-type": content_type, **headers}
    named |= {"transfer-encoding": "chunked"} if length is None else {"content-length": str(length)}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        "client": ("192.0.2.1", 1),
        "server": ("testserver", 80),
    }

    async def scenario() -> Sender:
        sender = Sender(pieces)
        handler: Callable[..., Awaitable[None]] = Handler()
        await asyncio.wait_for(handler(scope, sender.receive, sender.send), 100)
        return sender

    return async_to_sync(scenario)()


@pytest.mark.invariant("A large body from an unauthorised client is not stored.")
@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/auth/token", 413),
        ("/api/v1/auth/exchange", 413),
        ("/sign-in", 403),
        ("/api/v1/tokens", 401),
        ("/nowhere", 404),
        ("/healthz", 403),
        (f"/ingest/v1/attempts/{NOBODY_S}/artifacts", 401),
        (f"/ingest/v1/attempts/{NOBODY_S}/logs", 401),
    ],
)
def test_of_a_stranger_s_large_body_nothing_is_stored(path: str, status: int, spooled: list[int]) -> None:
    sender = ask(path, FAR_TOO_MUCH)
    assert (sender.status, spooled) == (status, [])


def test_a_form_that_is_too_large_is_refused_on_a_page() -> None:
    sender = ask("/sign-in", FAR_TOO_MUCH, cookie=f"regatta-csrf={'a' * 32}")
    assert sender.status == 413
    assert b"exceeds the size limit" in sender.body


def test_the_error_suggests_a_remedy() -> None:
    assert b"too_large" in ask("/api/v1/auth/token", ANONYMOUS_LIMIT + 1).body


@pytest.mark.parametrize("header", [{"cookie": "regatta-session=guessed"}, {"authorization": "Bearer rgt_guessed"}])
def test_made_up_credentials_are_none(header: dict[str, str], spooled: list[int]) -> None:
    assert ask("/api/v1/auth/token", ANONYMOUS_LIMIT + 1, **header).status == 413
    assert spooled == []


def test_without_a_length_the_received_bytes_are_counted(spooled: list[int]) -> None:
    sender = ask("/sign-in", None, pieces=100, cookie=f"regatta-csrf={'a' * 32}")
    assert sender.status == 413
    assert sum(spooled) <= ANONYMOUS_LIMIT


def test_a_signed_in_account_may_send_more() -> None:
    user = make_user()
    length = ANONYMOUS_LIMIT + len(PIECE)
    for header in (
        {"authorization": f"Bearer {make_token(user)}"},
        {"cookie": f"regatta-session={session_of(user)}"},
    ):
        limit = async_to_sync(body_limits._limit_of)(
            {"headers": [(name.encode(), value.encode()) for name, value in header.items()]}, length
        )
        assert limit > length


def test_the_token_of_an_attempt_is_looked_at_before_its_file_is_read(spooled: list[int]) -> None:
    attempt = make_attempt(make_job(attempt=1), token="right")
    path = f"/ingest/v1/attempts/{attempt.pk}/artifacts"
    assert ask(path, FAR_TOO_MUCH, authorization="Bearer wrong").status == 401
    assert spooled == []


@pytest.mark.parametrize(
    ("method", "path", "length", "expected"),
    [
        ("POST", "/ingest/v1/attempts/1/artifacts", 10, True),
        ("POST", "/ingest/v1/attempts/1/logs", 10, False),
        ("POST", "/ingest/v1/attempts/1/logs", ANONYMOUS_LIMIT + 1, True),
        ("POST", "/api/v1/namespaces", ANONYMOUS_LIMIT + 1, False),
    ],
)
def test_bodies_of_agents_are_read_after_their_token(method: str, path: str, length: int, expected: bool) -> None:
    headers = [(b"content-length", str(length).encode())]
    assert is_streamed({"method": method, "path": path, "headers": headers}) is expected


def test_a_body_that_arrives_too_late_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "BODY_SECONDS", -ANONYMOUS_LIMIT / body_limits.SLOWEST_BYTES)
    scope = {"type": "http", "method": "POST", "path": "/sign-in", "headers": [(b"content-length", b"9")]}

    async def scenario() -> int:
        sender = Sender(0, hangs=True)
        await asyncio.wait_for(Handler()(scope, sender.receive, sender.send), 100)
        return sender.status

    assert async_to_sync(scenario)() == 408
