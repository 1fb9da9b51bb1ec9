"""Websocket: admission, authorisation, and that reconnects neither lose nor repeat entries."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from django.db import OperationalError, connection

from jobs.lifecycle import wording
from jobs.lifecycle.states import JobState
from jobs.live import consumers
from jobs.live.authentication import Credentials
from jobs.messages import jobs as messages
from jobs.models import Job
from jobs.models.streams import Block
from jobs.selectors import jobs as job_selectors
from jobs.streams import store, tailer
from portal.common.doorbell import ring
from rbac import tokens
from rbac.models import Membership, Role, User
from rbac.socket_revocation import account_topic
from tests.factories import make_attempt, make_job, make_token
from tests.jobs.sockets import HOST, Frame, Headers, Socket, bearer, connected, headers_of, play
from tests.jobs.streams.conftest import Writer
from tests.personas import Personas, make_personas

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def people(transactional_db: None) -> Personas:
    return make_personas()


@pytest.fixture
def writer(people: Personas) -> Writer:
    return Writer(make_attempt(make_job(people.namespace, people.owner, attempt=1, state=JobState.RUNNING)))


@pytest.fixture
def browser(people: Personas) -> Headers:
    """Return the headers with which a page of the viewer opens a socket."""
    return headers_of(people.client("viewer"))


def do(function: Callable[..., Any], *given: Any) -> Awaitable[Any]:
    """Run a function that uses the database while the loop runs."""
    return tailer.in_thread(function, *given)


def seqs(frame: Frame) -> list[int]:
    return [entry["seq"] for entry in frame.get("lines", frame.get("points", []))]


async def collect(socket: Socket, upto: int) -> list[int]:
    found: list[int] = []
    while not found or found[-1] < upto:
        found += seqs(await socket.frame())
    return found


# --- Admission -------------------------------------------------------------------------------------------------------
def expect_close(headers: Headers, code: int) -> None:
    async def scenario() -> None:
        async with connected(headers) as socket:
            assert await socket.closed() == code

    play(scenario)


def test_a_socket_without_credentials_is_closed_with_4401(people: Personas) -> None:
    expect_close(headers_of(people.client("nobody")), 4401)


def test_a_bad_token_is_closed_with_4401(people: Personas) -> None:
    expect_close([(b"host", HOST), (b"authorization", b"Bearer rgt_wrong")], 4401)


@pytest.mark.parametrize("origin", [b"http://evil.example", b"http://127.0.0.1:9999", b"null", b""])
def test_a_page_of_another_origin_is_closed_with_4403(people: Personas, origin: bytes) -> None:
    expect_close(headers_of(people.client("owner"), origin), 4403)


def test_a_host_that_is_not_ours_is_closed_with_4403(people: Personas) -> None:
    cookies = headers_of(people.client("owner"))[2:]
    expect_close([(b"host", b"evil.example"), (b"origin", b"http://evil.example"), *cookies], 4403)


def test_a_program_gets_in_with_a_token_and_without_an_origin(people: Personas) -> None:
    headers = bearer(make_token(people.viewer))

    async def scenario() -> None:
        async with connected(headers) as socket:
            await socket.ask(op="ping")
            assert (await socket.frame())["t"] == "pong"

    play(scenario)


def test_one_socket_too_many_is_closed_with_4429(browser: Headers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "SOCKETS_PER_USER", 1)

    async def scenario() -> None:
        async with connected(browser) as first:
            # The handshake is accepted before the caller is admitted: only an answer proves that the socket is counted.
            await first.ask(op="ping")
            assert (await first.frame())["t"] == "pong"
            async with connected(browser) as second:
                assert await second.closed() == 4429
        async with connected(browser) as third:
            await third.ask(op="ping")
            assert (await third.frame())["t"] == "pong"

    play(scenario)


# --- Authorisation ---------------------------------------------------------------------------------------------------
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
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0.05)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await do(lambda: User.objects.filter(pk=people.viewer.pk).update(is_active=False))
            assert await socket.closed() == 4401

    play(scenario)


# --- Lines and points ------------------------------------------------------------------------------------------------
def test_stored_and_new_lines_arrive_in_order(writer: Writer, browser: Headers) -> None:
    writer.lines(1, 3)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk)
            assert await collect(socket, 3) == [1, 2, 3]
            await do(writer.lines, 4, 5)
            assert await collect(socket, 5) == [4, 5]

    play(scenario)


def test_a_frame_has_its_range_and_whole_lines(writer: Writer, browser: Headers) -> None:
    writer.lines(1, 2)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", id="s1", stream="logs", job=writer.job.pk, after=1)
            line = {"seq": 2, "time": 2.0, "replica": "trainer-0", "stream": "stdout", "text": "trainer-0 2"}
            frame = await socket.frame()
            assert frame == {"id": "s1", "t": "logs", "job": str(writer.job.pk), "lo": 2, "hi": 2, "lines": [line]}

    play(scenario)


def test_points_that_are_no_numbers_are_sent_as_words(writer: Writer, browser: Headers) -> None:
    writer.points(1, 1, values={1: float("nan")})

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="metrics", job=writer.job.pk)
            (point,) = (await socket.frame())["points"]
            assert (point["seq"], point["attempt"], point["key"], point["value"]) == (1, 1, "cost", "NaN")

    play(scenario)


def test_the_tail_begins_500_lines_before_the_end(writer: Writer, browser: Headers) -> None:
    writer.lines(1, 1200)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk, after=-1)
            assert await collect(socket, 1200) == list(range(701, 1201))

    play(scenario)


def test_a_filter_by_replica_leaves_the_others_out(writer: Writer, browser: Headers) -> None:
    writer.lines(1, 3)
    writer.other("master-0").lines(1, 2)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk, replica="master-0")
            assert seqs(await socket.frame()) == [4, 5]
            await do(writer.lines, 4, 4)
            await do(writer.other("master-0").lines, 3, 3)
            assert seqs(await socket.frame()) == [7]

    play(scenario)


def test_frames_stay_within_64_kib_and_500_lines(writer: Writer, browser: Headers) -> None:
    lines = [(0.0, "stdout", "表" * (number % 400)) for number in range(3000)]
    store.append_logs(job_id=writer.job.pk, attempt=writer.attempt, replica="trainer-0", first=1, lines=lines)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk)
            hi = 0
            while hi < 3000:
                frame = await socket.frame()
                assert frame["lo"] == hi + 1
                assert len(frame["lines"]) <= 500
                assert len(json.dumps(frame["lines"], ensure_ascii=False, separators=(",", ":")).encode()) <= 65_536
                hi = frame["hi"]

    play(scenario)


def test_lines_that_are_not_kept_any_more_are_a_gap(writer: Writer, browser: Headers) -> None:
    for number in (1, 2, 3):
        writer.lines(number, number)
    Block.objects.filter(lo=2).delete()

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk)
            assert seqs(await socket.frame()) == [1]
            gap = await socket.frame()
            assert (gap["t"], gap["from"], gap["to"], gap["archived"]) == ("gap", 2, 2, False)
            assert seqs(await socket.frame()) == [3]

    play(scenario)


@pytest.mark.parametrize("close_first", [True, False])
def test_the_end_comes_after_the_last_line(writer: Writer, browser: Headers, close_first: bool) -> None:
    def finish() -> None:
        Job.objects.filter(pk=writer.job.pk).update(state=JobState.SUCCEEDED)
        store.close(writer.job.pk)

    writer.lines(1, 2)
    if close_first:
        finish()

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk)
            assert await collect(socket, 2) == [1, 2]
            if not close_first:
                await do(finish)
            assert await socket.frame() == {
                "t": "end",
                "job": str(writer.job.pk),
                "stream": "logs",
                "hi": 2,
                "state": "SUCCEEDED",
            }

    play(scenario)


def test_after_unsub_nothing_comes(writer: Writer, browser: Headers) -> None:
    writer.lines(1, 1)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk)
            await socket.frame()
            await socket.ask(op="unsub", stream="logs", job=writer.job.pk)
            await socket.ask(op="ping")
            assert (await socket.frame())["t"] == "pong"
            await do(writer.lines, 2, 2)
            assert await socket.silent()

    play(scenario)


def test_a_heartbeat_carries_the_heads(writer: Writer, browser: Headers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "HEARTBEAT_SECONDS", 0.05)
    writer.lines(1, 7)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk, after=7)
            heads = {f"logs:{writer.job.pk}": 7}
            async with asyncio.timeout(10):
                while (await socket.frame())["heads"] != heads:
                    pass

    play(scenario)


# --- States ----------------------------------------------------------------------------------------------------------
def test_a_change_of_state_arrives_whole(writer: Writer, browser: Headers) -> None:
    def change() -> None:
        Job.objects.filter(pk=writer.job.pk).update(state=JobState.STOPPING, why="Asked to.")
        ring(f"status:{writer.job.pk}")

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="status", job=writer.job.pk)
            assert (await socket.frame())["job_state"]["state"] == "RUNNING"
            await do(change)
            state = (await socket.frame())["job_state"]
            assert (state["state"], state["why"], state["id"]) == ("STOPPING", "Asked to.", str(writer.job.pk))

    play(scenario)


def test_of_a_namespace_only_the_jobs_that_changed_are_sent_again(writer: Writer, browser: Headers) -> None:
    other = make_job(writer.job.namespace, writer.job.owner)

    def change() -> None:
        Job.objects.filter(pk=other.pk).update(state=JobState.ADMITTED)
        ring("status:ns:team")

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="jobs", namespace="team")
            assert len((await socket.frame())["jobs"]) == 2
            await do(change)
            assert [job["id"] for job in (await socket.frame())["jobs"]] == [str(other.pk)]

    play(scenario)


# --- Invalid requests ------------------------------------------------------------------------------------------------
NONSENSE = [
    "",
    "[]",
    "{",
    "7",
    "[" * 10_000,
    '{"op": "dance"}',
    '{"op": ["sub"]}',
    '{"op": "sub"}',
    '{"op": "sub", "stream": "cats"}',
    '{"op": "sub", "stream": ["logs"]}',
    '{"op": "sub", "stream": "logs"}',
    '{"op": "sub", "stream": "logs", "job": "no-id"}',
    '{"op": "sub", "stream": "logs", "job": {"a": 1}}',
    '{"op": "sub", "stream": "jobs", "namespace": 7}',
    '{"op": "sub", "stream": "logs", "job": "00000000-0000-0000-0000-000000000000", "after": "all"}',
    '{"op": "sub", "stream": "logs", "job": "00000000-0000-0000-0000-000000000000", "after": true}',
    '{"op": "sub", "stream": "logs", "job": "00000000-0000-0000-0000-000000000000", "replica": "x y"}',
    '{"op": "sub", "id": 5, "stream": "logs", "job": "00000000-0000-0000-0000-000000000000"}',
    '{"op": "unsub"}',
]


def test_each_invalid_request_is_answered_with_a_message_and_the_socket_stays_open(browser: Headers) -> None:
    async def scenario() -> None:
        async with connected(browser) as socket:
            for text in NONSENSE:
                await socket.send(text)
                error = await socket.frame()
                assert (error["t"], error["code"]) == ("error", "validation_failed"), text
                assert error["detail"].endswith("."), text

    play(scenario)


def test_a_cursor_beyond_the_head_is_refused_with_a_message(writer: Writer, browser: Headers) -> None:
    writer.lines(1, 3)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk, after=9)
            error = await socket.frame()
            assert error["code"] == "cursor_beyond_head"
            assert "3 entries" in error["detail"]

    play(scenario)


def test_one_subscription_too_many_is_refused(
    writer: Writer, browser: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "SUBSCRIPTIONS_PER_SOCKET", 1)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk)
            await socket.ask(op="sub", id="s2", stream="metrics", job=writer.job.pk)
            error = await socket.frame()
            assert (error["id"], error["code"]) == ("s2", "throttled")

    play(scenario)


# --- Reconnects ------------------------------------------------------------------------------------------------------
LINES = 600


def test_a_storm_of_reconnects_loses_and_doubles_nothing(writer: Writer, browser: Headers) -> None:
    """While lines arrive, three readers have their sockets cut at random times and continue from their cursors."""
    chance = random.Random(7)

    def print_lines() -> None:
        first = 1
        while first <= LINES:
            last = min(LINES, first + chance.randrange(12))
            writer.lines(first, last)
            first = last + 1
        store.close(writer.job.pk)
        connection.close()

    async def follow() -> list[int]:
        found: list[int] = []
        for turn in itertools.count():
            async with connected(browser) as socket:
                await socket.ask(op="sub", stream="logs", job=writer.job.pk, after=found[-1] if found else 0)
                # After twenty cuts the reader stays.
                for _ in range(chance.randrange(4) if turn < 20 else 10_000):
                    frame = await socket.frame()
                    if frame["t"] == "end":
                        return found
                    found += seqs(frame)
        return found

    async def scenario() -> None:
        printer = threading.Thread(target=print_lines)
        printer.start()
        for found in await asyncio.gather(follow(), follow(), follow()):
            assert found == list(range(1, LINES + 1))
        printer.join()

    play(scenario)


def test_a_slow_reader_finds_its_place_in_the_store(
    writer: Writer, browser: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window holds one frame only: a slow reader reads from the store, frame by frame."""
    monkeypatch.setattr(tailer, "WINDOW_BYTES", 1)
    read = asyncio.Semaphore(1)

    async def slow_send(self: Any, text: str) -> None:
        async with self._sending:
            await read.acquire()
            await self.send(text_data=text)

    monkeypatch.setattr(consumers.StreamConsumer, "_send", slow_send)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk)
            for first in range(1, 1000, 10):
                await do(writer.lines, first, first + 9)
            found: list[int] = []
            while len(found) < 1000:
                found += seqs(await socket.frame())
                read.release()
            assert found == list(range(1, 1001))

    play(scenario)


