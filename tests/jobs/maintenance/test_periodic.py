"""Periodic tasks of the sweep: a failing task does not block the others, and is shown to admins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from django.db import DatabaseError, OperationalError
from django.db.models import QuerySet

from jobs.maintenance import periodic
from jobs.maintenance.periodic import Periodic, Task
from jobs.models import FailedTask
from portal.common.monitoring import heartbeat, metrics
from tests.personas import Personas

pytestmark = pytest.mark.django_db
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


class Failing:
    """A task that raises as long as ``fails`` is set, and records the times of its runs."""

    def __init__(self, *, fails: bool = True) -> None:
        self.fails = fails
        self.runs: list[datetime] = []

    def __call__(self, now: datetime) -> None:
        self.runs.append(now)
        if self.fails:
            raise RuntimeError("the disk is full")


def at(seconds: float) -> datetime:
    return MOMENT + timedelta(seconds=seconds)


@pytest.mark.invariant("A failing periodic task does not prevent any other task from running.")
def test_a_task_that_raises_keeps_no_other_from_its_turn() -> None:
    broken, healthy = Failing(), Failing(fails=False)
    tasks = Periodic([Task("broken", broken), Task("healthy", healthy)], every=1)
    for second in range(3):
        tasks.run(at(second))
    assert len(healthy.runs) == 3


def test_a_sweep_without_the_lease_runs_only_the_tasks_of_each_process() -> None:
    shared, own = Failing(fails=False), Failing(fails=False)
    tasks = Periodic([Task("shared", shared), Task("own", own, everywhere=True)], every=1)
    tasks.run(at(0), leads=lambda: False)
    assert (len(shared.runs), len(own.runs)) == (0, 1)


def test_a_sweep_that_loses_the_lease_in_a_pass_begins_no_further_task() -> None:
    held = [True]
    first, second = (lambda now: held.clear()), Failing(fails=False)
    Periodic([Task("first", first), Task("second", second)], every=1).run(at(0), leads=lambda: bool(held))
    assert second.runs == []


def test_it_is_logged_by_its_name_with_the_pause(caplog: pytest.LogCaptureFixture) -> None:
    Periodic([Task("sealing", Failing())], every=1).run(MOMENT)
    assert "The periodic task sealing failed (1 in a row); the next try is in 0:00:02." in caplog.text


def test_it_is_tried_again_after_pauses_that_double_up_to_a_bound() -> None:
    broken = Failing()
    tasks = Periodic([Task("broken", broken)], every=1)
    for second in range(2000):
        tasks.run(at(second))
    pauses = [(later - earlier).total_seconds() for earlier, later in zip(broken.runs, broken.runs[1:], strict=False)]
    assert pauses[:5] == [2, 4, 8, 16, 32]
    assert max(pauses) == periodic.LONGEST_PAUSE.total_seconds()


def test_after_it_has_gone_well_it_runs_every_time() -> None:
    task = Failing()
    tasks = Periodic([Task("broken", task)], every=1)
    tasks.run(at(0))
    task.fails = False
    for second in (2, 3, 4):
        tasks.run(at(second))
    assert len(task.runs) == 4


def test_a_failure_is_noted_until_the_task_goes_well() -> None:
    task = Failing()
    tasks = Periodic([Task("broken", task)], every=1)
    tasks.run(at(0))
    tasks.run(at(2))
    row = FailedTask.objects.get()
    assert (row.name, row.since, row.last, row.failures, row.error) == ("broken", at(0), at(2), 2, "the disk is full")
    task.fails = False
    tasks.run(at(60))
    assert not FailedTask.objects.exists()


def test_a_failure_stored_by_an_earlier_process_is_cleared_by_the_first_success() -> None:
    FailedTask.objects.create(name="sealing", since=MOMENT, last=MOMENT, failures=3, error="gone")
    Periodic([Task("sealing", lambda now: None)], every=1).run(MOMENT)
    assert not FailedTask.objects.exists()


def test_where_the_note_cannot_be_made_the_others_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise DatabaseError("the database is away")

    monkeypatch.setattr(QuerySet, "update_or_create", away)
    healthy = Failing(fails=False)
    Periodic([Task("broken", Failing()), Task("healthy", healthy)], every=1).run(MOMENT)
    assert len(healthy.runs) == 1


def test_a_lost_database_ends_the_run_and_is_no_failure_of_the_task() -> None:
    def lose(now: datetime) -> None:
        raise OperationalError("connection refused") from psycopg.OperationalError("connection refused")

    later = Failing(fails=False)
    tasks = Periodic([Task("first", lose), Task("later", later)], every=1)
    for _ in range(2):
        with pytest.raises(OperationalError):
            tasks.run(MOMENT)
    assert later.runs == []
    assert not FailedTask.objects.exists()


def test_the_admins_page_names_a_failing_task_and_its_error(personas: Personas) -> None:
    FailedTask.objects.create(name="sealing", since=MOMENT, last=MOMENT, failures=3, error="the disk is full")
    page = personas.client("admin").get("/admin/cluster").content.decode()
    assert "sealing" in page
    assert "the disk is full" in page


def test_a_failure_and_its_time_are_counted_under_the_task_s_name() -> None:
    errors, seconds = metrics.SWEEP_ERRORS.labels("counted"), metrics.SWEEP_TASK_SECONDS.labels("counted")
    before = errors._value.get(), seconds._value.get()
    Periodic([Task("counted", Failing())], every=1).run(MOMENT)
    assert errors._value.get() == before[0] + 1
    assert seconds._value.get() > before[1]


def test_a_long_pass_beats_after_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[str] = []
    monkeypatch.setattr(heartbeat.OF_PROCESS, "beat", lambda: beats.append("beat"))
    Periodic([Task("one", Failing(fails=False)), Task("two", Failing())], every=1).run(MOMENT)
    assert len(beats) == 2
