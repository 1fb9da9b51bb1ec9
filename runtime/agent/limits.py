"""Limits of one replica, enforced from outside.

A failed measurement ends the replica: a limit that nothing checks is not enforced. A shortage of descriptors or memory
on the machine may be temporary: it ends the replica only if it lasts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection

from runtime.agent import process_tree
from runtime.agent.disk_usage import Disk
from runtime.agent.exit_status import Force, Forced, mebibytes
from runtime.agent.process_tree import Unmeasurable
from runtime.agent.settings import Settings
from runtime.errors import TEMPORARY
from runtime.messages import training as messages

# Interval of the scan for memory and files that only descriptors hold. The scan costs more than the rest.
_DESCRIPTORS_SECONDS = 1.0
# How long a shortage of the machine may prevent a measurement of the replica.
_UNMEASURED_SECONDS = 5.0


class Limits:
    """Comparison of the processes below the process ``root`` with the settings.

    ``shared_memory``: the directory of the replica's own /dev/shm, if it has one. Only such a replica is sure to be
    readable from outside. ``joined``: further processes whose descendants belong to the replica.
    """

    def __init__(
        self,
        settings: Settings,
        root: int,
        shared_memory: int | None,
        clock: Callable[[], float] = time.monotonic,
        joined: Callable[[], Collection[int]] = tuple,
    ) -> None:
        self._clock = clock
        self._unmeasured_since: float | None = None
        self._settings, self._root, self._shared_memory = settings, root, shared_memory
        self._joined = joined
        self._isolated = shared_memory is not None
        self._device = os.fstat(shared_memory).st_dev if shared_memory is not None else -1
        self._held = process_tree.Held(0, 0)
        self._next_scan = 0.0
        self._disk = Disk(map(str, (settings.work, settings.output, settings.temporary)))
        if settings.disk:
            self._disk.start()

    def close(self) -> None:
        self._disk.close()
        if self._shared_memory is not None:
            os.close(self._shared_memory)

    def broken(self) -> Forced | None:
        """Return the limit that is exceeded, or the measurement that failed."""
        try:
            broken = self._processes() or self._memory() or self._files()
        except (Unmeasurable, OSError) as problem:
            return None if self._may_pass(problem) else _unmeasured(str(problem))
        self._unmeasured_since = None
        return broken

    def _may_pass(self, problem: Unmeasurable | OSError) -> bool:
        """Return whether the problem is a shortage that has not lasted long."""
        if self._unmeasured_since is None:
            self._unmeasured_since = self._clock()
        passing = problem.passing if isinstance(problem, Unmeasurable) else problem.errno in TEMPORARY
        return passing and self._clock() < self._unmeasured_since + _UNMEASURED_SECONDS

    def _processes(self) -> Forced | None:
        most = self._settings.processes
        self._census = process_tree.census(*self._roots(), enough=most)
        if most and self._census.tasks > most:
            return Forced(Force.PROCESSES, messages.TOO_MANY_PROCESSES(count=f"{most:,}"))
        return None

    def _memory(self) -> Forced | None:
        limit = self._settings.memory
        self._scan_descriptors()
        files = self._in_shared_memory() + self._held.memory
        if not limit or _total(self._census.memory, files) <= limit:
            return None
        used = _total(process_tree.shared_out(*self._roots()), files)
        if used <= limit:
            return None
        return Forced(Force.MEMORY, messages.OUT_OF_MEMORY_USED(used=mebibytes(used), limit=mebibytes(limit)))

    def _files(self) -> Forced | None:
        limit = self._settings.disk
        if not limit:
            return None
        if self._disk.problem:
            return _unmeasured(self._disk.problem)
        used = self._disk.used + self._held.disk
        if used <= limit:
            return None
        why = messages.OUT_OF_DISK(used=mebibytes(used), limit=mebibytes(limit))
        return Forced(Force.DISK, why)

    def _scan_descriptors(self) -> None:
        now = time.monotonic()
        if self._isolated and now >= self._next_scan:
            self._held = process_tree.held(*self._roots(), counted=self._device)
            self._next_scan = time.monotonic() + max(_DESCRIPTORS_SECONDS, 5 * (time.monotonic() - now))

    def _roots(self) -> tuple[int, ...]:
        return self._root, *self._joined()

    def _in_shared_memory(self) -> int:
        if self._shared_memory is None:
            return 0
        status = os.fstatvfs(self._shared_memory)
        return (status.f_blocks - status.f_bfree) * status.f_frsize


def _total(mapped: process_tree.Memory, files: int) -> int:
    """Return the total. Shared memory is mapped or only a file; memory that is both counts once."""
    return mapped.own + max(mapped.shared, files)


def _unmeasured(why: str) -> Forced:
    return Forced(Force.UNMEASURED, messages.USAGE_NOT_MEASURED(problem=why))
