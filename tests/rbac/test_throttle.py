"""Rate limits of actions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import caches
from django.test import Client
from pytest_django import Settings

from portal import settings as portal_settings
from portal.common.errors import TooManyRequests
from rbac import messages, throttle
from tests.messages import pattern
from tests.ports import free_port

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_the_error_holds_the_rest_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "wall_clock", lambda: NOON)
    throttle.take("letter", "ada", most=1, seconds=60)
    monkeypatch.setattr(throttle, "wall_clock", lambda: NOON + timedelta(seconds=45))
    with pytest.raises(TooManyRequests, match=pattern(messages.TOO_MANY_REQUESTS_FOR_NOW, seconds=15)) as refused:
        throttle.take("letter", "ada", most=1, seconds=60)
    assert refused.value.extra == {"retry_after": 15}


@pytest.fixture
def _redis_is_away(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real Redis client, and no server."""
    nobody = {**portal_settings._OF_ALL_PROCESSES, "LOCATION": f"redis://:secret@127.0.0.1:{free_port()}/1"}
    settings.CACHES = {**settings.CACHES, "default": nobody}
    monkeypatch.setattr(throttle, "_shared", throttle._Shared())
    monkeypatch.setattr(throttle, "_AWAY_SECONDS", 3600.0)


@pytest.mark.usefixtures("_redis_is_away")
def test_while_the_shared_counters_are_away_each_process_counts_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        throttle.take("job", "ada", most=3, seconds=60)
    with pytest.raises(TooManyRequests):
        throttle.take("job", "ada", most=3, seconds=60)
    throttle.take("job", "bob", most=3, seconds=60)
    warnings = [record.message for record in caplog.records if "count" in record.message]
    assert len(warnings) == 1, "they are not asked again with every request"
    assert "secret" not in warnings[0]


def test_counters_that_are_back_count_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def count(counters: object, digest: str, seconds: float) -> tuple[int, float]:
        asked.append("shared" if counters is caches["default"] else "own")
        if asked == ["shared"]:
            raise ConnectionError("away")
        return 1, seconds

    monkeypatch.setattr(throttle, "_count", count)
    counters = throttle._Shared()
    counters.count("digest", 60)
    counters._away_until = 0.0
    counters.count("digest", 60)
    assert asked == ["shared", "own", "shared"]


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
