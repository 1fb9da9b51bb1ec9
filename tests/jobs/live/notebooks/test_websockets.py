"""The proxy's websockets, before a server that misbehaves."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from jobs.live.notebooks import relay
from jobs.models import Notebook
from portal.common.doorbell import ring
from rbac import services, tokens
from rbac.models import Membership, Role
from rbac.socket_revocation import account_topic
from tests.factories import LONG_AGO, make_token
from tests.jobs.live.notebooks.conftest import Web
from tests.personas import Personas, session_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]
KERNEL = "v1.kernel.websocket.jupyter.org"
CHANNELS = "api/kernels/1/channels"


@contextlib.contextmanager
def opened(web: Web, path: str, host: str, **given: str) -> Iterator[ClientConnection]:
    """Open a websocket with these headers."""
    link = socket.create_connection(("127.0.0.1", web.port), 20)
    headers = {name: value for name, value in given.items() if name != "Origin"}
    with connect(
        f"ws://{host}{web.base}{path}",
        sock=link,
        additional_headers=headers,
        origin=given.get("Origin"),  # type: ignore[arg-type]
        subprotocols=[KERNEL],  # type: ignore[list-item]
        max_size=None,
        proxy=None,
    ) as connection:
        yield connection


def of_browser(web: Web, people: Personas, path: str = CHANNELS) -> contextlib.AbstractContextManager[ClientConnection]:
    return opened(web, path, web.host, Cookie=web.cookie(people.developer), Origin=web.origin)


def close_of(connection: ClientConnection) -> int | None:
    """Return the code with which the connection is closed."""
    with pytest.raises(ConnectionClosed) as closed:
        connection.recv(timeout=20)
    return closed.value.rcvd.code if closed.value.rcvd else None


def test_messages_and_the_subprotocol_pass_unchanged(people: Personas, web: Web) -> None:
    Notebook.objects.update(last_used=LONG_AGO)
    with of_browser(web, people) as connection:
        assert connection.subprotocol == KERNEL
        for message in ("text é", b"\x00\xff", "", b"x" * 100_000):
            connection.send(message)
            assert connection.recv(timeout=20) == message
    (request,) = web.server.seen
    assert request.target == f"{web.base}{CHANNELS}"
    assert request.headers["x-regatta-person"] == "developer"
    assert not {"cookie", "origin", "authorization"} & set(request.headers)
    assert Notebook.objects.get().last_used > LONG_AGO


@pytest.mark.invariant("A page of another origin opens no websocket of a notebook.")
def test_only_the_notebooks_own_pages_and_tokens_open_a_websocket(people: Personas, web: Web) -> None:
    cookie, portal = web.cookie(people.developer), f"127.0.0.1:{web.port}"
    session = f"regatta-session={session_of(people.owner)}"
    refused: list[tuple[str, dict[str, str]]] = [
        (web.host, {"Cookie": cookie, "Origin": "http://evil.example"}),
        (web.host, {"Cookie": cookie, "Origin": web.portal}),
        (web.host, {"Cookie": cookie}),
        (web.host, {"Origin": web.origin}),
        (web.host, {"Origin": web.origin, "Authorization": f"token {make_token(people.owner)}"}),
        (portal, {"Origin": web.portal, "Cookie": session}),
        (portal, {"Authorization": f"token {make_token(people.viewer)}"}),
        (portal, {"Authorization": f"token {make_token(people.stranger)}"}),
        (portal, {"Authorization": f"token {make_token(people.owner, revoked=LONG_AGO)}"}),
        (portal, {"Authorization": f"token {make_token(people.disabled)}"}),
    ]
    for host, headers in refused:
        with pytest.raises(InvalidStatus) as answer, opened(web, CHANNELS, host, **headers):
            pass
        assert answer.value.response.status_code == 403, headers
    assert not web.server.seen
    with opened(web, CHANNELS, portal, Authorization=f"token {make_token(people.owner)}") as connection:
        connection.send("hello")
        assert connection.recv(timeout=20) == "hello"


@pytest.mark.invariant("A lost right to a notebook closes its websockets within 5 seconds.")
def test_a_lost_right_closes_the_websocket(people: Personas, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    assert relay.RECHECK_SECONDS <= 4
    named = {"namespace_name": "team", "username": people.developer.username}
    with of_browser(web, people) as connection:
        services.set_member(actor=people.owner, role=Role.VIEWER, **named)
        assert close_of(connection) == 4410
    services.set_member(actor=people.owner, role=Role.DEVELOPER, **named)
    monkeypatch.setattr(relay, "RECHECK_SECONDS", 0.1)
    with of_browser(web, people) as connection:
        Membership.objects.filter(user=people.developer).update(role=Role.VIEWER)
        assert close_of(connection) == 4410


def test_a_sign_out_and_a_revoked_token_close_the_websocket(people: Personas, web: Web) -> None:
    client = people.client("developer")
    cookie = web.cookie(people.developer, client.cookies["regatta-session"].value)
    with opened(web, CHANNELS, web.host, Cookie=cookie, Origin=web.origin) as connection:
        client.logout()
        ring(account_topic(people.developer.pk))
        assert close_of(connection) == 4401
    token, secret = tokens.create_token(actor=people.owner, name="editor")
    with opened(web, CHANNELS, f"127.0.0.1:{web.port}", Authorization=f"Bearer {secret}") as connection:
        tokens.revoke_token(actor=people.owner, token_id=str(token.pk))
        assert close_of(connection) == 4401


def test_what_the_server_sends_wrongly_ends_only_its_own_websocket(people: Personas, web: Web) -> None:
    codes = {"too_long": 4411, "not_text": 1002, "garbage": 1002, "closes": 4321}
    for path, code in codes.items():
        with of_browser(web, people, path) as connection:
            assert close_of(connection) == code, path
    with of_browser(web, people, "fragments") as connection:
        assert connection.recv(timeout=20) == "one two"


def test_a_websocket_that_the_server_refuses_is_refused(people: Personas, web: Web) -> None:
    with pytest.raises(InvalidStatus) as answer, of_browser(web, people, "refuses"):
        pass
    assert answer.value.response.status_code == 403
