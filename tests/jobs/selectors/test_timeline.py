"""Pages of a job's timeline: bounded, complete together, and limited to the job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from jobs.lifecycle.states import JobState
from jobs.messages import jobs as messages
from jobs.models import Job, JobEvent, Transition
from jobs.selectors import timeline
from portal.common.errors import ValidationFailed
from tests.factories import make_job
from tests.messages import pattern
from tests.personas import Personas

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def change(job: Job, at: float) -> None:
    Transition.objects.create(job=job, attempt=1, at=MOMENT + timedelta(seconds=at), state=JobState.RUNNING, why="c")


def event(job: Job, at: float) -> None:
    JobEvent.objects.create(job=job, attempt=1, at=MOMENT + timedelta(seconds=at), kind="task", text="e")


def pages(job: Job, limit: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the pages from the newest to the oldest."""
    before = ""
    while True:
        page = timeline.page_of(job, before=before, limit=limit)
        yield page.entries
        if page.older is None:
            return
        before = page.older


class Walking(TestCase):
    @given(entries=st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=12), limit=st.integers(1, 5))
    def test_pages_put_together_are_the_timeline(self, entries: list[tuple[bool, int]], limit: int) -> None:
        """This holds for several entries of both tables with the same time, too."""
        job = make_job()
        for is_change, at in entries:
            (change if is_change else event)(job, at)
        found = list(pages(job, limit))
        assert all(len(page) <= limit for page in found)
        walked = [entry for page in reversed(found) for entry in page]
        assert walked == timeline.page_of(job, limit=100).entries
        assert len({entry["id"] for entry in walked}) == len(entries)
        assert [entry["time"] for entry in walked] == sorted(
            (MOMENT + timedelta(seconds=at)).isoformat() for _, at in entries
        )


@pytest.mark.django_db
def test_new_entries_move_no_page() -> None:
    job = make_job()
    for at in range(6):
        event(job, at)
    newest = timeline.page_of(job, limit=3)
    event(job, 10)
    assert newest.older is not None
    older = timeline.page_of(job, before=newest.older, limit=3)
    assert [entry["time"][17:19] for entry in older.entries + newest.entries] == [f"{at:02}" for at in range(6)]


@pytest.mark.django_db
def test_a_long_timeline_is_read_by_a_bounded_number_of_rows(django_assert_num_queries: Any) -> None:
    job = make_job()
    JobEvent.objects.bulk_create(
        JobEvent(job=job, attempt=1, at=MOMENT + timedelta(seconds=at), kind="task", text="e") for at in range(2500)
    )
    with django_assert_num_queries(2) as queries:
        page = timeline.page_of(job)
    assert len(page.entries) == timeline.PAGE
    assert all(f"LIMIT {timeline.PAGE + 1}" in query["sql"] for query in queries.captured_queries)


@pytest.mark.parametrize("cursor", ["x", "1-2-3", "1--1", "9" * 18 + "-0-1", "1-0-1 ", "١-0-1", "1-0-" + "9" * 19])
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(ValidationFailed, match=pattern(messages.TIMELINE_CURSOR_INVALID)):
        timeline.Place.parse(cursor)


@pytest.mark.django_db
def test_the_api_gives_pages_with_their_cursors(personas: Personas) -> None:
    job = make_job(personas.namespace)
    for at in range(5):
        event(job, at)
    address = f"/api/v1/jobs/{job.pk}/events"
    client = personas.client("viewer")
    newest = client.get(address, {"limit": 3}).json()
    older = client.get(address, {"limit": 3, "before": newest["older"]}).json()
    assert (len(newest["events"]), len(older["events"]), older["older"]) == (3, 2, None)
    for query in ({"limit": 0}, {"limit": timeline.MOST + 1}, {"before": "x"}):
        assert client.get(address, query).status_code == 422


@pytest.mark.django_db
def test_a_cursor_of_another_job_shows_nothing_of_it(personas: Personas) -> None:
    own, other = make_job(personas.namespace), make_job()
    event(other, 1)
    event(other, 2)
    cursor = timeline.page_of(other, limit=1).older
    assert personas.client("viewer").get(f"/api/v1/jobs/{own.pk}/events", {"before": cursor}).json()["events"] == []
