"""Counting of failed database statements."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, OperationalError, connection

from portal.common.monitoring import metrics
from portal.common.monitoring.database_errors import _watch
from rbac.models import User

pytestmark = pytest.mark.django_db


def counted(error: str) -> float:
    return float(metrics.DATABASE_ERRORS.labels(error)._value.get())


@pytest.fixture(autouse=True)
def _watched() -> None:
    _watch(connection)


def test_a_failed_statement_is_counted_by_its_class() -> None:
    User.objects.create(username="ada")
    before = counted("IntegrityError")
    with pytest.raises(IntegrityError):
        User.objects.create(username="ada")
    assert counted("IntegrityError") == before + 1


def test_a_statement_that_succeeds_is_not_counted() -> None:
    before = counted("OperationalError")
    User.objects.count()
    assert counted("OperationalError") == before


def test_a_connection_is_watched_once() -> None:
    _watch(connection)
    before = counted("OperationalError")
    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("SELECT * FROM nowhere")
    assert counted("OperationalError") == before + 1
