"""One portal for all cases; tests that kill it start it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser

from regatta import Client
from tests import browser
from tests.end_to_end.support.browser import Person
from tests.end_to_end.support.portal import RunningPortal


@pytest.fixture(scope="session")
def running_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A running portal, shared by all tests."""
    made = RunningPortal(
        tmp_path_factory.mktemp("running_portal") / "data",
        REGATTA_REGISTRATION_SECONDS="25",
        REGATTA_STOP_GRACE_SECONDS="2",
        REGATTA_SIGN_IN_RATE="1000/min",
        REGATTA_ELASTIC_COOL_DOWN_SECONDS="2",
    )
    with made.open() as running_portal:
        yield running_portal


@pytest.fixture
def portal(running_portal: RunningPortal) -> Iterator[Client]:
    """The admin's client."""
    with running_portal.client() as client:
        yield client


@pytest.fixture
def http(running_portal: RunningPortal) -> Iterator[httpx.Client]:
    """Plain HTTP requests as the admin."""
    with running_portal.http() as client:
        yield client


@pytest.fixture
def digits(portal: Client) -> dict[str, Any]:
    """The example "Recognise digits" with two trainers, as on the page."""
    spec = portal.examples.get("digits")
    spec["roles"]["trainer"]["replicas"] = 2
    return spec


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.chromium() as started:
        yield started


@pytest.fixture
def person(chromium: Browser, running_portal: RunningPortal) -> Iterator[Callable[[], Person]]:
    """Function that creates a signed-in user; at the end none of their browsers may have reported errors."""
    people: list[Person] = []

    def arrive() -> Person:
        people.append(Person(chromium, running_portal))
        people[-1].sign_in()
        return people[-1]

    yield arrive
    complaints = [(somebody.violations(), somebody.real_complaints()) for somebody in people]
    for somebody in people:
        somebody.leave()
    assert complaints == [([], [])] * len(complaints)
