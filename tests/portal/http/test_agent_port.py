"""A port of its own for agents: what each port serves, and which headers count there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from pytest_django import Settings

from portal.common.trusted_proxies import network
from portal.http.agent_port import separated
from portal.http.handler import Handler
from rbac.models import AuditEntry
from runtime.agent.delivery import ingest_client as agent

PEOPLE, AGENTS = 8000, 8001
INGEST = "/ingest/v1/attempts/00000000-0000-4000-8000-000000000000/logs"
PEER = "10.244.1.7"
SPOOFED = ((b"x-forwarded-for", b"203.0.113.9"), (b"X-Forwarded-Proto", b"https"), (b"forwarded", b"for=203.0.113.9"))


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer with the names of the headers that arrived."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        return
    body = json.dumps([name.decode() for name, _ in scope["headers"]]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def scope_of(port: int, path: str, kind: str = "http", **more: Any) -> dict[str, Any]:
    """Return what uvicorn passes on for a request that arrived on that port."""
    return {
        "type": kind,
        "http_version": "1.1",
        "scheme": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), *SPOOFED],
        "server": ("10.244.1.2", port),
        "client": (PEER, 1),
        **more,
    }


def request(port: int, path: str, *, agent_port: int = AGENTS, application: Any = echo, **more: Any) -> tuple[int, Any]:
    """Return status and JSON of the answer."""

    async def play() -> tuple[int, Any]:
        scope = scope_of(port, path, **more)
        link = ApplicationCommunicator(separated(application, agent_port), scope)
        await link.send_input({"type": "http.request", "body": b""})
        start = await link.receive_output(timeout=10)
        body = await link.receive_output(timeout=10)
        return start["status"], json.loads(body.get("body") or b"null")

    return asyncio.run(play())


@pytest.mark.invariant("With a port for agents, that port serves /ingest/ alone, and the other does not.")
@pytest.mark.parametrize(
    ("port", "path", "status"),
    [
        (AGENTS, INGEST, 200),
        (AGENTS, "/", 404),
        (AGENTS, "/sign-in", 404),
        (AGENTS, "/api/v1/me", 404),
        (AGENTS, "/ingestion", 404),
        (AGENTS, "/healthz", 404),
        (PEOPLE, INGEST, 404),
        (PEOPLE, "/sign-in", 200),
        (PEOPLE, "/api/v1/me", 200),
    ],
)
def test_each_port_serves_its_own_addresses(port: int, path: str, status: int) -> None:
    assert request(port, path)[0] == status


@pytest.mark.parametrize("path", ["/sign-in", INGEST])
def test_without_a_port_for_agents_one_port_serves_everything(path: str) -> None:
    assert request(PEOPLE, path, agent_port=0)[0] == 200


def test_an_agent_at_the_wrong_port_does_not_take_its_attempt_for_over() -> None:
    status, body = request(PEOPLE, INGEST)
    assert isinstance(agent.meaning(status, json.dumps(body).encode()), agent.Failed)


@pytest.mark.parametrize(("port", "accepted"), [(PEOPLE, True), (AGENTS, False)])
def test_only_people_open_websockets(port: int, accepted: bool) -> None:
    async def play() -> str:
        link = ApplicationCommunicator(separated(echo, AGENTS), scope_of(port, "/ws/v1/stream", "websocket"))
        await link.send_input({"type": "websocket.connect"})
        return str((await link.receive_output(timeout=10))["type"])

    assert asyncio.run(play()) == ("websocket.accept" if accepted else "websocket.close")


def test_headers_of_proxies_are_removed_on_the_agents_port() -> None:
    assert request(AGENTS, INGEST)[1] == ["host"]


def test_they_are_left_to_the_trusted_proxies_on_the_other() -> None:
    assert len(request(PEOPLE, "/sign-in")[1]) == 1 + len(SPOOFED)


# --- The portal behind it --------------------------------------------------------------------------------------------
@pytest.mark.django_db(transaction=True)
@pytest.mark.invariant("Nobody signs in, or claims another address, on the agents' port.")
def test_a_wrong_password_on_the_agents_port_is_counted_for_nobody(settings: Settings) -> None:
    settings.TRUSTED_PROXIES = (network("10.0.0.0/8"),)
    assert request(AGENTS, "/sign-in", application=Handler(), method="POST")[0] == 404
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_https_is_not_asked_of_agents(settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert request(AGENTS, INGEST, application=Handler())[0] == 405  # the view's own: it takes POST alone
