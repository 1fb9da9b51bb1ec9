"""Hours of a month: summed by day when stretches end, and read with a bounded number of rows."""

from __future__ import annotations

import importlib
import uuid
from datetime import UTC, date, datetime, timedelta

import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from quota import ledger
from quota.hours import by_day, used_this_month
from quota.models import DailyUse, Limit, Reservation, Stretch
from quota.selectors import added, uses
from rbac.models import Namespace
from tests.factories import make_namespace

AT = datetime(2026, 11, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def namespace(db: None) -> Namespace:
    return make_namespace("team")


def ask(cpu: float = 2) -> ledger.ReservationRequest:
    return ledger.ReservationRequest(
        job=uuid.uuid4(), attempt=1, amounts={"cpu": cpu}, length=3600.0, priority="normal", since=AT
    )


# --- Pure ------------------------------------------------------------------------------------------------------------
def test_a_stretch_over_midnight_is_split() -> None:
    days = dict(by_day({"cpu": 2}, datetime(2026, 1, 31, 23, tzinfo=UTC), datetime(2026, 2, 1, 2, tzinfo=UTC)))
    assert days == {
        date(2026, 1, 31): {"cpu_hours": 2, "gpu_hours": 0},
        date(2026, 2, 1): {"cpu_hours": 4, "gpu_hours": 0},
    }


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_the_days_of_a_stretch_sum_up_to_the_whole(start: int, length: int) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=start)
    days = list(by_day({"gpu": 1}, begun, begun + timedelta(seconds=length)))
    assert sum(used["gpu_hours"] for _, used in days) == pytest.approx(length / 3600)
    assert len({day for day, _ in days}) == len(days) <= length // 86400 + 2


def test_a_stretch_that_ended_before_it_began_counts_nothing() -> None:
    assert list(by_day({"cpu": 2}, AT, AT - HOUR)) == []


# --- In the database -------------------------------------------------------------------------------------------------
def test_ended_resized_and_open_stretches_count_what_they_held_when(namespace: Namespace) -> None:
    ended, going = ask(2), ask(1)
    ledger.reserve(namespace, ended, now=AT)
    ledger.resize(namespace=namespace, job=ended.job, attempt=1, amounts={"cpu": 4}, now=AT + HOUR)
    ledger.release(job=ended.job, attempt=1, now=AT + 3 * HOUR)
    ledger.reserve(namespace, going, now=AT + 3 * HOUR)
    assert used_this_month(namespace, AT + 5 * HOUR) == {"cpu_hours": 2 + 8 + 2, "gpu_hours": 0}


def test_the_sums_equal_the_hours_of_the_stretches(namespace: Namespace) -> None:
    for number in range(10):
        asked = ask(number)
        ledger.reserve(namespace, asked, now=AT + number * 5 * HOUR)
        ledger.release(job=asked.job, attempt=1, now=AT + number * 5 * HOUR + number * HOUR)
    now = AT + 100 * HOUR
    assert used_this_month(namespace, now) == pytest.approx(added(uses(AT - 20 * HOUR, now, namespace=namespace)))


def test_what_was_used_last_month_does_not_count(namespace: Namespace) -> None:
    asked = ask(2)
    ledger.reserve(namespace, asked, now=datetime(2026, 10, 31, 22, tzinfo=UTC))
    ledger.release(job=asked.job, attempt=1, now=datetime(2026, 11, 1, 1, tzinfo=UTC))
    assert used_this_month(namespace, AT)["cpu_hours"] == 2


def test_a_release_that_comes_twice_counts_once(namespace: Namespace) -> None:
    asked = ask(2)
    ledger.reserve(namespace, asked, now=AT)
    for _ in range(2):
        ledger.release(job=asked.job, attempt=1, now=AT + HOUR)
    assert used_this_month(namespace, AT + HOUR)["cpu_hours"] == 2


@pytest.fixture
def busy_month(namespace: Namespace) -> Namespace:
    """A namespace with a budget, in which 300 attempts have ended this month."""
    Limit.objects.create(namespace=namespace, resource="cpu_hours", amount=10_000)
    for _ in range(300):
        asked = ask(1)
        ledger.reserve(namespace, asked, now=AT)
        ledger.release(job=asked.job, attempt=1, now=AT + HOUR)
    return namespace


def test_admission_within_a_budget_reads_no_stretch_that_has_ended(busy_month: Namespace) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert ledger.reserve(busy_month, ask(1), now=AT + 2 * HOUR).admitted
    asked = [query["sql"] for query in queries if query["sql"].startswith("SELECT") and "quota_stretch" in query["sql"]]
    assert asked
    Stretch.objects.filter(ended=None).delete()
    with connection.cursor() as cursor:
        for sql in asked:
            cursor.execute(sql)
            assert cursor.fetchall() == []


def test_the_migration_sums_up_what_was_used_before(namespace: Namespace) -> None:
    held = Reservation.objects.create(namespace=namespace, job=uuid.uuid4(), attempt=1, amounts={"cpu": 2}, created=AT)
    for hour in (0, 20):
        begun = AT + hour * HOUR
        Stretch.objects.create(reservation=held, amounts={"cpu": 2}, begun=begun, ended=begun + 6 * HOUR)
    importlib.import_module("quota.migrations.0004_hours_by_day").sum_up(apps, None)
    sums = list(DailyUse.objects.order_by("day").values_list("day", "cpu_hours"))
    assert sums == [(date(2026, 11, 10), 12), (date(2026, 11, 11), 12)]
