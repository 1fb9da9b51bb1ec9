"""One portal for all cases; those that kill it start it again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from regatta import Client
from tests.end_to_end.support.portal import House


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A running portal, the same for all."""
    made = House(
        tmp_path_factory.mktemp("house") / "data",
        REGATTA_REGISTRATION_SECONDS="25",
        REGATTA_STOP_GRACE_SECONDS="2",
        REGATTA_SIGN_IN_RATE="1000/min",
        REGATTA_ELASTIC_COOL_DOWN_SECONDS="2",
    )
    with made.open() as house:
        yield house


@pytest.fixture
def portal(house: House) -> Iterator[Client]:
    """The admin's client."""
    with house.client() as client:
        yield client


@pytest.fixture
def http(house: House) -> Iterator[httpx.Client]:
    """Bare requests in the admin's name."""
    with house.http() as client:
        yield client


@pytest.fixture
def digits(portal: Client) -> dict[str, Any]:
    """The example "Recognise digits" with two trainers, as the page offers it."""
    spec = portal.example("digits")
    spec["roles"]["trainer"]["replicas"] = 2
    return spec
