"""Private image registries of the test run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.image_registry import ImageRegistry


@pytest.fixture(scope="session")
def image_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    server = ImageRegistry(tmp_path_factory.mktemp("image-registry"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def guarded_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageRegistry]:
    """Start a registry that requires a password."""
    server = ImageRegistry(tmp_path_factory.mktemp("guarded-registry"), guarded=True)
    server.start()
    yield server
    server.stop()
