"""Contract of every doorbell. A subclass implements ``elsewhere``, which rings from another process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

from django.db import transaction

from portal.common.doorbell import Doorbell, ring
from portal.common.redis_doorbell import RedisListener


def run(scenario: Callable[[Doorbell], Awaitable[None]]) -> None:
    """Run a scenario with its own event loop and doorbell."""

    async def play() -> None:
        doorbell = Doorbell()
        try:
            if isinstance(doorbell._listener, RedisListener):
                await doorbell._listener.subscribed.wait()
            await scenario(doorbell)
        finally:
            doorbell.close()

    asyncio.run(asyncio.wait_for(play(), 100))


class DoorbellContract:
    """Mix into a test class that has a database."""

    def elsewhere(self, *topics: str) -> None:
        """Ring from another process. Returns when that has ended."""
        raise NotImplementedError

    def test_a_ring_in_this_process_wakes_a_waiting_reader(self) -> None:
        async def scenario(doorbell: Doorbell) -> None:
            with doorbell.subscribe("logs:1") as bell:
                threading.Thread(target=ring, args=("logs:1",)).start()
                assert await bell.wait(60)

        run(scenario)

    def test_a_ring_in_another_process_wakes_a_waiting_reader(self) -> None:
        async def scenario(doorbell: Doorbell) -> None:
            with doorbell.subscribe("logs:1") as bell:
                await asyncio.to_thread(self.elsewhere, "logs:1")
                assert await bell.wait(60)

        run(scenario)

    def test_a_ring_before_the_wait_is_kept(self) -> None:
        async def scenario(doorbell: Doorbell) -> None:
            with doorbell.subscribe("logs:1") as bell:
                await asyncio.to_thread(ring, "logs:1")
                await asyncio.sleep(0)
                assert await bell.wait(60)

        run(scenario)

    def test_a_ring_for_another_topic_wakes_nobody(self) -> None:
        async def scenario(doorbell: Doorbell) -> None:
            with doorbell.subscribe("logs:1") as bell:
                await asyncio.to_thread(ring, "logs:2")
                assert not await bell.wait(0.05)

        run(scenario)

    def test_many_rings_at_once_wake_all_readers(self) -> None:
        async def scenario(doorbell: Doorbell) -> None:
            topics = [f"logs:{number}" for number in range(100)]
            bells = [doorbell.subscribe(topic) for topic in topics]
            ears = [bell.__enter__() for bell in bells]
            await asyncio.to_thread(self.elsewhere, *topics)
            assert all(await asyncio.gather(*(ear.wait(60) for ear in ears)))

        run(scenario)

    def test_a_ring_inside_a_transaction_comes_after_the_commit(self) -> None:
        committed = threading.Event()

        def change() -> None:
            with transaction.atomic():
                ring("logs:1")
                committed.set()

        async def scenario(doorbell: Doorbell) -> None:
            with doorbell.subscribe("logs:1") as bell:
                await asyncio.to_thread(change)
                assert await bell.wait(60)
                assert committed.is_set()

        run(scenario)

    def test_a_rolled_back_change_rings_nothing(self) -> None:
        def change() -> None:
            with transaction.atomic():
                ring("logs:1")
                transaction.set_rollback(True)

        async def scenario(doorbell: Doorbell) -> None:
            with doorbell.subscribe("logs:1") as bell:
                await asyncio.to_thread(change)
                assert not await bell.wait(0.05)

        run(scenario)

    def test_ringing_without_a_listener_does_nothing(self) -> None:
        ring("logs:1")
