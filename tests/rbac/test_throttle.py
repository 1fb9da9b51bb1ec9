"""How often somebody may cause something."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from pytest_django import Settings

from portal.common.errors import TooManyRequests
from rbac import throttle

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_it_tells_how_much_of_the_window_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "wall_clock", lambda: NOON)
    throttle.take("letter", "ada", most=1, seconds=60)
    monkeypatch.setattr(throttle, "wall_clock", lambda: NOON + timedelta(seconds=45))
    with pytest.raises(TooManyRequests, match=r"Wait 15 s") as refused:
        throttle.take("letter", "ada", most=1, seconds=60)
    assert refused.value.extra == {"retry_after": 15}


def test_kinds_and_people_are_counted_apart() -> None:
    for kind, who in (("letter", "ada"), ("letter", "bob"), ("job", "ada")):
        throttle.take(kind, who, most=1, seconds=60)


def test_the_sign_in_page_says_when_to_come_again(settings: Settings) -> None:
    settings.AXES_FAILURE_LIMIT, settings.AXES_COOLOFF_TIME = 2, timedelta(minutes=5)
    form = {"username": "ada", "password": "wrong"}
    page = [Client().post("/sign-in", form) for _ in range(2)][-1]
    assert (page.status_code, page.headers["Retry-After"]) == (429, "300")
    assert "300 s" in page.content.decode()


def test_the_page_of_a_forgotten_password_says_when_to_come_again() -> None:
    pages = [Client().post("/password", {"email": "ada@example.org"}) for _ in range(6)]
    assert [page.status_code for page in pages] == [200] * 5 + [429]
    assert 3590 < int(pages[-1].headers["Retry-After"]) <= 3600
