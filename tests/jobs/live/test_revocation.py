"""Websocket: a socket is closed when its caller loses the right to it."""

from __future__ import annotations

from functools import partial

import pytest

from jobs.live import consumers
from portal.common.doorbell import ring
from rbac import tokens
from rbac.models import Membership, Role, User
from rbac.socket_revocation import account_topic
from tests.jobs.live.frames import do
from tests.jobs.sockets import Headers, Socket, bearer, connected, headers_of, play
from tests.jobs.streams.conftest import Writer
from tests.personas import Personas

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_user_who_leaves_the_namespace_loses_the_stream(people: Personas, writer: Writer, browser: Headers) -> None:
    def leave() -> None:
        Membership.objects.filter(user=people.viewer).delete()
        ring(account_topic(people.viewer.pk))

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", id="s1", stream="logs", job=writer.job.pk)
            await socket.ask(op="ping")
            await socket.frame()
            await do(leave)
            error = await socket.frame()
            assert (error["id"], error["code"]) == ("s1", "not_found")
            await do(writer.lines, 1, 1)
            assert await socket.silent()

    play(scenario)


async def ready(socket: Socket) -> None:
    """Wait until the socket receives revocations of its account."""
    await socket.ask(op="ping")
    await socket.frame()


@pytest.mark.invariant("A revoked token closes its open websockets.")
def test_a_token_that_is_revoked_closes_its_socket(people: Personas) -> None:
    token, secret = tokens.create_token(actor=people.viewer, name="program")

    async def scenario() -> None:
        async with connected(bearer(secret)) as socket:
            await ready(socket)
            await do(partial(tokens.revoke_token, actor=people.viewer, token_id=str(token.pk)))
            assert await socket.closed() == 4401

    play(scenario)


def test_a_service_token_that_is_revoked_closes_its_socket(people: Personas) -> None:
    token, secret = tokens.create_service_token(
        actor=people.owner, namespace_name="team", name="nightly", role=Role.VIEWER
    )
    revoke = partial(tokens.revoke_service_token, actor=people.owner, namespace_name="team", token_id=str(token.pk))

    async def scenario() -> None:
        async with connected(bearer(secret)) as socket:
            await ready(socket)
            await do(revoke)
            assert await socket.closed() == 4401

    play(scenario)


def test_signing_out_everywhere_closes_sockets_of_other_browsers(people: Personas) -> None:
    there, here = headers_of(people.client("viewer")), people.client("viewer")

    async def scenario() -> None:
        async with connected(there) as socket:
            await ready(socket)
            await do(partial(here.post, "/sessions/end-all"))
            assert await socket.closed() == 4401

    play(scenario)


def test_signing_out_closes_the_socket(people: Personas) -> None:
    client = people.client("viewer")

    async def scenario() -> None:
        async with connected(headers_of(client)) as socket:
            await socket.ask(op="ping")
            await socket.frame()
            await do(client.logout)
            assert await socket.closed() == 4401

    play(scenario)


def test_an_account_that_was_shut_is_closed_at_the_next_check(
    people: Personas, browser: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers.StreamConsumer, "recheck_seconds", 0.05)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await do(lambda: User.objects.filter(pk=people.viewer.pk).update(is_active=False))
            assert await socket.closed() == 4401

    play(scenario)
