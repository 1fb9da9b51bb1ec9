"""State of one replica, and the replicas that are to be started again. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs.lifecycle.holds import Held
from jobs.lifecycle.state_machine import JobView
from jobs.lifecycle.states import ENDED, JobState, ReplicaState
from jobs.lifecycle.wording import signal_name
from jobs.messages import jobs as messages
from runtime import contract
from runtime.messages.composition import without_full_stop

# How often a replica that is lost while the job runs is started again before its loss counts in ``attempt_end.decide``.
# After a restart the master reads its queue from the coordination store, a trainer gets the parameters from the
# servers, and a parameter server gets its values back from the trainers.
RESTARTS: Mapping[str, int] = {contract.MASTER: 3, contract.PSERVER: 3, contract.TRAINER: 3}
# Errors of gloo, NCCL and sockets when a peer is gone.
_LOST_PEER = re.compile(
    r"gloo.*pair\.cc|[Cc]onnection (?:closed|reset|refused)|remote (?:worker|process)|ncclRemoteError|DistNetworkError"
    r"|ConnectionError|ConnectionResetError|ConnectionRefusedError|BrokenPipeError"
)


@dataclass(frozen=True)
class ReplicaFact:
    """State of one replica since its last start.

    * ``registered``: it has registered since then; ``since``: the time of that.
    * ``flushed``: its agent reported the end, which it does after the last of the output.
    * ``unread``: it has no agent, has ended, and part of its output is not read yet.
    * ``held``: its program is held at an exception, if that was reported.
    * ``dismissed``: it was stopped because fewer trainers are desired.
    """

    name: str
    role: str
    state: ReplicaState
    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    why: str = ""
    registered: bool = False
    since: datetime | None = None
    flushed: bool = False
    unread: bool = False
    start_number: int = 1
    dismissed: bool = False
    restarts: int = 0
    rehearsed: bool = False
    finished: datetime | None = None
    held: Held | None = None

    @property
    def index(self) -> int:
        return int(self.name.rpartition("-")[2])

    @property
    def joining(self) -> bool:
        return not self.registered and not self.ended

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def succeeded(self) -> bool:
        return self.state is ReplicaState.EXITED and self.code == contract.EXIT_OK

    @property
    def ended_externally(self) -> bool:
        """Whether it was killed by a signal, is gone, or exited with EXIT_RESTART: no failure of the script."""
        if self.state is ReplicaState.LOST:
            return True
        return self.state is ReplicaState.EXITED and (self.signal is not None or self.code == contract.EXIT_RESTART)

    @property
    def lost_peer(self) -> bool:
        """Whether its error is a broken connection to another process, which ended earlier."""
        return self.state is ReplicaState.EXITED and _LOST_PEER.search(self.why) is not None

    @property
    def recoverable(self) -> bool:
        """Whether it ended for a reason that a restart can cure and has restarts left.

        An end by fault injection uses no restart. A process that exceeded its memory or CPU time would do so again.
        """
        spent = self.out_of_memory or self.signal == signal.SIGXCPU
        allowed = RESTARTS[self.role]
        left = bool(allowed) if self.rehearsed else self.restarts < allowed
        return self.ended_externally and left and not spent

    @property
    def failed(self) -> bool:
        """Whether the script itself ended with an error."""
        return self.ended and not self.succeeded and not self.ended_externally


def recovering(job: JobView, replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Return the replicas that ended while the job runs and are to be started again.

    None if the job's processes find one another only once. No trainer once one of them has finished: there is nothing
    left for it to do.
    """
    if job.together or job.state is not JobState.RUNNING:
        return []
    ending = any(trainer.succeeded or trainer.failed for trainer in present_trainers(replicas))
    candidates = [replica for replica in replicas if replica.recoverable and not replica.dismissed]
    return [replica for replica in candidates if not (ending and replica.role == contract.TRAINER)]


def present_trainers(replicas: Sequence[ReplicaFact]) -> list[ReplicaFact]:
    """Return the trainers that are not dismissed."""
    return [replica for replica in replicas if replica.role == contract.TRAINER and not replica.dismissed]


# --- Texts -----------------------------------------------------------------------------------------------------------
def ending(replica: ReplicaFact) -> str:
    """Return how a replica ended, as the start of a message; the agent's own text if it sent one."""
    report = without_full_stop(replica.why)
    if replica.state is not ReplicaState.LOST:
        return messages.ENDING(replica=replica.name, ending=report or _exit_description(replica))
    if report:
        return messages.GONE_BECAUSE(replica=replica.name, cause=report)
    return messages.GONE(replica=replica.name)


def _exit_description(replica: ReplicaFact) -> str:
    if replica.out_of_memory:
        return messages.OUT_OF_MEMORY()
    if replica.signal is not None:
        return messages.ENDED_BY(signal=signal_name(replica.signal))
    return messages.EXITED(code=replica.code)


# Kinds of events of a replica's loss and of its restart.
LOSSES = ("rehearsal", "exited", "restarted")
