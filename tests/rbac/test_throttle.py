"""Rate limits of actions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from pytest_django import Settings

from portal.common import request_counters
from portal.common.errors import TooManyRequests
from rbac import messages, throttle
from tests.messages import pattern
from tests.ports import free_port
from tests.servers.redis_server import RedisServer

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_the_error_holds_the_rest_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_counters, "wall_clock", lambda: NOON)
    throttle.take("letter", "ada", most=1, seconds=60)
    monkeypatch.setattr(request_counters, "wall_clock", lambda: NOON + timedelta(seconds=45))
    with pytest.raises(TooManyRequests, match=pattern(messages.TOO_MANY_REQUESTS_FOR_NOW, seconds=15)) as refused:
        throttle.take("letter", "ada", most=1, seconds=60)
    assert refused.value.extra == {"retry_after": 15}


def test_without_an_answer_of_redis_each_process_counts_by_itself(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.REDIS_URL = f"redis://:secret@127.0.0.1:{free_port()}/1"  # nobody listens there
    for _ in range(3):
        throttle.take("job", "ada", most=3, seconds=60)
    with pytest.raises(TooManyRequests):
        throttle.take("job", "ada", most=3, seconds=60)
    throttle.take("job", "bob", most=3, seconds=60)
    (warning,) = (record.message for record in caplog.records if "counts requests" in record.message)
    assert "secret" not in warning


@pytest.mark.redis
def test_with_redis_the_limit_holds_for_all_processes(settings: Settings, redis: RedisServer) -> None:
    settings.REDIS_URL = redis.url()
    redis.client().flushdb()
    throttle.take("job", "ada", most=2, seconds=60)
    throttle._counters_of.cache_clear()  # as another process: nothing of the first is in this memory
    cache.clear()
    throttle.take("job", "ada", most=2, seconds=60)
    with pytest.raises(TooManyRequests):
        throttle.take("job", "ada", most=2, seconds=60)
    throttle.refund("job", "ada")
    throttle.refund("job", "ada")
    throttle.take("job", "ada", most=2, seconds=60)


def test_kinds_and_people_are_counted_apart() -> None:
    for kind, who in (("letter", "ada"), ("letter", "bob"), ("job", "ada")):
        throttle.take(kind, who, most=1, seconds=60)


def test_the_sign_in_page_has_retry_after(settings: Settings) -> None:
    settings.AXES_FAILURE_LIMIT, settings.AXES_COOLOFF_TIME = 2, timedelta(minutes=5)
    form = {"username": "ada", "password": "wrong"}
    page = [Client().post("/sign-in", form) for _ in range(2)][-1]
    assert (page.status_code, page.headers["Retry-After"]) == (429, "300")
    assert "300 s" in page.content.decode()


def test_the_page_of_a_password_reset_has_retry_after() -> None:
    pages = [Client().post("/password", {"email": "ada@example.org"}) for _ in range(6)]
    assert [page.status_code for page in pages] == [200] * 5 + [429]
    assert 3590 < int(pages[-1].headers["Retry-After"]) <= 3600