def test_a_reader_that_takes_nothing_is_closed_with_4409(
    writer: Writer, browser: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "SEND_SECONDS", 0.05)
    sent = consumers.StreamConsumer.send

    async def stuck(self: Any, *given: Any, text_data: str = "", **named: Any) -> None:
        if '"t":"logs"' in text_data:
            await asyncio.Event().wait()
        await sent(self, *given, text_data=text_data, **named)

    monkeypatch.setattr(consumers.StreamConsumer, "send", stuck)
    writer.lines(1, 1)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", stream="logs", job=writer.job.pk)
            assert await socket.closed() == 4409

    play(scenario)


def test_each_socket_receives_messages_in_the_language_of_its_reader(people: Personas, browser: Headers) -> None:
    job = make_job(people.namespace, people.owner, why=messages.TRAINING(trainers=wording.trainers(2)))

    async def scenario() -> None:
        async with connected([*browser, (b"accept-language", b"zh-CN")]) as chinese, connected(browser) as english:
            for socket, expected in ((chinese, "正在使用 2 个训练器训练。"), (english, "Training with 2 trainers.")):
                await socket.ask(op="sub", stream="status", job=job.pk)
                assert (await socket.frame())["job_state"]["why"] == expected

    play(scenario)


# --- Without a database ----------------------------------------------------------------------------------------------
def fail(*_: object) -> None:
    raise OperationalError("the database is away")


def test_a_socket_ends_where_its_caller_cannot_be_checked_again(
    people: Personas, browser: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="ping")
            await socket.frame()
            monkeypatch.setattr(Credentials, "user", fail)
            await do(ring, account_topic(people.viewer.pk))
            assert await socket.closed() == consumers.FAILED

    play(scenario)


def test_a_socket_ends_where_its_caller_cannot_be_let_in(browser: Headers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Credentials, "user", fail)
    expect_close(browser, consumers.FAILED)


def test_a_request_that_fails_closes_the_socket_and_releases_its_place(
    writer: Writer, browser: Headers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_selectors, "job_for", fail)

    async def scenario() -> None:
        async with connected(browser) as socket:
            await socket.ask(op="sub", id="s1", stream="logs", job=writer.job.pk)
            assert await socket.closed() == consumers.FAILED

    play(scenario)
