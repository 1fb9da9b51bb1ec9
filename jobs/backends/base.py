"""Interface between a job's attempt and the backend that runs it: local processes or Kubernetes.

Every call may be repeated, be late, follow a restart of the portal, or name an attempt that is gone. "Gone" is a value,
not an error. No call may be made inside a database transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from jobs.frameworks.definitions import NATIVE
from runtime import contract


@dataclass(frozen=True)
class AttemptRef:
    """Reference to one attempt of one job.

    ``attempt_id`` is the database key in text form, ``number`` counts from 1, ``namespace`` is the job's namespace in
    the portal.
    """

    job_id: str
    attempt_id: str
    number: int
    namespace: str = ""


@dataclass(frozen=True)
class ReplicaPlan:
    """One process to start. ``name`` is ``<role>-<index>``; memory is in bytes, cpu in cores, cpu_seconds a total."""

    name: str
    role: str
    index: int
    command: tuple[str, ...]
    environment: Mapping[str, str]
    cpu: float
    memory: int
    gpu: int = 0
    processes: int = 256
    cpu_seconds: int = 0
    # The directory that outlasts the attempt and in which the process writes: the id of its namespace. Empty: none.
    home: str = ""

    @property
    def runs_user_code(self) -> bool:
        """Whether the process gets the job's files and is isolated."""
        return contract.runs_user_code(self.role, self.environment)


@dataclass(frozen=True)
class LaunchPlan:
    """Everything that a backend needs to run one attempt. Made by ``jobs.launch.planner``, pure.

    Processes of some frameworks need the addresses of their peers, which the backend decides. It gives each process
    the ports of ``jobs.frameworks.peer_env.PORTS`` and the variables of ``jobs.frameworks.peer_env.environments``.
    """

    ref: AttemptRef
    namespace: str
    bundle: Path
    replicas: tuple[ReplicaPlan, ...]
    grace: timedelta
    log_cap: int
    # For the agents only, never for user code.
    ingest_token: str = field(repr=False, default="")
    # The attempt's processes prove to each other with it that they belong to the attempt (``runtime.protocol.proof``).
    # Of several launches of an attempt, the first decides. Empty where they do not use the native protocol.
    wire_secret: str = field(repr=False, default="")
    # With it the portal and the agents prove themselves on the control channel (``jobs.control``).
    control_key: str = field(repr=False, default="")
    # The container image with the job's code and requirements. Empty: the backend uses its base image, and the agents
    # fetch the code. Local processes have no image.
    image: str = ""
    framework: str = NATIVE
    # Whether agents run beside the processes. Without agents the image is the user's own and is used unchanged: the
    # backend reports how processes end, and their output is followed (``FollowedBackend``).
    agents: bool = True
    # Whether the job's owner may run code without isolation on this machine.
    trusted: bool = False


@dataclass(frozen=True)
class Machine:
    """Capacity for jobs of a backend that runs everything on one machine: cores, bytes of memory, GPU devices."""

    name: str
    cpu: float
    memory: int
    gpu: int = 0


@runtime_checkable
class OneMachine(Protocol):
    """A backend that runs everything on one machine."""

    def machine(self) -> Machine:
        """Return the machine and its capacity."""


