"""Two transactions that meet: the second waits for the row that the first has locked. ``test_postgres`` runs this.

The embedded database has one writer at a time, so a lock that is missing changes nothing there.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from jobs import reports
from jobs.batches import Report
from jobs.models import Replica
from jobs.states import ReplicaState
from jobs.streams import sealing, store
from jobs.streams.models import StreamHead
from portal.common.errors import Conflict, NotFound, QuotaExceeded
from quota import ledger, storage
from quota.ledger import Ask
from quota.models import Capacity, Kind
from quota.storage import Thing
from rbac import access, administration, services
from rbac.models import Namespace, Role
from tests.factories import make_attempt, make_job, make_member, make_namespace, make_user
from tests.jobs.streams.conftest import Writer

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS = 20.0
GIB = 1024**3
Deed = Callable[[], Any]


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


class Meeting:
    """The first transaction stops at ``point`` until the second one waits for a lock, or is over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
        module, _, name = point.rpartition(".")
        self._original = getattr(__import__(module, fromlist=[name]), name)
        self._there, self._over = threading.Event(), threading.Event()
        self._first: threading.Thread | None = None
        monkeypatch.setattr(point, self._at_point)

    def _at_point(self, *given: Any, **named: Any) -> Any:
        if threading.current_thread() is self._first and not self._there.is_set():
            self._there.set()
            deadline = time.monotonic() + SECONDS
            while not self._over.wait(0.01) and not _somebody_waits():
                assert time.monotonic() < deadline, "the second transaction neither waits nor ends"
        return self._original(*given, **named)

    def of(self, first: Deed, second: Deed) -> list[Any]:
        """What each of them gave or raised."""
        results: dict[int, Any] = {}

        def run(number: int, deed: Deed) -> None:
            try:
                results[number] = deed()
            except Exception as error:  # noqa: BLE001  a result
                results[number] = error
            finally:
                connection.close()
                if number:
                    self._over.set()

        self._first = threading.Thread(target=run, args=(0, first))
        other = threading.Thread(target=run, args=(1, second))
        self._first.start()
        assert self._there.wait(SECONDS), results
        other.start()
        for thread in (self._first, other):
            thread.join(2 * SECONDS)
        return [results[0], results[1]]


Meet = Callable[..., list[Any]]


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Meet:
    return lambda point, first, second: Meeting(monkeypatch, point).of(first, second)


# --- Quota -----------------------------------------------------------------------------------------------------------
def test_of_two_files_that_fit_one_at_a_time_one_is_taken(settings: Any, meet: Meet) -> None:
    settings.DEFAULT_QUOTA = {"storage": 10 * GIB}
    room = make_namespace("team")

    def take() -> None:
        storage.take(room, Thing(room.pk, Kind.ARTIFACTS, uuid.uuid4().hex, "digits"), 6 * GIB)

    _, refused = meet("quota.storage.add", take, take)
    assert isinstance(refused, QuotaExceeded)


def test_of_two_files_of_two_namespaces_that_fit_the_platform_one_at_a_time_one_is_taken(
    settings: Any, meet: Meet
) -> None:
    settings.DEFAULT_QUOTA = {"storage": 10 * GIB}
    Capacity.objects.create(resource="storage", amount=10 * GIB)

    def take_in(room: Namespace) -> Deed:
        return lambda: storage.take(room, Thing(room.pk, Kind.ARTIFACTS, uuid.uuid4().hex, "digits"), 6 * GIB)

    _, refused = meet("quota.storage.add", take_in(make_namespace("one")), take_in(make_namespace("two")))
    assert isinstance(refused, QuotaExceeded)


def reserve_in(room: Namespace) -> Deed:
    return lambda: ledger.reserve(room, Ask(uuid.uuid4(), 1, {"cpu": 3})).admitted


def test_of_two_attempts_that_fit_one_at_a_time_one_is_admitted(settings: Any, meet: Meet) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 4, "jobs": 4}
    room = make_namespace("team")
    assert meet("quota.ledger._hold", reserve_in(room), reserve_in(room)) == [True, False]


def test_of_two_attempts_of_two_namespaces_that_fit_the_platform_one_at_a_time_one_is_admitted(
    settings: Any, meet: Meet
) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 4, "jobs": 4}
    Capacity.objects.create(resource="cpu", amount=4)
    one, two = make_namespace("one"), make_namespace("two")
    assert meet("quota.ledger._hold", reserve_in(one), reserve_in(two)) == [True, False]


# --- Accounts and namespaces -----------------------------------------------------------------------------------------
def test_of_two_owners_who_leave_at_once_one_stays(meet: Meet) -> None:
    one, two = make_user("one"), make_user("two")
    room = make_namespace("team", owner=one)
    make_member(room, two, Role.OWNER)
    leave = [
        lambda who=who: services.remove_member(actor=who, namespace_name="team", username=who.username)
        for who in (one, two)
    ]
    _, refused = meet("rbac.services.wake_sockets", *leave)
    assert isinstance(refused, Conflict)
    assert [member.user for member in room.memberships.all()] == [two]


def test_of_two_admins_who_demote_each_other_at_once_one_stays(meet: Meet) -> None:
    one, two = make_user("one", admin=True), make_user("two", admin=True)

    def demote(actor: Any, other: Any) -> Deed:
        return lambda: administration.set_admin(actor=actor, username=other.username, admin=False, reason="a test")

    _, refused = meet("rbac.administration.wake_sockets", demote(one, two), demote(two, one))
    assert isinstance(refused, Conflict)


def test_nothing_is_held_open_while_it_is_being_closed(meet: Meet) -> None:
    owner = make_user("one")
    room = make_namespace("team", owner=owner)

    def hold() -> None:
        with transaction.atomic():
            access.hold_open(room)

    def close() -> None:
        services.close_namespace(actor=owner, namespace_name="team", confirmation="team")

    closed, refused = meet("rbac.services.wake_sockets", close, hold)
    assert closed is None
    assert isinstance(refused, NotFound)


# --- Jobs ------------------------------------------------------------------------------------------------------------
def test_lines_of_two_replicas_at_once_get_numbers_of_their_own(meet: Meet) -> None:
    writer = Writer(make_attempt(make_job(attempt=1)))
    other = writer.other("trainer-1")
    writer.lines(1, 1)
    other.lines(1, 1)
    assert meet("jobs.streams.store.ring", lambda: writer.lines(2, 3), lambda: other.lines(2, 3)) == [3, 3]
    lines = store.read_logs(writer.job.pk).lines
    assert [line.seq for line in lines] == [1, 2, 3, 4, 5, 6]


def test_blocks_that_two_merge_at_once_are_merged_once(meet: Meet) -> None:
    writer = Writer(make_attempt(make_job(attempt=1)))
    for number in (1, 2, 3):
        writer.lines(number, number)
    head = StreamHead.objects.get()
    assert meet("jobs.keeping.sealed", lambda: sealing._seal(head.pk), lambda: sealing._seal(head.pk)) == [None, None]
    assert [line.seq for line in store.read_logs(writer.job.pk).lines] == [1, 2, 3]


def test_of_two_reports_at_once_neither_is_lost(meet: Meet) -> None:
    attempt = make_attempt(make_job(attempt=1))
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)

    def told(phase: str) -> Deed:
        report = Report(replica="trainer-0", phase=phase, code=0, signal=None, out_of_memory=False, why="")
        return lambda: reports.record_report(attempt, report)

    assert meet("jobs.reports.tell", told("registered"), told("exited")) == [None, None]
    row = Replica.objects.get()
    assert row.registered is not None
    assert (row.state, row.flushed) == (ReplicaState.EXITED, True)
