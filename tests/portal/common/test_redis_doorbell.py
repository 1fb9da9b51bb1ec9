"""The doorbell on a real Redis: its contract, and what it does while Redis is lost, silent or full."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from pytest_django import Settings

from portal.common.doorbell import Doorbell, ring
from portal.common.redis_doorbell import CHANNEL, RedisListener, ringer
from tests.contracts.doorbell_contract import DoorbellContract, run
from tests.portal.common.test_doorbell import _RINGER
from tests.servers.redis_server import RedisServer
from tests.waiting import soon, until

pytestmark = pytest.mark.redis
# A ring only hands its topic to a thread. The machine may be busy.
RING_SECONDS = 0.5


@pytest.mark.django_db(transaction=True)
class TestRedisDoorbell(DoorbellContract):
    @pytest.fixture(autouse=True)
    def _on_redis(self, settings: Settings, redis: RedisServer) -> None:
        settings.REDIS_URL = self._url = redis.url()

    def elsewhere(self, *topics: str) -> None:
        environment = os.environ | {"REGATTA_REDIS_URL": self._url}
        subprocess.run([sys.executable, "-c", _RINGER, *topics], check=True, timeout=100, env=environment)


def ring_from_elsewhere(server: RedisServer) -> int:
    """Publish a topic like another process. Returns the number of listeners."""
    return int(server.client().publish(CHANNEL, "logs:1"))


def listener_of(doorbell: Doorbell) -> RedisListener:
    assert isinstance(doorbell._listener, RedisListener)
    return doorbell._listener


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RedisListener, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(RedisListener, "SILENT_SECONDS", 0.2)


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize(
    ("harm", "repair"), [(RedisServer.kill, RedisServer.start), (RedisServer.freeze, RedisServer.thaw)]
)
def test_a_lost_redis_wakes_all_readers_and_is_used_again_without_a_restart(
    harm: Callable[[RedisServer], None],
    repair: Callable[[RedisServer], None],
    settings: Settings,
    fragile_redis: RedisServer,
) -> None:
    settings.REDIS_URL = fragile_redis.url()

    async def scenario(doorbell: Doorbell) -> None:
        subscribed = listener_of(doorbell).subscribed
        with doorbell.subscribe("logs:1") as bell:
            await bell.wait(0.01)
            harm(fragile_redis)
            assert await bell.wait(60), "at the loss every reader looks once, then polls"
            await soon("the loss is noticed", lambda: not subscribed.is_set())
            assert not await bell.wait(0.3), "it does not read with every attempt to connect"
            await asyncio.to_thread(repair, fragile_redis)
            assert await bell.wait(60), "a ring during the outage was lost"
            await asyncio.wait_for(subscribed.wait(), 60)
            await bell.wait(0.01)
            await asyncio.to_thread(ring_from_elsewhere, fragile_redis)
            assert await bell.wait(60)

    run(scenario)


@pytest.mark.django_db(transaction=True)
@pytest.mark.invariant("A ring never waits for Redis and never fails, whether Redis is lost, silent or full.")
@pytest.mark.parametrize("harm", [RedisServer.kill, RedisServer.freeze, RedisServer.fill])
def test_a_ring_does_not_wait_for_redis(
    harm: Callable[[RedisServer], None], settings: Settings, fragile_redis: RedisServer
) -> None:
    settings.REDIS_URL = fragile_redis.url()
    ring("logs:1")
    assert ringer(settings.REDIS_URL).flush(20)
    harm(fragile_redis)
    began = time.monotonic()
    for number in range(20):
        ring(f"logs:{number}")
    assert time.monotonic() - began < RING_SECONDS


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("harm", "repair"), [(RedisServer.kill, RedisServer.start), (RedisServer.freeze, RedisServer.thaw)]
)
def test_rings_arrive_again_after_an_outage(
    harm: Callable[[RedisServer], None],
    repair: Callable[[RedisServer], None],
    settings: Settings,
    fragile_redis: RedisServer,
) -> None:
    settings.REDIS_URL = fragile_redis.url()
    sender = ringer(settings.REDIS_URL)
    ring("logs:1")
    assert sender.flush(20)
    harm(fragile_redis)
    until("the outage is noticed", lambda: ring("logs:1") or sender._failed)
    repair(fragile_redis)
    with fragile_redis.client().pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(CHANNEL)
        until("a ring arrives", lambda: ring("logs:2") or channel.get_message(timeout=0.05))


@pytest.mark.django_db(transaction=True)
def test_a_full_redis_rings(settings: Settings, fragile_redis: RedisServer) -> None:
    settings.REDIS_URL = fragile_redis.url()
    fragile_redis.fill()

    async def scenario(doorbell: Doorbell) -> None:
        with doorbell.subscribe("logs:1") as bell:
            await bell.wait(0.01)
            await asyncio.to_thread(ring_from_elsewhere, fragile_redis)
            assert await bell.wait(60)

    run(scenario)


def test_a_quiet_listener_stays_connected(
    settings: Settings, redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisListener, "SILENT_SECONDS", 0.05)
    settings.REDIS_URL = redis.url()

    async def scenario(doorbell: Doorbell) -> None:
        with doorbell.subscribe("logs:1") as bell:
            await bell.wait(0.01)
            assert not await bell.wait(1.5), "longer than the limit of a call"
            assert listener_of(doorbell).subscribed.is_set()
        assert caplog.records == []

    run(scenario)


@pytest.mark.usefixtures("_impatient")
def test_a_refused_password_is_logged_once_and_never_printed(
    settings: Settings, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    settings.REDIS_URL = redis.url(password="another")

    async def scenario() -> None:
        doorbell = Doorbell()
        try:
            await soon("it is logged", lambda: caplog.records)
            assert not await doorbell.wait("logs:1", 0.3)
        finally:
            doorbell.close()

    asyncio.run(scenario())
    (record,) = caplog.records
    assert "password" in record.message
    assert "another" not in record.message
