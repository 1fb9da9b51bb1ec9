"""Websocket: lines, points and states arrive in order, and invalid requests are answered."""

from __future__ import annotations

import asyncio
import json

import pytest

from jobs.lifecycle.states import JobState
from jobs.live import consumers
from jobs.models import Job
from jobs.models.streams import Block
from jobs.streams import store
from portal.common.doorbell import ring
from tests.factories import make_job
from tests.jobs.live.frames import collect, do, seqs
from tests.jobs.sockets import Headers, connected, play
from tests.jobs.streams.conftest import Writer

pytestmark = pytest.mark.django_db(transaction=True)


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
            async with asyncio.timeout(60):
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
