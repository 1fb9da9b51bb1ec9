"""Locks of the ledger, of limits and of stored artifacts."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from portal.common.errors import Conflict, QuotaExceeded
from quota import hours, ledger, services, storage
from quota.ledger import ReservationRequest
from quota.models import Capacity, DailyUse, Kept, Kind, Limit, QuotaRequest, Reservation, Stored, Stretch
from quota.storage import StoredObject
from rbac.models import AuditEntry, Namespace
from tests.factories import make_namespace, make_user
from tests.portal.locks_on_postgres.conftest import Action, Meet, stop_before

pytestmark = pytest.mark.django_db(transaction=True)
GIB = 1024**3
AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


# --- Reservations ----------------------------------------------------------------------------------------------------
def reserve_in(own_namespace: Namespace) -> Action:
    return lambda: ledger.reserve(own_namespace, ReservationRequest(uuid.uuid4(), 1, {"cpu": 3})).admitted


def test_of_two_attempts_that_fit_one_at_a_time_one_is_admitted(settings: Any, meet: Meet) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 4, "jobs": 4}
    own_namespace = make_namespace("team")
    assert meet("quota.ledger._hold", reserve_in(own_namespace), reserve_in(own_namespace)) == [True, False]


def test_of_two_attempts_of_two_namespaces_that_fit_the_platform_one_at_a_time_one_is_admitted(
    settings: Any, meet: Meet
) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 4, "jobs": 4}
    Capacity.objects.create(resource="cpu", amount=4)
    one, two = make_namespace("one"), make_namespace("two")
    assert meet("quota.ledger._hold", reserve_in(one), reserve_in(two)) == [True, False]


@pytest.fixture
def held(settings: Any) -> ReservationRequest:
    """An attempt that holds one of four cores from noon on."""
    settings.DEFAULT_QUOTA = {"cpu": 4, "jobs": 4}
    claim = ReservationRequest(uuid.uuid4(), 1, {"cpu": 1})
    assert ledger.reserve(make_namespace("team"), claim, now=AT).admitted
    return claim


def test_a_released_reservation_is_not_resized(held: ReservationRequest, meet: Meet) -> None:
    team = Namespace.objects.get(name="team")

    def release() -> bool:
        return ledger.release(job=held.job, attempt=1, now=AT + HOUR)

    def resize() -> None:
        ledger.resize(namespace=team, job=held.job, attempt=1, amounts={"cpu": 3}, now=AT + HOUR)

    assert meet("quota.ledger.end_stretches", release, resize) == [True, None]
    assert not Stretch.objects.filter(ended=None).exists()


def test_the_hours_of_a_stretch_that_two_end_at_once_count_once(held: ReservationRequest, meet: Meet) -> None:
    def end() -> None:
        hours.end_stretches(Stretch.objects.all(), AT + HOUR)

    assert meet("quota.hours.add", end, end) == [None, None]
    assert DailyUse.objects.get().cpu_hours == 1


def test_no_second_job_is_preempted_beside_that_of_another_decision(settings: Any, meet: Meet) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 4, "jobs": 4}
    Capacity.objects.create(resource="cpu", amount=8)
    guest, team = make_namespace("guest"), make_namespace("team")
    Limit.objects.create(namespace=guest, resource="cpu", amount=2, borrow=6)
    older, newer = (ReservationRequest(uuid.uuid4(), 1, {"cpu": 3}, length=1e6) for _ in range(2))
    for claim, begun in ((older, AT), (newer, AT + HOUR)):
        assert ledger.reserve(guest, claim, now=begun).admitted
    assert not ledger.reserve(team, ReservationRequest(uuid.uuid4(), 1, {"cpu": 4}, since=AT), now=AT + HOUR).admitted

    def call_back() -> None:
        ledger._call_back(AT + 2 * HOUR, {})

    def call_back_later() -> None:
        Reservation.objects.filter(job=older.job).update(priority="low")  # now it would be preempted first
        call_back()

    assert meet("rbac.audit.log.record", call_back, call_back_later) == [None, None]
    assert list(Reservation.objects.exclude(recalled=None).values_list("job", flat=True)) == [newer.job]


# --- Limits ----------------------------------------------------------------------------------------------------------
def test_a_limit_and_its_borrowing_limit_can_be_set_concurrently(meet: Meet) -> None:
    admin, team = make_user(admin=True), make_namespace("team")
    Limit.objects.create(namespace=team, resource="cpu", amount=4)

    def limit() -> None:
        services.set_limits(actor=admin, namespace=team, limits={"cpu": 8})

    def lend() -> None:
        services.set_limits(actor=admin, namespace=team, limits={}, borrow={"cpu": 2})

    assert meet("rbac.audit.log.record", limit, lend) == [None, None]
    assert Limit.objects.values_list("amount", "borrow").get() == (8, 2)


def test_the_audit_log_has_the_capacity_that_was_there_before_each_change(meet: Meet) -> None:
    admin = make_user(admin=True)
    Capacity.objects.create(resource="cpu", amount=4)
    meet("rbac.audit.log.record", *(partial(services.set_capacity, actor=admin, amounts={"cpu": n}) for n in (8, 16)))
    assert [entry.before for entry in AuditEntry.objects.order_by("id")] == [{"cpu": 4}, {"cpu": 8}]


def test_of_two_admins_who_answer_a_request_at_once_the_second_is_refused(meet: Meet) -> None:
    admin, team = make_user(admin=True), make_namespace("team")
    request = QuotaRequest.objects.create(
        namespace=team, asker=make_user(), asked=AT, limits={"cpu": 8}, reason="A deadline."
    )

    def answer(approve: bool) -> Action:
        return lambda: services.answer(actor=admin, request_id=request.pk, approve=approve, reason="a test").state

    approved, refused = meet("rbac.audit.log.record", answer(True), answer(False))
    assert approved == "approved"
    assert isinstance(refused, Conflict)


# --- Storage ---------------------------------------------------------------------------------------------------------
def test_of_two_files_that_fit_one_at_a_time_one_is_taken(settings: Any, meet: Meet) -> None:
    settings.DEFAULT_QUOTA = {"storage": 10 * GIB}
    own_namespace = make_namespace("team")

    def take() -> None:
        storage.take(own_namespace, StoredObject(own_namespace.pk, Kind.ARTIFACTS, uuid.uuid4().hex, "digits"), 6 * GIB)

    _, refused = meet("quota.storage.add", take, take)
    assert isinstance(refused, QuotaExceeded)


def test_of_two_files_of_two_namespaces_that_fit_the_platform_one_at_a_time_one_is_taken(
    settings: Any, meet: Meet
) -> None:
    settings.DEFAULT_QUOTA = {"storage": 10 * GIB}
    Capacity.objects.create(resource="storage", amount=10 * GIB)

    def take_in(own_namespace: Namespace) -> Action:
        return lambda: storage.take(
            own_namespace, StoredObject(own_namespace.pk, Kind.ARTIFACTS, uuid.uuid4().hex, "digits"), 6 * GIB
        )

    _, refused = meet("quota.storage.add", take_in(make_namespace("one")), take_in(make_namespace("two")))
    assert isinstance(refused, QuotaExceeded)


def thing() -> StoredObject:
    return StoredObject(make_namespace("team").pk, Kind.ARTIFACTS, "digits")


@pytest.mark.parametrize("before", [0, 5])
def test_of_two_concurrent_measurements_the_later_one_counts(before: int, meet: Meet) -> None:
    measured = thing()
    storage.add(measured, before)
    meet("quota.storage.add", *(partial(storage.measured, measured, size) for size in (10, 30)))
    assert (Kept.objects.get().size, Stored.objects.get().size) == (30, 30)


def test_changes_during_a_repair_are_in_the_sum(meet: Meet) -> None:
    measured = thing()
    storage.add(measured, 5)

    def repair() -> int:
        with stop_before('UPDATE "quota_stored"', lambda: storage.wall_clock()):
            return storage._repair_sums(Kind.ARTIFACTS)

    assert meet("quota.storage.wall_clock", repair, partial(storage.add, measured, 7)) == [0, None]
    assert Stored.objects.get().size == 12
