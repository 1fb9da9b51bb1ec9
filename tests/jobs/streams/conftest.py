"""Fixture: an attempt whose replicas write to the streams."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from jobs.models import Attempt, Job
from jobs.streams import metric_names, rollups, store
from tests.factories import make_attempt, make_job


@dataclass(frozen=True)
class Writer:
    """Appends numbered lines and points as a replica's agent does."""

    attempt: Attempt
    replica: str = "trainer-0"

    @property
    def job(self) -> Job:
        return self.attempt.job

    def lines(self, first: int, last: int) -> int:
        rows = [(float(number), "stdout", f"{self.replica} {number}") for number in range(first, last + 1)]
        return store.append_logs(
            job_id=self.job.pk, attempt=self.attempt, replica=self.replica, first=first, lines=rows
        )

    def points(self, first: int, last: int, key: str = "cost", values: dict[int, float] | None = None) -> int:
        """Append points: point ``n`` has step n, and value 1/n unless ``values`` has one for it."""
        rows = [(1e9 + n, float(n), key, (values or {}).get(n, 1 / n)) for n in range(first, last + 1)]
        return store.append_metrics(
            job_id=self.job.pk, attempt=self.attempt, replica=self.replica, first=first, points=rows
        )

    def other(self, replica: str) -> Writer:
        return Writer(self.attempt, replica)


@pytest.fixture
def writer(db: None) -> Writer:
    rollups.forget()
    metric_names.forget()
    return Writer(make_attempt(make_job(attempt=1)))
