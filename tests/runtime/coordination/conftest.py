"""etcd servers: one for all tests that leave it whole, and fresh ones for those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.etcd_server import EtcdServer


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd that asks for users."""
    server = EtcdServer(tmp_path_factory.mktemp("guarded"))
    server.start()
    server.switch_authentication_on()
    yield server
    server.kill()


@pytest.fixture
def start_etcd(tmp_path: Path) -> Iterator[Callable[..., EtcdServer]]:
    started: list[EtcdServer] = []

    def start(*arguments: str) -> EtcdServer:
        started.append(EtcdServer(tmp_path, *arguments))
        started[-1].start()
        return started[-1]

    yield start
    for server in started:
        server.kill()
