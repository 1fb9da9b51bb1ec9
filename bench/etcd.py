"""An etcd for a measurement, as it is installed: started on free ports of the loopback, with its data on the disk."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime import coordination
from runtime.coordination.base import StoreUnavailable

START_SECONDS = 20.0


@contextmanager
def running_etcd(directory: Path) -> Iterator[str]:
    """Its address as a URL. It is stopped in the end."""
    client, peer = (f"127.0.0.1:{_free_port()}" for _ in range(2))
    process = subprocess.Popen(
        [
            *("etcd", "--data-dir", str(directory / "etcd"), "--log-level", "error"),
            *("--listen-client-urls", f"http://{client}", "--advertise-client-urls", f"http://{client}"),
            *("--listen-peer-urls", f"http://{peer}", "--initial-advertise-peer-urls", f"http://{peer}"),
            *("--initial-cluster", f"default=http://{peer}"),
        ]
    )
    try:
        _wait_for(f"etcd://{client}")
        yield f"etcd://{client}"
    finally:
        process.kill()
        process.wait()


def _wait_for(url: str) -> None:
    store = coordination.connect(url)
    give_up = time.monotonic() + START_SECONDS
    while True:
        try:
            store.get("/")
            break
        except StoreUnavailable:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.1)
    store.close()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
