"""Counters of requests, of this process and in a real Redis, and the replacement during an outage."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from django.core.cache import cache

from portal.common import request_counters
from portal.common.request_counters import (
    AWAY_SECONDS,
    Counters,
    ProcessCounters,
    RedisCounters,
    ReplacedCounters,
    shared_counters,
)
from tests.contracts.counters_contract import CountersContract
from tests.servers.redis_server import RedisServer
from tests.waiting import until

# One request that waits for a Redis that does not answer; the machine may be busy.
LONGEST_REQUEST_SECONDS = 5.0


class TestProcessCounters(CountersContract):
    @pytest.fixture
    def counters(self) -> Counters:
        return ProcessCounters(cache)


@pytest.mark.redis
class TestRedisCounters(CountersContract):
    @pytest.fixture
    def counters(self, redis: RedisServer) -> Counters:
        redis.client().flushdb()
        return RedisCounters(redis.url())


@pytest.mark.redis
class TestSharedCounters(CountersContract):
    @pytest.fixture
    def counters(self, redis: RedisServer) -> Counters:
        redis.client().flushdb()
        return shared_counters(redis.url(), ProcessCounters(cache))


@pytest.mark.redis
def test_every_counter_in_redis_expires(redis: RedisServer) -> None:
    """One that does not would refuse its subject for ever."""
    client, counters = redis.client(), RedisCounters(redis.url())
    client.flushdb()
    for _ in range(300):
        counters.count("brief", 0.001)
        counters.uncount("brief")
    assert all(client.pttl(key) != -1 for key in client.scan_iter())


@pytest.mark.redis
def test_two_processes_count_together(redis: RedisServer) -> None:
    redis.client().flushdb()
    one, other = (RedisCounters(redis.url()) for _ in "12")
    assert [one.count("both", 60)[0], other.count("both", 60)[0]] == [1, 2]


HARM: dict[str, Callable[[RedisServer], None]] = {
    "killed": RedisServer.kill,
    "suspended": RedisServer.freeze,
    "full": RedisServer.fill,
}
REPAIR: dict[str, Callable[[RedisServer], None]] = {
    "killed": RedisServer.start,
    "suspended": RedisServer.thaw,
    "full": RedisServer.empty,
}


@pytest.mark.redis
@pytest.mark.invariant("While Redis is lost, full or silent, requests succeed: each process counts them for itself.")
@pytest.mark.parametrize("harm", HARM)
def test_without_redis_a_process_counts_for_itself_and_uses_it_again_later(
    harm: str, fragile_redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_counters, "AWAY_SECONDS", 0.2)
    counters = shared_counters(fragile_redis.url(), ProcessCounters(cache))
    assert counters.count("ada", 60)[0] == 1
    HARM[harm](fragile_redis)
    began = time.monotonic()
    assert counters.count("ada", 60)[0] == 1, "its own counters begin with this one"
    assert counters.count("ada", 60)[0] == 2
    counters.uncount("ada")
    assert time.monotonic() - began < LONGEST_REQUEST_SECONDS
    REPAIR[harm](fragile_redis)
    until("Redis is used again", lambda: not counters.count("bob", 60)[0] or "again" in caplog.text)
    assert [record.message for record in caplog.records if fragile_redis.password in record.message] == []
    assert caplog.text.count("cannot be used") == 1


@pytest.mark.redis
def test_a_refused_password_is_reported_once_and_never_printed(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    counters = shared_counters(redis.url(password="another"), ProcessCounters(cache))
    assert [counters.count("ada", 60)[0] for _ in range(3)] == [1, 2, 3]
    (record,) = caplog.records
    assert "password" in record.message.lower()
    assert "another" not in record.message


class CountersThatAreAway:
    """Fail at every call, and note it."""

    def __init__(self) -> None:
        self.calls = 0

    def count(self, key: str, seconds: float) -> tuple[int, float]:
        self.calls += 1
        raise ConnectionError("away")

    def uncount(self, key: str) -> None:
        self.calls += 1
        raise ConnectionError("away")


def test_during_an_outage_one_request_in_a_while_tries_the_shared_counters() -> None:
    now = [100.0]
    shared = CountersThatAreAway()
    counters = ReplacedCounters(shared, ProcessCounters(cache), "a server", clock=lambda: now[0])
    for _ in range(10):
        counters.count("ada", 60)
    assert shared.calls == 1
    now[0] += AWAY_SECONDS
    for _ in range(10):
        counters.uncount("ada")
    assert shared.calls == 2
