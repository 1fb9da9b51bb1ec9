"""Celery's file-system broker with atomic writes: readers see a message or a table of queues complete or not at all.

kombu opens a file under its final name and then writes it. A reader in another process may find half a message, and the
worker ends. This transport writes a file under another name and renames it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kombu.transport import filesystem

from portal.common.monitoring import heartbeat

_log = logging.getLogger(__name__)
# Each read lists the directory. Without a worker messages only accumulate; the sweep repeats the work of a dropped one.
MOST_MESSAGES = 1000


class Channel(filesystem.Channel):
    """One connection to the directories of the broker."""

    def _put(self, queue: str, payload: Any, **_: Any) -> None:  # type: ignore[override]  # as kombu's own does
        """Write a message, or drop it when ``MOST_MESSAGES`` are waiting."""
        if sum(1 for _ in Path(self.data_folder_out).iterdir()) >= MOST_MESSAGES:
            _log.warning(
                "%d messages wait for the worker; one more was dropped. See that the worker runs.", MOST_MESSAGES
            )
            return
        # The names sort by age; the part after the first dot names the queue of a message.
        name = f"{time.monotonic_ns() // 1_000_000}_{uuid.uuid4()}.{queue}.msg"
        _write_whole(Path(self.data_folder_out) / name, json.dumps(payload))

    def _queue_bind(self, exchange: str, routing_key: str | None, pattern: str | None, queue: str | None) -> None:
        table: Path = self._exchange_file(exchange)  # type: ignore[no-untyped-call]
        row = [routing_key or "", pattern or "", queue or ""]
        with _alone(Path(self.control_folder) / "tables.lock"):
            rows = json.loads(table.read_text()) if table.exists() else []
            if row not in rows:
                _write_whole(table, json.dumps([row, *rows]))


class Transport(filesystem.Transport):
    """The transport that ``broker_transport`` names when the settings use ``filesystem://``."""

    Channel = Channel

    def drain_events(self, connection: Any, timeout: float | None = None) -> Any:  # type: ignore[override]  # as kombu's own
        """Read messages. The worker's loop calls this in every turn, so it is the loop's heartbeat."""
        heartbeat.OF_PROCESS.beat()
        return super().drain_events(connection, timeout)  # type: ignore[no-untyped-call]


def _write_whole(path: Path, text: str) -> None:
    # No dot in the temporary name: no queue takes the file for one of its messages.
    unfinished = path.with_name(f"unfinished-{uuid.uuid4().hex}")
    unfinished.write_text(text)
    unfinished.replace(path)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock that excludes other processes."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
