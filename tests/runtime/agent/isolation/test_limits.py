"""A replica's usage is measured all the time. A shortage of the machine may prevent it for a moment."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime.agent import disk_usage, process_tree
from runtime.agent.disk_usage import Disk
from runtime.agent.limits import Limits
from runtime.agent.settings import Settings
from runtime.messages import training as messages
from tests.messages import mentions
from tests.waiting import until


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def short(code: int) -> Callable[..., Any]:
    """Return a system call that fails with ``code``."""

    def fail(*_: object, **__: object) -> Any:
        raise OSError(code, os.strerror(code), "a path")

    return fail


def limits(tmp_path: Path, clock: Clock) -> Limits:
    settings = SimpleNamespace(
        work=tmp_path, output=tmp_path, temporary=tmp_path, memory=1 << 40, processes=1000, disk=0
    )
    return Limits(cast(Settings, settings), os.getpid(), None, clock)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_shortage_of_the_machine_for_a_moment_ends_no_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    clock = Clock()
    watched = limits(tmp_path, clock)
    for began in (0.0, 60.0):  # the second one is unrelated to the first
        clock.now = began
        with monkeypatch.context() as patched:
            patched.setattr(process_tree.os, "open", short(code))
            assert watched.broken() is None
            clock.now += 4.0
            assert watched.broken() is None
        assert watched.broken() is None


def test_a_shortage_that_lasts_ends_the_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    watched = limits(tmp_path, clock)
    monkeypatch.setattr(process_tree.os, "open", short(errno.EMFILE))
    watched.broken()
    clock.now = 5.0
    broken = watched.broken()
    assert broken is not None and mentions(broken.why, messages.USAGE_NOT_MEASURED)


def test_blocked_measurement_ends_the_replica_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = limits(tmp_path, Clock())
    monkeypatch.setattr(process_tree.os, "open", short(errno.EACCES))
    assert watched.broken() is not None


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Clock], Disk]:
    """Measure a directory whose first scan fails."""
    monkeypatch.setattr(disk_usage, "_PAUSE_SECONDS", 0.001)
    size, scans = disk_usage.size, list[int]()

    def start(code: int, clock: Clock) -> Disk:
        def scan(directories: Any) -> int:
            scans.append(1)
            if len(scans) == 1:
                short(code)()
            return size(directories)

        monkeypatch.setattr(disk_usage, "size", scan)
        (tmp_path / "file").write_bytes(b"x")
        found = Disk([str(tmp_path)], clock)
        found.start()
        return found

    return start


def test_a_directory_that_a_shortage_hid_is_measured_again(measured: Callable[[int, Clock], Disk]) -> None:
    found = measured(errno.ENFILE, Clock())
    until("the directory is measured", lambda: found.used)
    found.close()
    assert not found.problem


def test_a_directory_that_cannot_be_read_is_a_problem(measured: Callable[[int, Clock], Disk]) -> None:
    found = measured(errno.EACCES, Clock())
    assert until("the problem is there", lambda: found.problem) == "a path: Permission denied"


def test_a_measurement_that_fails_for_any_reason_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(_directories: object) -> int:
        raise MemoryError

    monkeypatch.setattr(disk_usage, "size", short)
    found = Disk([str(tmp_path)])
    found._run()
    assert found.problem == "MemoryError()"
