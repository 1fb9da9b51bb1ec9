from __future__ import annotations

import base64
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portal.common.errors import ValidationFailed
from portal.common.pagination import Page, paginate
from rbac.models import Namespace
from tests.factories import make_namespace
from tests.properties import examples

pytestmark = pytest.mark.django_db


def page(order: tuple[str, ...] = ("name",), **query: str) -> Page:
    return paginate(Namespace.objects.all(), query, order=order, render=str)


def walk(limit: int, order: tuple[str, ...]) -> list[str]:
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        got = page(order, limit=str(limit), **cursor)
        seen += got["results"]
        if got["next"] is None:
            return seen
        cursor = {"cursor": got["next"]}


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("order", [("name",), ("-name",), ("-created", "-id")])
def test_pages_together_are_the_list(limit: int, order: tuple[str, ...]) -> None:
    for number in range(7):
        make_namespace(f"team-{number}")
    assert walk(limit, order) == [str(namespace) for namespace in Namespace.objects.order_by(*order)]


def test_rows_that_come_and_go_neither_double_nor_hide_others() -> None:
    for name in "bdf":
        make_namespace(name)
    first = page(limit="2")
    Namespace.objects.filter(name="d").delete()
    make_namespace("a")
    make_namespace("e")
    assert first["results"] + page(cursor=first["next"])["results"] == ["b", "d", "e", "f"]


@pytest.mark.parametrize("limit", ["0", "-1", "many", "501", "", "²", "9" * 5000])
def test_an_invalid_limit_is_refused(limit: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        page(limit=limit)
    assert list(refused.value.errors) == ["limit"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50), deadline=None)
@given(st.text(min_size=1, max_size=40))
def test_an_invalid_cursor_is_refused(db: None, cursor: str) -> None:
    with pytest.raises(ValidationFailed) as refused:
        page(("-created", "-id"), cursor=cursor)
    assert list(refused.value.errors) == ["cursor"]


def test_a_cursor_of_deeply_nested_json_is_refused() -> None:
    with pytest.raises(ValidationFailed):
        page(("name",), cursor=base64.urlsafe_b64encode(b"[" * 3000).decode())


def test_a_cursor_at_the_edge_of_the_calendar_is_refused() -> None:
    values = ["0001-01-01T00:00:00+23:59", 1]
    cursor = base64.urlsafe_b64encode(json.dumps(values).encode()).decode()
    with pytest.raises(ValidationFailed):
        page(("-created", "-id"), cursor=cursor)


def test_a_cursor_of_another_list_is_refused() -> None:
    make_namespace()
    make_namespace()
    cursor = page(("-created", "-id"), limit="1")["next"]
    with pytest.raises(ValidationFailed):
        page(("name",), cursor=str(cursor))
