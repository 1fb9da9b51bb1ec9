"""The periodic look at notebooks: what they say, when they are stopped, and the end of their tokens."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from jobs.backends.base import AttemptRef
from jobs.control.errors import Unreachable
from jobs.lifecycle.states import JobState
from jobs.models import Job, JobEvent, Notebook
from jobs.notebooks import idle, selectors
from jobs.notebooks.idle import NotebookWatch, activity_of
from rbac import tokens
from tests.jobs.notebooks.conftest import NOW
from tests.personas import Personas

pytestmark = pytest.mark.django_db(transaction=True)
LATER = NOW + timedelta(hours=1)


class Jupyter:
    """Answers as a notebook would, or not at all."""

    def __init__(self, answer: dict[str, Any] | None) -> None:
        self.answer = answer
        self.paths: list[str] = []

    def get_json(self, ref: AttemptRef, replica: str, socket: str, path: str, seconds: float) -> dict[str, Any]:
        self.paths.append(path)
        if self.answer is None:
            raise Unreachable("No answer.")
        return self.answer


def said(*, busy: bool, last: datetime) -> dict[str, Any]:
    return {"busy": busy, "last_activity": last.isoformat(), "kernels": 1, "terminals": 0}


def look(answer: dict[str, Any] | None, at: datetime) -> Jupyter:
    jupyter = Jupyter(answer)
    NotebookWatch(jupyter.get_json).when_due(at)
    return jupyter


def is_stopped() -> bool:
    return Job.objects.get().cancel_requested is not None


@pytest.mark.invariant("A notebook is stopped after its idle time, and never while a cell runs or a terminal is busy.")
def test_it_is_stopped_after_its_idle_time(running: Notebook) -> None:
    look(said(busy=False, last=NOW), NOW + timedelta(minutes=29))
    assert not is_stopped()
    look(said(busy=False, last=NOW), NOW + timedelta(minutes=30))
    assert is_stopped()
    assert Job.objects.get().cancelled_by is None
    assert JobEvent.objects.get().kind == "idle"


def test_a_busy_one_is_not_stopped(running: Notebook) -> None:
    look(said(busy=True, last=NOW), LATER)
    assert not is_stopped()
    # And its time begins again when it is not busy any more.
    look(said(busy=False, last=NOW), LATER + timedelta(minutes=29))
    assert Notebook.objects.get().last_used == LATER


def test_activity_begins_the_time_again(running: Notebook) -> None:
    look(said(busy=False, last=LATER - timedelta(minutes=5)), LATER)
    assert not is_stopped()
    notebook = Notebook.objects.select_related("job").get()
    assert selectors.stops_at(notebook) == LATER + timedelta(minutes=25)


def test_one_that_does_not_answer_is_not_stopped(running: Notebook) -> None:
    look(None, LATER)
    assert not is_stopped()
    assert Notebook.objects.get().looked == LATER


def test_without_an_idle_time_it_is_never_stopped(running: Notebook) -> None:
    Notebook.objects.update(idle_seconds=0)
    look(said(busy=False, last=NOW), LATER)
    assert not is_stopped()


def test_activity_in_the_future_counts_as_now(running: Notebook) -> None:
    look(said(busy=False, last=LATER + timedelta(days=365)), LATER)
    assert Notebook.objects.get().active == LATER


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"busy": False, "last_activity": 7},
        {"last_activity": NOW.isoformat()},
        {"busy": False, "last_activity": "0001-01-01T00:00:00+23:59"},
        {"busy": False, "last_activity": "9999-12-31T23:59:59-23:59"},
        {"busy": False, "last_activity": "1999-12-31T23:59:59+00:00"},
    ],
)
def test_an_answer_that_makes_no_sense_counts_as_busy(body: dict[str, Any]) -> None:
    assert activity_of(body).busy


def test_it_is_asked_at_intervals(running: Notebook) -> None:
    jupyter = look(said(busy=False, last=NOW), NOW)
    assert jupyter.paths == [f"/n/team/notebooks/{running.pk}/regatta/activity"]
    assert look(said(busy=False, last=NOW), NOW + idle.EVERY / 2).paths == []


def test_one_that_is_stopped_is_not_asked(running: Notebook) -> None:
    Job.objects.update(cancel_requested=NOW)
    assert look(said(busy=False, last=NOW), LATER).paths == []


@pytest.mark.invariant("The token in a notebook ends with the notebook's job.")
def test_the_token_ends_with_the_job(running: Notebook, personas: Personas) -> None:
    token = tokens.create_bound_token(
        user=personas.developer, namespace=personas.namespace, name="notebook", secret="rgt_secret"
    )
    Notebook.objects.update(token=token)
    look(None, NOW)
    token.refresh_from_db()
    assert token.revoked is None
    Job.objects.update(state=JobState.CANCELLED)
    look(None, NOW)
    token.refresh_from_db()
    assert token.revoked is not None
    assert Notebook.objects.get().token is None