class Phase(StrEnum):
    """Phase of one replica as the backend observes it."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"  # its process is gone, and there is no report of how it ended


@dataclass(frozen=True)
class ReplicaView:
    """Observed state of one replica at its current start (``runtime.contract.START_NUMBER``).

    ``code`` is the exit code, ``signal`` the number of the signal that ended the process. ``agent``: whether the
    replica has an agent that reports; without one it counts as registered while it runs. ``granted``: the highest start
    that the cluster may make without the portal, 0: none; None: this replica is never replaced in that way.
    """

    name: str
    phase: Phase
    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    why: str = ""
    start_number: int = 1
    agent: bool = True
    granted: int | None = None


@dataclass(frozen=True)
class ControlAddress:
    """Where the agent of a running replica listens: a Unix socket, or host and port."""

    socket: Path | None = None
    host: str = ""
    port: int = 0


class ControlMissing(Exception):
    """The replica runs, but its agent does not listen: it is older than the control channel, or there is no agent."""


@dataclass(frozen=True)
class AttemptView:
    """Observed state of an attempt. ``gone``: the backend has no record of it (never launched, or cleaned up)."""

    gone: bool
    replicas: tuple[ReplicaView, ...] = ()


class ClusterBackend(Protocol):
    """Interface of a backend that runs the replicas of attempts.

    ``rehearses``: whether ``kill`` is supported. ``outlives_the_portal``: whether attempts go on while the portal is
    stopped. Any call except ``launch`` may raise BackendUnavailable.
    """

    rehearses: bool
    outlives_the_portal: bool

    def launch(self, plan: LaunchPlan) -> None:
        """Start the replicas of the plan that have not been started yet. Raises LaunchFailed with a user message."""

    def observe(self, ref: AttemptRef) -> AttemptView:
        """Return the observed state of an attempt. An attempt that is gone is no error."""

    def scale(self, ref: AttemptRef, role: str, replicas: int) -> None:
        """Set the desired replicas of a role to 0 up to ``replicas - 1``; request those of a higher index to stop.

        Replicas that have ended are not started again.
        """

    def restart(self, ref: AttemptRef, name: str, start_number: int) -> None:
        """Start a replica again, with this start number.

        Does nothing while an earlier start of the replica is active (``observe`` returns its start number), nor in a
        stopped attempt.
        """

    def kill(self, ref: AttemptRef, name: str) -> None:
        """Kill a replica's process as a failure would, without notice. Does nothing where none runs."""

    def control_address(self, ref: AttemptRef, name: str) -> ControlAddress | None:
        """Return where the agent of a running replica listens (``jobs.control``); None where the replica does not run.

        Raises ControlMissing. The agent may end at any time, so the address may be of one that is gone.
        """

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        """Request every replica to stop, and kill those that still run after the grace.

        Returns at once; ``observe`` returns the outcome.
        """

    def cleanup(self, ref: AttemptRef) -> None:
        """Remove an attempt whose replicas have ended; ``observe`` returns ``gone`` afterwards.

        Checkpoints for the next attempt of the job stay.
        """

    def attempts(self, namespaces: Collection[str]) -> Iterator[AttemptRef]:
        """Yield all attempts that were launched in these namespaces and not cleaned up, in any order.

        The database may not know them: it was restored to an earlier state.
        """

    def checkpoint_sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each job's checkpoints, by job id."""

    def last_checkpoint(self, job_id: str) -> int:
        """Return the highest number of an attempt of the job that has left checkpoints; 0 if there is none."""

    def forget(self, job_id: str) -> None:
        """Remove the checkpoints of a job that no longer runs."""


@runtime_checkable
class JointObserver(Protocol):
    """A backend that observes many attempts in fewer requests than one by one."""

    def observe_many(self, refs: Sequence[AttemptRef]) -> Mapping[str, AttemptView | None]:
        """Return the observed state by attempt id; None where the backend does not answer.

        An attempt that is absent from the result has to be observed on its own.
        """


@runtime_checkable
class ReplacingBackend(Protocol):
    """A backend whose cluster replaces lost replicas without the portal, within starts granted in advance."""

    def grant_starts(self, ref: AttemptRef, limits: Mapping[str, int]) -> None:
        """Set the highest start that the cluster may make of each of these replicas by itself; 0: none.

        ``observe`` returns the limit as ``granted``, and a start that the cluster has made as ``start_number``. Does
        nothing in a stopped attempt. May raise BackendUnavailable.
        """


@dataclass(frozen=True)
class Container:
    """Container of a replica without an agent.

    ``pod``: identifies the pod, empty where there is none. ``begun``: the container may have printed output. ``ended``:
    it prints no more.
    """

    pod: str = ""
    begun: bool = False
    ended: bool = False


@runtime_checkable
class FollowedBackend(Protocol):
    """A backend of processes without agents, which returns their output. Both calls may raise BackendUnavailable."""

    def container(self, ref: AttemptRef, name: str) -> Container:
        """Return the current container of the replica."""

    def printed(self, ref: AttemptRef, name: str, since: int) -> Iterator[bytes]:
        """Yield the replica's log from ``since`` on (unix time in seconds; 0: all), in pieces as they arrive.

        Each line starts with its timestamp. Ends with the log where the container has ended, and otherwise when
        nothing has arrived for a while.
        """


class BackendUnavailable(OSError):
    """The backend does not answer, or answers with an error. A later retry may succeed."""


class LaunchFailed(Exception):
    """The backend could not start the attempt. ``retryable``: another try may succeed."""

    def __init__(self, why: str, *, retryable: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.retryable = retryable
