"""The seam between a job's attempt and what runs it: local processes or Kubernetes.

Every call may come twice, late, after a restart of the portal, or for an attempt that is gone. "Gone" is a value.
No call may be made inside a database transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from jobs.frameworks.definitions import NATIVE
from runtime import contract


@dataclass(frozen=True)
class AttemptRef:
    """Names one attempt of one job. ``attempt_id`` is the database key in text form, ``number`` counts from 1,
    ``namespace`` is the portal's of the job."""

    job_id: str
    attempt_id: str
    number: int
    namespace: str = ""


@dataclass(frozen=True)
class ReplicaPlan:
    """One process to start. ``name`` is ``<role>-<index>``; memory in bytes, cpu in cores, cpu_seconds as a total."""

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

    @property
    def runs_user_code(self) -> bool:
        """Whether it gets the job's files, and is confined."""
        return contract.runs_user_code(self.role, self.environment)


@dataclass(frozen=True)
class LaunchPlan:
    """All that a backend needs to run one attempt. Made by ``jobs.launch.planner``, pure.

    Processes of some frameworks have to be told where the others are, which the backend decides: it gives each of them
    the ports of ``jobs.frameworks.peer_env.PORTS`` and the variables of ``jobs.frameworks.peer_env.told``.
    """

    ref: AttemptRef
    namespace: str
    bundle: Path
    replicas: tuple[ReplicaPlan, ...]
    grace: timedelta
    log_cap: int
    # Given to the agents alone, never to user code.
    ingest_token: str = field(repr=False, default="")
    # By it the attempt's processes prove to each other that they belong to it (``runtime.protocol.proof``). Of several
    # launches of an attempt the first decides. Empty where they speak no protocol of ours.
    wire_secret: str = field(repr=False, default="")
    # The container image with the job's code and requirements. Empty: the backend's own base image, and the agents
    # fetch the code. Processes of a machine have no image.
    image: str = ""
    framework: str = NATIVE
    # Whether agents run beside the processes. Without them the image is a person's own and used as it is: the backend
    # tells how processes end, and what they print is followed (``FollowedBackend``).
    agents: bool = True
    # Whether the job's owner may run code here that nothing isolates.
    trusted: bool = False


@dataclass(frozen=True)
class Machine:
    """What a backend that runs everything on one machine has for jobs: cores, bytes, devices."""

    name: str
    cpu: float
    memory: int
    gpu: int = 0


@runtime_checkable
class OneMachine(Protocol):
    """A backend that can say so."""

    def machine(self) -> Machine:
        """The machine."""


class Phase(StrEnum):
    """What a backend knows of one replica."""

    STARTING = "starting"
    RUNNING = "running"
    EXITED = "exited"
    LOST = "lost"  # its process is gone and left no word of how it ended


@dataclass(frozen=True)
class ReplicaView:
    """What is seen of one replica in its present life (``runtime.contract.START_NUMBER``).

    ``code`` is the exit code; ``signal`` the number of the signal that ended it. ``agent``: it has one, which reports;
    who has none counts as registered while it runs.
    """

    name: str
    phase: Phase
    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    why: str = ""
    start_number: int = 1
    agent: bool = True


@dataclass(frozen=True)
class AttemptView:
    """What is seen of an attempt. ``gone``: the backend knows nothing of it (never launched, or cleaned up)."""

    gone: bool
    replicas: tuple[ReplicaView, ...] = ()


class ClusterBackend(Protocol):
    """Runs the replicas of attempts. ``rehearses``: whether ``kill`` can be asked for. ``outlives_the_portal``:
    attempts go on while the portal is stopped.

    Any call but ``launch`` may raise BackendUnavailable.
    """

    rehearses: bool
    outlives_the_portal: bool

    def launch(self, plan: LaunchPlan) -> None:
        """Start what of the plan is not running and has not run. Raises LaunchFailed with a message for the user."""

    def observe(self, ref: AttemptRef) -> AttemptView:
        """What is there now. Never raises for an attempt that is gone."""

    def scale(self, ref: AttemptRef, role: str, replicas: int) -> None:
        """Have the replicas 0 to ``replicas - 1`` of a role, and ask those of a higher index to end.

        What has ended is not started again by this.
        """

    def restart(self, ref: AttemptRef, name: str, start_number: int) -> None:
        """Start a replica in its place again, as that life.

        Nothing happens while an earlier life holds the place (``observe`` tells the life), nor in a stopped attempt.
        """

    def kill(self, ref: AttemptRef, name: str) -> None:
        """End a replica's process as a failure would, without a word to it. Nothing where none runs."""

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        """Ask every replica to end, kill those that still live after the grace. Returns at once; ``observe`` tells."""

    def cleanup(self, ref: AttemptRef) -> None:
        """Forget an attempt whose replicas have ended; ``observe`` says gone afterwards.

        What it has kept for the next attempt of its job stays.
        """

    def checkpoint_sizes(self) -> Mapping[str, int]:
        """The ids of the jobs of which something is kept for a next attempt, and how many bytes."""

    def forget(self, job_id: str) -> None:
        """Remove what is kept for a next attempt of a job that runs no more."""


@dataclass(frozen=True)
class Container:
    """What runs as a replica without an agent. ``pod``: names what it runs in, empty where there is nothing; ``begun``:
    it has printed, or could have; ``ended``: it prints no more."""

    pod: str = ""
    begun: bool = False
    ended: bool = False


@runtime_checkable
class FollowedBackend(Protocol):
    """A backend of processes without agents: it can tell what they print. Both may raise BackendUnavailable."""

    def container(self, ref: AttemptRef, name: str) -> Container:
        """What runs as the replica now."""

    def printed(self, ref: AttemptRef, name: str, since: int) -> Iterator[bytes]:
        """Its log from a second (unix time; 0: all) on, in pieces as they come, each line with its time in front; to
        the end where it has ended, and otherwise until nothing has come for a while."""


class BackendUnavailable(OSError):
    """What runs the attempts does not answer, or not as it should. Trying again later may go better."""


class LaunchFailed(Exception):
    """The backend could not start the attempt. ``retryable`` where another try may go better."""

    def __init__(self, why: str, *, retryable: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.retryable = retryable
