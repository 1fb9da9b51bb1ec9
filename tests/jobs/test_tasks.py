"""Celery tasks of the worker."""

from __future__ import annotations

import uuid

import psycopg
import pytest
from django.db import OperationalError

from jobs.reconcile import reconciler
from jobs.tasks import reconcile_job

JOB = str(uuid.UUID(int=1))


def test_a_hint_without_a_database_is_dropped_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lose(job_id: str) -> None:
        raise OperationalError("connection refused") from psycopg.OperationalError("connection refused")

    monkeypatch.setattr(reconciler, "reconcile", lose)
    reconcile_job(JOB)
    assert [(record.levelname, bool(record.exc_info)) for record in caplog.records] == [("WARNING", False)]


def test_any_other_error_of_the_database_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job_id: str) -> None:
        raise OperationalError("syntax error") from psycopg.errors.SyntaxError("syntax error")

    monkeypatch.setattr(reconciler, "reconcile", fail)
    with pytest.raises(OperationalError):
        reconcile_job(JOB)
