"""Requests per second and connections to PostgreSQL of one web process with 200 clients, by size of its pool.

.venv/bin/python -m bench.database_pool
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from bench.environment import servers, stage

CLIENTS, SECONDS, ROUNDS = 200, 30.0, 2
_QUERY = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"


class Connections:
    """The largest number of connections to the server while the block ran."""

    def __init__(self, url: str) -> None:
        self._url, self.most = url, 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._watch, args=(stop,))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _watch(self, stop: threading.Event) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not stop.wait(0.05):
                row = connection.execute(_QUERY).fetchone()
                self.most = max(self.most, int(row[0]) if row else 0)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    await reader.readexactly(int(fields[b"content-length"]))
    return int(head.split(b" ", 2)[1])


async def _client(port: int, request: bytes, until: float, statuses: Counter[int], longest: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (begun := time.monotonic()) < until:
        statuses[await _ask(reader, writer, request)] += 1
        longest.append(time.monotonic() - begun)
    writer.close()


async def load(port: int, token: str) -> tuple[Counter[int], list[float]]:
    """Have all clients repeat a request; return the statuses and the durations."""
    request = f"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    statuses: Counter[int] = Counter()
    durations: list[float] = []
    until = time.monotonic() + SECONDS
    await asyncio.gather(*(_client(port, request, until, statuses, durations) for _ in range(CLIENTS)))
    return statuses, sorted(durations)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        folder = Path(scratch)
        with servers.postgres(folder) as url:
            stage.open_database(folder / "data", url)
            (token,) = stage.tokens(1)
            for number in range(ROUNDS * 2):
                size = (0, 20)[number % 2]
                more = {"REGATTA_DATABASE_POOL_SIZE": str(size), "REGATTA_CONNECTIONS_PER_ADDRESS": str(2 * CLIENTS)}
                with stage.web(folder, **more) as address:
                    connections = Connections(url)
                    begun = time.monotonic()
                    with connections.watched():
                        statuses, durations = asyncio.run(load(urlsplit(address).port or 0, token))
                    seconds = time.monotonic() - begun
                print(
                    f"pool {size:2}: {statuses[200] / seconds:6.1f} answered requests/s, at most {connections.most} "
                    f"connections, p50 {durations[len(durations) // 2]:.2f} s, p99 "
                    f"{durations[len(durations) * 99 // 100]:.2f} s, statuses {dict(statuses)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
