"""Websocket: reconnects and slow readers neither lose nor repeat entries."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from typing import Any

import pytest
from django.db import connection

from jobs.lifecycle import wording
from jobs.live import consumers, person_socket
from jobs.messages import jobs as messages
from jobs.streams import store, tailer
from tests.factories import make_job
from tests.jobs.live.frames import do, seqs
from tests.jobs.sockets import Headers, connected, play
from tests.jobs.streams.conftest import Writer
from tests.personas import Personas

pytestmark = pytest.mark.django_db(transaction=True)


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

    async def slow_send(self: Any, text: str) -> bool:
        async with self._sending:
            await read.acquire()
            await self.send(text_data=text)
        return True

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
    monkeypatch.setattr(person_socket, "SEND_SECONDS", 0.05)
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
