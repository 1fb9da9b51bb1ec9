"""Fresh etcd servers, for tests that change or damage theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.etcd_server import EtcdServer


@pytest.fixture
def start_etcd(tmp_path: Path) -> Iterator[Callable[..., EtcdServer]]:
    started: list[EtcdServer] = []

    def start(*arguments: str, **options: Any) -> EtcdServer:
        started.append(EtcdServer(tmp_path, *arguments, **options))
        started[-1].start()
        return started[-1]

    yield start
    for server in started:
        server.kill()
