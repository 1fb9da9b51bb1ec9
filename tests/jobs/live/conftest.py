"""Fixtures of the websocket's tests."""

from __future__ import annotations

import pytest

from jobs.lifecycle.states import JobState
from tests.factories import make_attempt, make_job
from tests.jobs.sockets import Headers, headers_of
from tests.jobs.streams.conftest import Writer
from tests.personas import Personas, make_personas


@pytest.fixture
def people(transactional_db: None) -> Personas:
    return make_personas()


@pytest.fixture
def writer(people: Personas) -> Writer:
    return Writer(make_attempt(make_job(people.namespace, people.owner, attempt=1, state=JobState.RUNNING)))


@pytest.fixture
def browser(people: Personas) -> Headers:
    """Return the headers with which a page of the viewer opens a socket."""
    return headers_of(people.client("viewer"))
