"""What is seen of a replica: its lock, the last state that its agent wrote, and its agent logs."""

from __future__ import annotations

from pathlib import Path

from jobs.backends.base import Phase, ReplicaView
from jobs.backends.local import process_sessions
from jobs.messages import cluster as messages
from runtime import contract
from runtime.contract import ReplicaState
from runtime.messages import Message

# A process ends before its last lines and files have reached the portal. Its replica counts as running until then, for
# at most this many seconds, so that a job that has succeeded has its model.
HANDOVER_SECONDS = 60.0


def view_of(directory: Path, name: str, now: float) -> ReplicaView:
    # The lock before the state: an agent writes its last state before it releases the lock.
    alive = contract.is_locked(directory)
    state = state_of(directory)
    if state is None:
        return _view_without_state(directory, name, alive)
    if not alive:
        process_sessions.collect(state.pid)
    if state.phase == "exited" and (state.delivered or not alive or now > (state.finished or 0) + HANDOVER_SECONDS):
        return ReplicaView(
            name, Phase.EXITED, state.code, state.signal, state.out_of_memory, state.why, state.start_number
        )
    if not alive:
        why = messages.AGENT_GONE()
        return ReplicaView(name, Phase.LOST, why=why, start_number=state.start_number)
    return ReplicaView(
        name, Phase.STARTING if state.phase == "starting" else Phase.RUNNING, start_number=state.start_number
    )


def state_of(directory: Path) -> ReplicaState | None:
    """Return the last state that the agent of the current start wrote; None before its first one."""
    state = ReplicaState.load(directory)
    return state if state is not None and state.start_number >= start_number_of(directory) else None


def start_number_of(directory: Path) -> int:
    """Return the number of the last start, from the names of the agent logs; 0 before the first start."""
    begun = [int(path.name.split(".")[1]) for path in directory.glob("agent.*.log")]
    return max(begun, default=int(agent_log(directory, 1).exists()))


def agent_log(directory: Path, start_number: int) -> Path:
    return directory / ("agent.log" if start_number == 1 else f"agent.{start_number}.log")


def is_orphaned(directory: Path) -> bool:
    state = ReplicaState.load(directory)
    if state is None or state.delivered or state.handed_over:
        return False
    return not contract.is_locked(directory)


def is_busy(directory: Path) -> bool:
    """Whether a running agent has work left. After its last delivery it only exits."""
    state = state_of(directory)
    return contract.is_locked(directory) and not (state and state.delivered)


def _view_without_state(directory: Path, name: str, alive: bool) -> ReplicaView:
    start_number = start_number_of(directory)
    if not alive and start_number:
        why = _not_started(agent_log(directory, start_number))
        return ReplicaView(name, Phase.LOST, why=why, start_number=start_number)
    if not alive and any((place / contract.STOP_FILE).exists() for place in (directory, directory.parent)):
        # The launch failed before it. An agent that begins in this moment reads the stop file first.
        return ReplicaView(name, Phase.LOST, why=messages.NEVER_STARTED(), start_number=1)
    return ReplicaView(name, Phase.STARTING, start_number=max(1, start_number))


def _not_started(log: Path) -> Message:
    """Return the message for an agent that did not start, with the last line of its output."""
    lines = log.read_text(encoding="utf-8", errors="backslashreplace").strip().splitlines()
    return messages.AGENT_DID_NOT_START_BECAUSE(error=lines[-1][:300]) if lines else messages.AGENT_DID_NOT_START()
