"""Installed etcd for a measurement, on free ports of the loopback, with its data on the disk."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.environment.servers import free_port, program
from runtime import coordination
from runtime.coordination.base import StoreUnavailable

START_SECONDS = 20.0


@contextmanager
def running_etcd(directory: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Provide its URL inside the block. Raises Absent."""
    client, peer = (f"{host}:{free_port()}" for _ in range(2))
    process = subprocess.Popen(
        [
            *(program("etcd"), "--data-dir", str(directory / "etcd"), "--log-level", "error"),
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
