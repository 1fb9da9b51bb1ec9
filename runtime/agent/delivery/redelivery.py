"""Redelivery of the entries that an agent which is gone has not delivered. ``python -m runtime.agent --deliver``.

An agent may be killed, or give up while the portal is down. Its numbered entries remain in its spools. A second agent,
started by the backend in the same directory, sends them once and ends.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

from runtime import contract
from runtime.agent import process_tree, short_tmpdir
from runtime.agent.delivery.ingest_client import Ingest
from runtime.agent.delivery.shipping import Sender, report_alone
from runtime.agent.settings import Settings
from runtime.contract import ReplicaState
from runtime.isolation import syscalls

PATIENCE_SECONDS = 30.0
_MISSING = "the agent of this replica was killed; what its process said in its last moment may be missing"


def deliver(settings: Settings) -> int:
    """Deliver the entries and return the agent's exit code. The backend has taken the lock and passed it on."""
    state = ReplicaState.load(settings.directory)
    if state is None or settings.lock_fd is None:
        return contract.EXIT_ERROR
    os.set_inheritable(settings.lock_fd, False)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    state = replace(state, pid=os.getpid(), ticks=process_tree.start_ticks(os.getpid()))
    _write(state, settings)
    short_tmpdir.remove(settings.temporary)
    delivered = _send(settings, state)
    _write(replace(state, delivered=delivered), settings)
    return contract.EXIT_OK if delivered else contract.EXIT_ERROR


def _write(state: ReplicaState, settings: Settings) -> None:
    """Write the state. On a full disk the entries are delivered all the same."""
    try:
        state.write(settings.directory)
    except OSError as error:
        sys.stderr.write(f"The state of this replica cannot be written: {error}.\n")


def _send(settings: Settings, state: ReplicaState) -> bool:
    ingest = Ingest(settings.ingest_url, settings.attempt_id, settings.ingest_token, settings.traceparent)
    last = state.last_report(settings.replica) if state.phase == "exited" else None
    try:
        sender = Sender(ingest, settings.replica, state.start_number, settings.directory, lambda why: None)
    except OSError as error:
        sys.stderr.write(f"What this replica has kept cannot be read: {error}.\n")
        return last is not None and report_alone(ingest, last, PATIENCE_SECONDS)
    sender.give_up_at(time.monotonic() + PATIENCE_SECONDS)
    if state.phase != "exited":
        sender.line(_MISSING)
    sender.start()
    return sender.finish(settings.output, last)
