"""Two concurrent transactions: the second waits for the row that the first has locked. ``test_postgres`` runs this
directory.

The embedded database has one writer at a time, so that a missing lock changes nothing there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import connection

SECONDS = 20.0
Action = Callable[[], Any]


def _somebody_waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)")
        return bool(cursor.fetchone()[0])


class Meeting:
    """Runs two transactions. The first stops at ``point`` until the second one waits for a lock, or has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
        module, _, name = point.rpartition(".")
        self._original = getattr(__import__(module, fromlist=[name]), name)
        self._there, self._over = threading.Event(), threading.Event()
        self._first: threading.Thread | None = None
        monkeypatch.setattr(point, self._at_point)

    def _at_point(self, *given: Any, **named: Any) -> Any:
        if threading.current_thread() is self._first and not self._there.is_set():
            self._there.set()
            deadline = time.monotonic() + SECONDS
            while not self._over.wait(0.01) and not _somebody_waits():
                assert time.monotonic() < deadline, "the second transaction neither waits nor ends"
        return self._original(*given, **named)

    def of(self, first: Action, second: Action) -> list[Any]:
        """Return what each of them returned or raised."""
        results: dict[int, Any] = {}

        def run(number: int, action: Action) -> None:
            try:
                results[number] = action()
            except Exception as error:  # noqa: BLE001  a result
                results[number] = error
            finally:
                connection.close()
                if number:
                    self._over.set()

        self._first = threading.Thread(target=run, args=(0, first))
        other = threading.Thread(target=run, args=(1, second))
        self._first.start()
        assert self._there.wait(SECONDS), results
        other.start()
        for thread in (self._first, other):
            thread.join(2 * SECONDS)
        return [results[0], results[1]]


Meet = Callable[..., list[Any]]


def stop_before(statement: str, point: Action) -> AbstractContextManager[None]:
    """Call ``point`` before each statement with this beginning."""

    def execute(run: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith(statement):
            point()
        return run(sql, *rest)

    return connection.execute_wrapper(execute)


@pytest.fixture
def meet(monkeypatch: pytest.MonkeyPatch) -> Meet:
    return lambda point, first, second: Meeting(monkeypatch, point).of(first, second)
