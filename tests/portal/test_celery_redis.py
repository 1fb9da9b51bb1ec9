"""The Redis broker of the worker, on a real Redis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kombu.connection import Connection

from portal import celery
from tests.servers.redis_server import RedisServer

pytestmark = pytest.mark.redis


def test_a_message_that_is_not_acknowledged_is_not_put_back_when_the_connection_closes(
    fragile_redis: RedisServer,
) -> None:
    assert celery.app
    connect: Any = Connection  # without types
    received: list[object] = []
    with connect(fragile_redis.url(database=0)) as connection:
        queue = connection.SimpleQueue("test", no_ack=False)
        queue.put("a hint")
        received.append(queue.get(timeout=20))
    assert len(received) == 1
    assert fragile_redis.client(database=0).llen("test") == 0


@pytest.mark.parametrize("harm", [RedisServer.fill, RedisServer.kill])
def test_an_acknowledgement_needs_no_redis(fragile_redis: RedisServer, harm: Callable[[RedisServer], None]) -> None:
    assert celery.app
    connect: Any = Connection  # without types
    with connect(fragile_redis.url(database=0)) as connection:
        queue = connection.SimpleQueue("test", no_ack=False)
        queue.put("a hint")
        message = queue.get(timeout=60)
        harm(fragile_redis)
        message.ack()
    assert message.acknowledged
