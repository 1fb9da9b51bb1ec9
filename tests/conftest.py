"""Fixtures of the Django side, for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.cache import cache

from tests.personas import Personas, make_personas


@pytest.fixture(autouse=True)
def _fresh_cache() -> Iterator[None]:
    """Counters of failed sign-ins and the like do not pass from one test to the next."""
    yield
    cache.clear()


@pytest.fixture
def personas(db: None) -> Personas:
    """Everybody around the namespace ``team``."""
    return make_personas()
