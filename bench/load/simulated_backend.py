"""Backend of jobs whose replicas are simulated in another process: ``bench.load.replicas``.

The portal's processes launch, observe and stop attempts over a Unix socket, one line of JSON per request. Observations
are cached for ``FRESH_SECONDS`` and only changes are transferred, so the backend costs little.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any

from jobs.backends.base import (
    AttemptRef,
    AttemptView,
    BackendUnavailable,
    ControlAddress,
    LaunchPlan,
    Phase,
    ReplicaView,
)

FRESH_SECONDS = 0.2
NAME = "simulated"
_TIMEOUT_SECONDS = 10.0


class SimulatedBackend:
    """Backend without processes. Thread-safe."""

    rehearses = False
    outlives_the_portal = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._views: dict[str, AttemptView] = {}
        self._version = 0
        self._read = 0.0

    def launch(self, plan: LaunchPlan) -> None:
        replicas = [one.name for one in plan.replicas]
        self._ask(op="launch", attempt=plan.ref.attempt_id, token=plan.ingest_token, replicas=replicas)

    def observe(self, ref: AttemptRef) -> AttemptView:
        with self._lock:
            if time.monotonic() - self._read > FRESH_SECONDS or ref.attempt_id not in self._views:
                self._refresh()
            return self._views.get(ref.attempt_id, AttemptView(gone=True))

    def _refresh(self) -> None:
        answer = self._exchange({"op": "changes", "since": self._version})
        self._version, self._read = int(answer["version"]), time.monotonic()
        for attempt, replicas in answer["attempts"].items():
            if replicas is None:
                self._views.pop(attempt, None)
            else:
                views = (ReplicaView(name, Phase(phase), code) for name, phase, code in replicas)
                self._views[attempt] = AttemptView(False, tuple(views))

    def control_address(self, ref: AttemptRef, name: str) -> ControlAddress | None:
        return None

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        self._ask(op="stop", attempt=ref.attempt_id)

    def cleanup(self, ref: AttemptRef) -> None:
        self._ask(op="cleanup", attempt=ref.attempt_id)

    def scale(self, ref: AttemptRef, role: str, replicas: int) -> None:
        """Do nothing: no job of the load is scaled."""

    def restart(self, ref: AttemptRef, name: str, start_number: int) -> None:
        """Do nothing: no replica is lost."""

    def kill(self, ref: AttemptRef, name: str) -> None:
        """Do nothing: ``rehearses`` is false."""

    def attempts(self, namespaces: Collection[str]) -> Iterator[AttemptRef]:
        return iter(())

    def last_checkpoint(self, job_id: str) -> int:
        return 0

    def checkpoint_sizes(self) -> Mapping[str, int]:
        return {}

    def forget(self, job_id: str) -> None:
        """Do nothing: there are no checkpoints."""

    def _ask(self, **request: Any) -> None:
        with self._lock:
            self._exchange(request)
            self._read = 0.0

    def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer. Raises BackendUnavailable."""
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX)
                self._socket.settimeout(_TIMEOUT_SECONDS)
                self._socket.connect(self._path)
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            return dict(json.loads(_line(self._socket)))
        except OSError as error:
            self._socket = None
            raise BackendUnavailable(f"the simulated replicas do not answer: {error}") from error


def _line(connection: socket.socket) -> bytes:
    pieces: list[bytes] = []
    while not pieces or not pieces[-1].endswith(b"\n"):
        piece = connection.recv(1 << 20)
        if not piece:
            raise ConnectionError("the connection was closed")
        pieces.append(piece)
    return b"".join(pieces)
