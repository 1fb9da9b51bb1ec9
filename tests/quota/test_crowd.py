"""Concurrent requests against one quota: no over-commitment and no deadlocks, on the database of the test run."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections

from portal.common.clock import now
from portal.common.errors import QuotaExceeded
from quota import ledger, storage
from quota.ledger import ReservationRequest
from quota.models import Capacity, Claim, Kept, Kind, Limit, Reservation, Stored, Stretch
from quota.selectors import reserved_in
from quota.storage import StoredObject
from rbac.models import Namespace
from tests.factories import make_namespace

# Generous, because the tests are about results, not speed, on a machine that may be busy.
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]
THREADS, SLOTS = 200, 7


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the lock timeout of SQLite, where threads take turns: on a busy machine that may exceed a request's."""
    if connection.vendor == "sqlite":
        monkeypatch.setitem(connections.settings["default"]["OPTIONS"], "timeout", 250)


def at_once(action: Callable[[int], object]) -> list[object]:
    """Return the results of an action in many threads that begin together. Raises the exception of any of them."""
    together = threading.Barrier(THREADS)

    def one(number: int) -> object:
        try:
            together.wait(timeout=120)
            return action(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS), timeout=280))


@pytest.mark.invariant("Running attempts never hold more than the quota.")
def test_many_at_once_never_over_commit(settings) -> None:
    settings.DEFAULT_QUOTA = {"cpu": SLOTS}
    namespace = make_namespace("crowd")
    admitted = at_once(lambda _: ledger.reserve(namespace, ReservationRequest(uuid.uuid4(), 1, {"cpu": 1})).admitted)
    assert (sum(map(bool, admitted)), reserved_in(namespace)["cpu"]) == (SLOTS, SLOTS)
    assert (Reservation.objects.count(), Claim.objects.count()) == (SLOTS, THREADS - SLOTS)


def test_many_of_several_namespaces_never_over_commit_what_they_share(settings) -> None:
    """Some attempts are resized or released meanwhile."""
    settings.DEFAULT_QUOTA = {"cpu": SLOTS}
    Capacity.objects.create(resource="cpu", amount=SLOTS)
    namespaces = [make_namespace(f"crowd{number}") for number in range(3)]
    Limit.objects.create(namespace=namespaces[0], resource="cpu", amount=1, borrow=SLOTS)

    def come_and_go(number: int) -> None:
        asked = ReservationRequest(uuid.uuid4(), 1, {"cpu": 1})
        held = ledger.reserve(namespaces[number % 3], asked)
        if held.admitted and number % 5 == 0:
            ledger.resize(namespace=namespaces[number % 3], job=asked.job, attempt=1, amounts={"cpu": 2})
        if number % 2 == 0:
            ledger.release(job=asked.job, attempt=1)

    at_once(come_and_go)
    assert sum(reserved_in(namespace)["cpu"] for namespace in Namespace.objects.all()) <= SLOTS
    held = Reservation.objects.filter(released=None).count()
    assert held > 0
    assert Stretch.objects.filter(ended=None).count() == held


@pytest.mark.invariant("A namespace never stores more than its storage quota.")
def test_many_who_keep_something_at_once_stay_within_the_storage(settings) -> None:
    """Some bytes are removed meanwhile. The sums still equal those of the rows."""
    settings.DEFAULT_QUOTA = {"storage": SLOTS}
    namespace = make_namespace("crowd")

    def come_and_go(number: int) -> bool:
        thing = StoredObject(namespace.pk, Kind.ARTIFACTS, f"job-{number % 9}")
        try:
            storage.take(namespace, thing, 1)
        except QuotaExceeded:
            return False
        if number % 2 == 0:
            storage.add(thing, -1)
        return True

    taken = at_once(come_and_go)
    kept = sum(Kept.objects.values_list("size", flat=True))
    assert 0 < kept <= SLOTS
    assert Stored.objects.get().size == kept == sum(bool(took) for took in taken[1::2])


def test_one_attempt_that_many_ask_for_is_granted_once(settings) -> None:
    settings.DEFAULT_QUOTA = {"cpu": SLOTS}
    namespace, asked = make_namespace("crowd"), ReservationRequest(uuid.uuid4(), 1, {"cpu": 1})
    verdicts = at_once(lambda _: ledger.reserve(namespace, asked).admitted)
    assert all(verdicts)
    assert (Reservation.objects.count(), Claim.objects.count()) == (1, 0)
    assert sum(map(bool, at_once(lambda _: ledger.release(job=asked.job, attempt=1)))) == 1


@pytest.mark.invariant("Concurrent admissions from the same review never over-commit the quota.")
def test_two_admitters_with_the_same_review_never_over_commit(settings) -> None:
    """Both have read the review before either has its locks; other attempts reserve amounts meanwhile."""
    settings.DEFAULT_QUOTA = {"cpu": SLOTS}
    Capacity.objects.create(resource="cpu", amount=SLOTS)
    namespaces = [make_namespace(f"crowd{number}") for number in range(2)]
    at = now()
    ledger.queue_up(
        [(namespaces[number % 2], ReservationRequest(uuid.uuid4(), 1, {"cpu": 1})) for number in range(3 * SLOTS)], at
    )
    review = ledger.review(at)
    assert len(review.granted) == SLOTS
    both = threading.Barrier(3)

    def take_all(claims: Sequence[Claim]) -> ledger.Answer:
        return ledger.Answer(frozenset((claim.job, claim.attempt) for claim in claims))

    def admitter(number: int) -> None:
        try:
            both.wait(timeout=60)
            if number == 2:
                for _ in range(SLOTS):
                    ledger.reserve(namespaces[0], ReservationRequest(uuid.uuid4(), 1, {"cpu": 1}, priority="high"))
            else:
                for claims in review.groups():
                    ledger.admit(claims, take_all, at)
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(admitter, range(3), timeout=200))
    held = Reservation.objects.filter(released=None)
    assert held.count() == SLOTS
    assert len(set(held.values_list("job", "attempt"))) == SLOTS
    assert not Claim.objects.filter(job__in=held.values("job")).exists()
