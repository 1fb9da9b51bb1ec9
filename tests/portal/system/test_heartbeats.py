"""Heartbeats of the portal's processes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError

from portal.common.version import VERSION
from portal.models import ProcessHeartbeat
from portal.system import heartbeats
from portal.system.heartbeats import HeartbeatPruning, Reporter
from tests.waiting import until

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
_log = logging.getLogger(__name__)


@pytest.fixture
def reporter(transactional_db: None) -> Iterator[Reporter]:
    """A reporter with a thread, as in a process."""
    made = Reporter("sweep", every=0.01)
    made.start()
    yield made
    made.stop()


def reported(**values: Any) -> bool:
    return ProcessHeartbeat.objects.filter(**values).exists()


def test_a_process_reports_its_identity_and_version(reporter: Reporter) -> None:
    until("the row is there", lambda: reported(kind="sweep", version=VERSION))


def test_a_process_has_one_row_however_often_it_reports(db: None) -> None:
    reporter = Reporter("web", clock=lambda: NOW)
    reporter.write()
    reporter.write()
    assert ProcessHeartbeat.objects.count() == 1


def test_a_process_that_ends_in_order_removes_its_row(reporter: Reporter) -> None:
    until("the row is there", ProcessHeartbeat.objects.exists)
    reporter.stop()
    assert not ProcessHeartbeat.objects.exists()


def test_the_duration_of_the_last_pass_is_reported(reporter: Reporter) -> None:
    reporter.passed(1.5)
    until("it is reported", lambda: reported(pass_seconds=1.5))


def test_an_error_in_the_log_is_reported_without_the_text_of_its_exception(reporter: Reporter) -> None:
    try:
        raise ValueError("text of a user")
    except ValueError:
        _log.exception("The task %s failed.", "e-mail")
    until("it is reported", lambda: reported(last_error="The task e-mail failed. (ValueError)"))


@pytest.mark.invariant("A heartbeat contains no secret of the settings or of the environment.")
def test_a_secret_in_an_error_is_removed(db: None, settings: Any) -> None:
    settings.SECRET_KEY = "a-secret-that-signs"
    reporter = Reporter("web")
    reporter._errors.emit(logging.makeLogRecord({"msg": "bad key a-secret-that-signs", "levelno": logging.ERROR}))
    reporter.write()
    assert ProcessHeartbeat.objects.get().last_error == "bad key [removed]"


def test_a_long_error_is_shortened(db: None) -> None:
    reporter = Reporter("web")
    reporter._errors.emit(logging.makeLogRecord({"msg": "x" * 9000, "levelno": logging.ERROR}))
    reporter.write()
    assert len(ProcessHeartbeat.objects.get().last_error) == heartbeats.ERROR_CHARACTERS


@pytest.mark.invariant("A heartbeat that cannot be written does not stop its process; the next one is written.")
def test_a_failed_write_is_followed_by_the_next(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Reporter("worker", every=0.01)
    write, failures = reporter.write, [DatabaseError("away"), DatabaseError("away")]

    def sometimes() -> None:
        if failures:
            raise failures.pop()
        write()

    monkeypatch.setattr(reporter, "write", sometimes)
    reporter.start()
    until("it is written", ProcessHeartbeat.objects.exists)
    reporter.stop()


def test_rows_of_a_day_ago_are_removed(db: None) -> None:
    Reporter("web", clock=lambda: NOW - timedelta(days=1, seconds=1)).write()
    Reporter("web", clock=lambda: NOW - timedelta(hours=23)).write()
    HeartbeatPruning().when_due(NOW)
    assert [row.seen for row in ProcessHeartbeat.objects.all()] == [NOW - timedelta(hours=23)]
