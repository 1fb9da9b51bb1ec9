"""Stop of a trainer between two steps, at the request of its agent.

A request has a target: in sync mode, the version of the parameters that the trainer must have reached before it stops.
The one who pauses a job raises the target of trainers that others in the middle of a step wait for, so all stop at the
same version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

_LOOK_SECONDS: Final = 1.0

# Called with whether the trainer stands, and the version that it has reached; None: its steps are not counted.
Report = Callable[[bool, int | None], object]


class PauseGate:
    """The gate that the loop over the batches passes before each step."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._changed = threading.Condition()
        self._on = False
        self._target = 0
        self._stands = False
        self._version: int | None = None

    @property
    def is_requested(self) -> bool:
        return self._on

    def request(self, on: bool, target: int) -> None:
        """Take a request: stop at the next step with at least this version, or go on. From any thread."""
        with self._changed:
            self._on, self._target = on, target
            self._stands = self._stands and self._stops_at(self._version)
            self._changed.notify_all()
            self._report(self._stands, self._version)

    def note(self, version: int | None) -> None:
        """Note the version at the beginning of a step, for reports during it."""
        self._version = version

    def wait(self, version: int | None, leaves: Callable[[], object]) -> None:
        """Wait while the trainer has to stop here, and need not end (``leaves``)."""
        self._version = version
        while self._stand(version) and not leaves():
            pass
        self._leave()

    def _stand(self, version: int | None) -> bool:
        """Wait for a change, for a moment. Return whether the trainer still has to stop."""
        with self._changed:
            if not self._stops_at(version):
                return False
            if not self._stands:
                self._stands = True
                self._report(True, version)
            self._changed.wait(_LOOK_SECONDS)
            return self._stops_at(version)

    def _leave(self) -> None:
        with self._changed:
            if self._stands or self._on:
                self._stands = False
                self._report(False, self._version)

    def _stops_at(self, version: int | None) -> bool:
        return self._on and (version is None or version >= self._target)
