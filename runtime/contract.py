"""Contract between the portal and the processes of an attempt: agents, roles and user code.

Every environment variable, path, exit code and message of the contract is defined here and nowhere else.
``jobs.launch.planner`` and the backends write it. ``runtime.agent``, ``runtime.master``, ``runtime.pserver`` and
``runtime.dist`` read it. The module uses the standard library only, because the agent must start quickly.

Visibility: the agent is the parent of the role's process. Only the agent holds the ingest token and, for trainers, the
address of the coordination store. It removes both from the environment before it starts user code, and passes
membership on over an inherited socket (``AGENT_FD``). The process holds the attempt's secret for the wire; user code
uses the wire through ``runtime.dist``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from runtime.messages import from_json, to_json
from runtime.messages import training as messages

# Release of this runtime. All processes of a job must run the same release.
RELEASE = "0.1.0"

# --- Roles -----------------------------------------------------------------------------------------------------------
MASTER, PSERVER, TRAINER = "master", "pserver", "trainer"
ROLES = (MASTER, PSERVER, TRAINER)

# --- Names of the variables ------------------------------------------------------------------------------------------
JOB_ID = "REGATTA_JOB_ID"  # the job's id
ATTEMPT_ID = "REGATTA_ATTEMPT_ID"  # the attempt's id, part of the ingest address
ATTEMPT = "REGATTA_ATTEMPT"  # the attempt's number, from 1; fences late writers
ROLE = "REGATTA_ROLE"  # master | pserver | trainer
REPLICA = "REGATTA_REPLICA"  # "<role>-<index>"
INDEX = "REGATTA_INDEX"  # the replica's index in its role, from 0
# Number of this start of the replica in its attempt: 1 for the first, 2 after a restart.
START_NUMBER = "REGATTA_START_NUMBER"
TRAINERS = "REGATTA_TRAINERS"  # how many trainers the attempt starts with
MIN_TRAINERS = "REGATTA_MIN_TRAINERS"  # with fewer trainers the attempt cannot continue
PSERVERS = "REGATTA_PSERVERS"  # number of parameter servers
MODE = "REGATTA_MODE"  # one of MODES, with its number: sync, async, m_of_n(2), ssp(3), outer(100)
WIRE = "REGATTA_WIRE"  # one of WIRES: encoding of gradients between hosts, unless job.params sets it
PASSES = "REGATTA_PASSES"  # passes through the dataset
FRAMEWORK = "REGATTA_FRAMEWORK"  # native | paddle | torch | command | notebook
# "1": the process runs the user's code. It is confined and gets no secrets, as is always the case for trainers.
USER_CODE = "REGATTA_USER_CODE"
COST_LINES = "REGATTA_COST_LINES"  # "1": costs that the process prints become points, unless it reports points itself
GATEWAY = "REGATTA_GATEWAY"  # address of runtime.gateway, for the program that the gateway runs
DATASET = "REGATTA_DATASET"  # name of the job's dataset; for one of a namespace with the version: team/mine@3
SEED = "REGATTA_SEED"  # seed of shuffling and of the initial parameters
DATA_PATH = "REGATTA_DATA_PATH"  # directories that hold datasets by name, separated like PATH; unset: data
OUTPUT_DIR = "REGATTA_OUTPUT_DIR"  # files written here are collected as artifacts
AGENT_FD = "REGATTA_AGENT_FD"  # number of the inherited socket to the agent
COORDINATION = "REGATTA_COORDINATION"  # "sqlite:///path" or "etcd://..."; never given to user code
INGEST_URL = "REGATTA_INGEST_URL"  # the portal's address; never given to user code
INGEST_TOKEN = "REGATTA_INGEST_TOKEN"  # noqa: S105  the attempt's token; never given to user code
# Secret by which the processes of an attempt prove to each other that they belong to it (runtime.protocol.proof).
WIRE_SECRET = "REGATTA_WIRE_SECRET"  # noqa: S105  a variable's name
# Key by which the portal and the attempt's agents prove themselves on the control channel (runtime.control); for the
# agents only. Unset: the agent does not listen.
CONTROL_KEY = "REGATTA_CONTROL_KEY"
CONTROL_PORT = "REGATTA_CONTROL_PORT"  # TCP port of the control channel in a pod; unset: a socket in REPLICA_DIR
# Directory of the sockets by which the agent looks into Python processes (runtime.inspection).
INSPECTION = "REGATTA_INSPECTION"
# Seconds for which a program that ends with an exception is held (runtime.inspection.holding); unset: 0.
HOLD = "REGATTA_HOLD_SECONDS"
CHECKPOINT_DIR = "REGATTA_CHECKPOINT_DIR"  # of the job, with a directory per attempt; empty: no checkpoints
CHECKPOINT_SECONDS = "REGATTA_CHECKPOINT_SECONDS"  # between two checkpoints
REPLICA_DIR = "REGATTA_REPLICA_DIR"  # the agent's own directory: state file, lock, spool
WORK_DIR = "REGATTA_WORK_DIR"  # the process's working directory, a private copy of the code
LEASE = "REGATTA_LEASE_SECONDS"  # until a replica without keepalives is gone; unset: LEASE_SECONDS of its role
# How long a replica continues while the coordination store does not answer. 0: it stops before its lease expires.
OUTAGE = "REGATTA_OUTAGE_SECONDS"
# How long a trainer waits for the other processes of its job to start: the time that the platform allows them.
GATHER = "REGATTA_GATHER_SECONDS"
GRACE_SECONDS = "REGATTA_GRACE_SECONDS"  # between SIGTERM and SIGKILL
LOG_CAP = "REGATTA_LOG_CAP"  # bytes of output that are kept
LIMIT_MEMORY = "REGATTA_LIMIT_MEMORY"  # bytes; 0: none
LIMIT_PROCESSES = "REGATTA_LIMIT_PROCESSES"  # processes and threads of one replica in total; 0: none
LIMIT_CPU_SECONDS = "REGATTA_LIMIT_CPU_SECONDS"  # CPU time of one process; 0: none
LOCK_FD = (
    "REGATTA_LOCK_FD"  # number of the inherited descriptor that holds LOCK_FILE; without it the agent takes the lock
)
PARAMETERS = "REGATTA_PARAMS"  # JSON object: the job's parameters
PARAMETER_PREFIX = "REGATTA_PARAM_"  # one variable for each parameter
PARAMETERS_FILE = "REGATTA_PARAMS_FILE"  # path of a file with the same JSON object
USER_ENVIRONMENT = "REGATTA_USER_ENVIRONMENT"  # JSON object: the user's own variables, set for the process only
# One of SANDBOXES: how a process that runs the user's code is confined.
SANDBOX = "REGATTA_SANDBOX"
RUN_AS = "REGATTA_RUN_AS"  # user and group id of such a process in namespaces; unset: the agent's own
LIMIT_DISK = "REGATTA_LIMIT_DISK"  # bytes in the replica's own directories in total; 0: none
# Minor numbers of the GPUs that the process may use, separated by commas; unset: all that it sees.
GPUS = "REGATTA_GPUS"
CGROUP = "REGATTA_CGROUP"  # directory of the process's cgroup (version 2); unset: none
# How the attempt's own network namespace is created: one of NETWORKS. Unset: the attempt has none.
NETWORK = "REGATTA_NETWORK"
# Inherited descriptors for joining that namespace (runtime.isolation.network.Network), separated by commas.
NETWORK_FDS = "REGATTA_NETWORK_FDS"
# Host address at which the attempt's other processes find master and parameter servers. Unset: 127.0.0.1.
ADDRESS = "REGATTA_ADDRESS"

# W3C trace context of the attempt's launch; unset if its trace is not recorded. The agent sends it with each request,
# for proxies on the way; the portal uses its own. The process may continue the trace with an exporter of its own.
TRACEPARENT = "REGATTA_TRACEPARENT"

# --- Names of the variables of a notebook ----------------------------------------------------------------------------
NOTEBOOK_HOME = "REGATTA_NOTEBOOK_HOME"  # directory of the namespace, which outlasts the notebook's jobs
NOTEBOOK_BASE_URL = "REGATTA_NOTEBOOK_BASE_URL"  # path below which Jupyter is served, with a slash at both ends
NOTEBOOK_NAME = "REGATTA_NOTEBOOK_NAME"
# Directory in NOTEBOOK_HOME for what the notebook starts from, and the Git address that is cloned there, if any.
NOTEBOOK_FOLDER = "REGATTA_NOTEBOOK_FOLDER"
NOTEBOOK_GIT = "REGATTA_NOTEBOOK_GIT"
# The variables that the client reads: the portal's address, a token of the owner for this namespace, and its name.
CLIENT_SERVER, CLIENT_TOKEN, CLIENT_NAMESPACE = "REGATTA_SERVER", "REGATTA_TOKEN", "REGATTA_NAMESPACE"

# --- Names of the variables of a container ---------------------------------------------------------------------------
# File for the agent's final state, written when everything is delivered. The agent then exits as its process did.
TERMINATION_FILE = "REGATTA_TERMINATION_FILE"
CODE_DIR = "REGATTA_CODE_DIR"  # directory of the job's code in the image; empty: the code is fetched from the portal
FETCH_DATA = "REGATTA_FETCH_DATA"  # directory for the job's fetched dataset; empty: the dataset is present already

# How pushes become versions of the parameters, with the minimum of the number in brackets for modes that have one.
MODES: Mapping[str, int | None] = {"sync": None, "async": None, "m_of_n": 1, "ssp": 0, "outer": 1}

# Gradients unchanged, or as bfloat16 with error feedback, which halves their size.
F32, BF16 = "f32", "bf16"
WIRES = (F32, BF16)

# No confinement; Landlock and a system call filter; both of these within namespaces with a file system view of its own.
NO_SANDBOX, LANDLOCK, NAMESPACES = "none", "landlock", "namespaces"
SANDBOXES = (NO_SANDBOX, LANDLOCK, NAMESPACES)

# Created with the privileges of root, or in a user namespace of an ordinary user.
NETWORKS = ("root", "user")

# Variables that the agent reads and removes before user code starts.
AGENT_ONLY = (
    INGEST_URL,
    INGEST_TOKEN,
    CONTROL_KEY,
    CONTROL_PORT,
    HOLD,
    REPLICA_DIR,
    LOG_CAP,
    LEASE,
    GRACE_SECONDS,
    LIMIT_MEMORY,
    LIMIT_PROCESSES,
    LIMIT_CPU_SECONDS,
    LOCK_FD,
    USER_ENVIRONMENT,
    SANDBOX,
    RUN_AS,
    LIMIT_DISK,
    CGROUP,
    GPUS,
    NETWORK,
    NETWORK_FDS,
    TERMINATION_FILE,
    CODE_DIR,
    FETCH_DATA,
    COST_LINES,
)
# Variables that only the platform's own roles get, and user code does not.
PLATFORM_ONLY = (COORDINATION, OUTAGE)

# --- Exit codes of a role's process ----------------------------------------------------------------------------------
EXIT_OK = 0
EXIT_ERROR = 1
EXIT_RESTART = 75  # EX_TEMPFAIL: lost its lease or was asked to leave; retry
EXIT_RESUME = 76  # the training state cannot be restored in this attempt; the next attempt resumes from the checkpoint

# --- Limits of the contract ------------------------------------------------------------------------------------------
LINE_LIMIT = 64 * 1024  # bytes of one log line; the rest is cut and the cut is marked
BATCH_BYTES = 64 * 1024  # the agent sends a batch at this size ...
BATCH_SECONDS = 0.2  # ... or at this age, or at the one of the portal's last answer
BATCH_SECONDS_LIMIT = 10.0  # the longest age that an agent accepts from the portal
LEASE_SECONDS: Mapping[str, float] = {MASTER: 15.0, PSERVER: 10.0, TRAINER: 10.0}
OUTAGE_SECONDS = 120.0
GATHER_SECONDS = 60.0
HOLD_SECONDS_LIMIT = 4 * 3600  # the longest time for which a program is held
HEARTBEAT_SECONDS = 2.0  # the agent sends a heartbeat at this time after its last call ...
HEARTBEAT_LIMIT_SECONDS = 10.0  # ... and at this time after its last heartbeat, whatever else it sends

# --- Files in the replica's directory --------------------------------------------------------------------------------
STATE_FILE = "state.json"  # ReplicaState, replaced atomically
LOCK_FILE = "lock"  # locked by the agent while it runs: take_lock, is_locked
STOP_FILE = "stop.json"  # {"grace": seconds, "asked": unix time}, written before SIGTERM
# {"logs": n, "metrics": n, "events": n}: entries numbered by earlier starts of the replica whose spools are gone
NUMBERS_FILE = "numbers.json"


class AgentOrder(TypedDict):
    """One agent to start (``runtime.agent.starter``).

    ``lock`` and ``log`` are descriptors. The environment names the lock too.
    """

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    lock: int
    log: int


@dataclass(frozen=True)
class Member:
    """One live process of the attempt.

    ``address`` is ``host:port`` for master and parameter servers, else empty. ``release`` is the RELEASE that the
    process runs; empty if it did not report one.
    """

    role: str
    index: int
    incarnation: int
    address: str = ""
    release: str = ""

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Member:
        role, index, incarnation = str(body["role"]), int(body["index"]), int(body["incarnation"])
        return cls(role, index, incarnation, str(body.get("address", "")), str(body.get("release", "")))


# In characters of its JSON. Kubernetes keeps 4096 bytes of a container's termination message.
_LONGEST_REASON = 1000


def _short_reason(why: str) -> Any:
    """Return a reason for the termination message: a message with its code if that is short enough, else its start."""
    document = to_json(why)
    return document if len(json.dumps(document)) <= _LONGEST_REASON else why[:_LONGEST_REASON]


# --- The replica's state file and lock -------------------------------------------------------------------------------
@dataclass(frozen=True)
class ReplicaState:
    """Last state of a replica that its agent wrote.

    ``ticks``: the kernel's start time of ``pid``, which may be reused.
    """

    pid: int
    ticks: int
    phase: str  # starting | running | registered | exited
    started: float  # unix times
    registered: float | None = None
    finished: float | None = None
    code: int | None = None
    signal: int | None = None
    out_of_memory: bool = False
    why: str = ""
    # The portal has accepted all output, points and artifacts and the last report.
    delivered: bool = False
    start_number: int = 1  # START_NUMBER
    # The first agent is gone, and a second one was started to deliver the entries that the first had kept.
    handed_over: bool = False

    def write(self, directory: Path) -> None:
        """Replace the state file atomically. Raises OSError."""
        fresh = directory / f"{STATE_FILE}.{self.pid}"
        try:
            fresh.write_text(json.dumps({**asdict(self), "why": to_json(self.why)}), encoding="utf-8")
            fresh.replace(directory / STATE_FILE)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise

    def last_report(self, replica: str) -> dict[str, Any]:
        """Return how the process ended, as the body of the ingest call ``report``."""
        facts = {name: getattr(self, name) for name in ("code", "signal", "out_of_memory")}
        facts["why"] = to_json(self.why)
        return {"replica": replica, "start_number": self.start_number, "phase": "exited", **facts}

    def write_termination_message(self, path: Path) -> int:
        """Write how the process ended to the container's termination file. Return the exit code to end with."""
        facts = {name: getattr(self, name) for name in ("start_number", "code", "signal", "out_of_memory", "delivered")}
        with contextlib.suppress(OSError):  # the exit code carries most of it
            path.write_text(json.dumps({**facts, "why": _short_reason(self.why)}), encoding="utf-8")
        return self.code if self.code is not None else 128 + (self.signal or 15)

    @classmethod
    def load(cls, directory: Path) -> ReplicaState | None:
        """Return the state of the replica, or None before the agent first wrote one."""
        try:
            state = json.loads((directory / STATE_FILE).read_text(encoding="utf-8"))
            return cls(**{**state, "why": from_json(state.get("why", ""))})
        except (FileNotFoundError, NotADirectoryError):
            return None


def take_lock(directory: Path) -> int | None:
    """Lock the replica's directory. Return the descriptor that holds the lock, or None if another process holds it.

    The lock belongs to the open file: a child that inherits the descriptor holds the lock after its parent has ended.
    """
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_locked(directory: Path) -> bool:
    """Return whether an agent is running for the directory. Takes no lock, so the check never blocks an agent."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE_FILE.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
    finally:
        os.close(descriptor)
    return bool(_WHOLE_FILE.unpack(answer)[0] != fcntl.F_UNLCK)


# The kernel's struct flock: type, whence, start, length, pid.
_WHOLE_FILE = struct.Struct("hhqqi0q")


# --- A notebook ------------------------------------------------------------------------------------------------------
NOTEBOOK_SOCKET = "notebook.socket"  # where Jupyter listens, in the replica's temporary directory
# In the directory of the code: packages for the notebook's programs, and the files that it starts from.
NOTEBOOK_PACKAGES, NOTEBOOK_START = ".regatta/packages", ".regatta/start"


# --- Coordination keys -----------------------------------------------------------------------------------------------
def attempt_prefix(job_id: str, attempt: int) -> str:
    """Return the prefix of all keys of an attempt."""
    return f"/regatta/{job_id}/{attempt}/"


def member_key(job_id: str, attempt: int, role: str, index: int) -> str:
    """Return the key of a process's registration, which a lease holds.

    The value is ``Member.to_json()`` without the incarnation.
    """
    return f"{attempt_prefix(job_id, attempt)}members/{role}/{index}"


def checkpoint_key(job_id: str, attempt: int, index: int) -> str:
    """Return the key of the record of a parameter server's checkpoints."""
    return f"{attempt_prefix(job_id, attempt)}checkpoints/{index}"


def checkpoint_cut_key(job_id: str, attempt: int) -> str:
    """Return the key of the version at which all parameter servers make their next checkpoint."""
    return f"{attempt_prefix(job_id, attempt)}checkpoint-cut"


def values_key(job_id: str, attempt: int, index: int) -> str:
    """Return the key that exists once a parameter server has had values in the attempt. The value is empty."""
    return f"{attempt_prefix(job_id, attempt)}values/{index}"


# --- Metrics that the runtime reports of a trainer's steps; names of users' metrics do not begin so -------------------
STEP_METRICS = "step/"
# Mean seconds of a step in each of its parts, over at least two seconds.
STEP_READ, STEP_COMPUTE, STEP_WAIT, STEP_PUSH = "step/read", "step/compute", "step/wait", "step/push"
STEP_PARTS = (STEP_READ, STEP_COMPUTE, STEP_WAIT, STEP_PUSH)
# 1 when no step is expected any more (a declared evaluation, the end of the loop), 0 when steps are expected again.
STEP_PAUSED = "step/paused"
# Of a step that takes long: seconds in its present part, seconds for which its thread has not moved, and the share of
# the time since the last report that full garbage collections took.
STEP_OPEN = "step/open/"
STEP_OPEN_READ, STEP_OPEN_COMPUTE = "step/open/read", "step/open/compute"
STEP_OPEN_WAIT, STEP_OPEN_PUSH = "step/open/wait", "step/open/push"
STEP_STILL, STEP_COLLECTING = "step/still", "step/collecting"


# --- Messages between an agent and its child: one JSON object per line over AGENT_FD ---------------------------------
# child -> agent
# {"op": "hello", "address": "127.0.0.1:4567" | "", "release": RELEASE}: registers; sent by dist.init, master, pserver
HELLO = "hello"
METRICS = "metrics"  # {"op": "metrics", "points": [[unix time, step, key, value], ...]}; NaN and Infinity as strings
# {"op": "failure", "text": "..."}: the error with which the process ends, as a message with its code
FAILURE = "failure"
# {"op": "pause", "on": true, "target": n}, to the process: stop before the next step, at this version or a later one.
PAUSE = "pause"
PAUSED = "paused"  # {"op": "paused", "stopped": true, "version": n or null}: the answer, and each change of it
EVENT = "event"  # {"op": "event", "kind": "...", "text": "..."}: for the job's timeline
# agent -> child
MEMBERS = (
    "members"  # {"op": "members", "revision": n, "members": [Member.to_json(), ...]}: all members, sent at every change
)
FENCED = "fenced"  # {"op": "fenced", "why": "..."}: the lease is lost; stop writing and exit with EXIT_RESTART

# --- Ingest: what the agent sends to the portal ----------------------------------------------------------------------
# Every call is POST with "Authorization: Bearer <attempt token>" below /ingest/v1/attempts/<attempt id>/.
#   logs       {"replica", "first": n, "lines": [[unix time, "stdout"|"stderr"|"agent", text], ...]} -> {"last": n}
#   metrics    {"replica", "first": n, "points": [[unix time, step, key, value], ...]}              -> {"last": n}
#   report     {"replica", "start_number", "phase": "starting"|"registered"|"exited",
#               "code", "signal", "out_of_memory", "why", "incarnation" (with "registered")}        -> {}
#   events     {"replica", "first": n, "events": [[unix time, kind, text], ...]}                    -> {"last": n}
#   heartbeat  {"replica"}                                                                          -> {}
#   artifacts  ?replica=&name=&sha256=  with the raw bytes as body                       -> {"name", "size", "sha256"}
#   begin      {"replica"}: entries accepted from its earlier starts               -> {"logs", "metrics", "events"}
#   stop       GET: time that a replica has to end after the request to stop            -> {"grace": seconds}
#   code       GET: the job's code                                                                  -> a tar
#   data       GET: the files of the job's dataset     -> {"files": [{"path", "size"}]}, downloaded from data/<path>
# The agent numbers lines, points and events, each kind from 1 across all starts of the replica in the attempt. The
# portal drops entries that it has accepted before, so a batch may be sent again. A batch that begins beyond last + 1 is
# answered 409 with code "gap" and the "last" accepted number: the agent goes back in its spool. 409 "stale_attempt" and
# 404 mean that the attempt has been replaced or removed: the agent stops its process and sends no more. Any other
# failure is retried.
# "gone": n in a batch: the agent no longer has the entries up to n, since the pod that printed them is gone. A portal
# whose database was restored to an earlier state may lack some of them, and then continues after n.
# In a pod, where starts of a replica share no spool, every call carries "start_number" too. The portal refuses a start
# that was replaced as it refuses an attempt ("stale_attempt"), and answers 503 "start_not_adopted" to one that the
# cluster has made and the portal has not recorded yet. After "begin" it takes nothing of earlier starts.
# EPOCH in an answer to a POST names the state to which the portal's database was last restored; it is absent if that
# never happened. When it changes, the agent sends its reports again.
# PACE in an answer to a POST is the age in seconds at which the agent should send batches and heartbeats from now on;
# it is absent while the portal can take them at BATCH_SECONDS.
EPOCH = "epoch"
PACE = "batch_seconds"


def own_address(environ: Mapping[str, str] = os.environ) -> str:
    """Return the address to listen on, at which other processes of the attempt find this one."""
    return environ.get(ADDRESS) or "127.0.0.1"


def parse_mode(text: str) -> tuple[str, int]:
    """Return a mode's name and number (0 if it has none), as in ``m_of_n(2)``. Raises ValueError with a message."""
    match = _MODE.fullmatch(text)
    if match is None or match[1] not in MODES or (match[2] is None) != (MODES[match[1]] is None):
        raise ValueError(messages.MODE_UNKNOWN(value=f"{text[:40]!r}"))
    number, least = int(match[2] or 0), MODES[match[1]] or 0
    if number < least:
        raise ValueError(messages.MODE_NUMBER_INVALID(mode=match[1], least=least, number=number))
    return match[1], number


_MODE = re.compile(r"([a-z_]+)(?:\(([0-9]{1,9})\))?")


@dataclass(frozen=True)
class Environment:
    """The variables that user code and the platform's roles read, with their types."""

    job_id: str
    attempt: int
    role: str
    index: int
    trainers: int
    min_trainers: int
    pservers: int
    mode: str
    wire: str
    passes: int
    dataset: str
    seed: int
    data_path: tuple[str, ...]
    output_dir: str
    agent_fd: int | None
    coordination: str
    outage: float
    gather: float
    checkpoint_dir: str
    checkpoint_seconds: float
    wire_secret: bytes = field(repr=False, default=b"")
    parameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    @property
    def replica(self) -> str:
        return f"{self.role}-{self.index}"

    @property
    def alone(self) -> bool:
        """Whether no agent runs beside this process: everything runs inside it."""
        return self.agent_fd is None


def read(environ: Mapping[str, str] = os.environ) -> Environment:
    """Read the contract from the environment. Without any variable, the result is one trainer that runs alone."""
    fd = environ.get(AGENT_FD)
    return Environment(
        job_id=environ.get(JOB_ID, "local"),
        attempt=int(environ.get(ATTEMPT, "1")),
        role=environ.get(ROLE, TRAINER),
        index=int(environ.get(INDEX, "0")),
        trainers=int(environ.get(TRAINERS, "1")),
        min_trainers=int(environ.get(MIN_TRAINERS, "1")),
        pservers=int(environ.get(PSERVERS, "1")),
        mode=environ.get(MODE, "sync"),
        wire=environ.get(WIRE, F32),
        passes=int(environ.get(PASSES, "1")),
        dataset=environ.get(DATASET, ""),
        seed=int(environ.get(SEED, "0")),
        data_path=tuple(_paths(environ.get(DATA_PATH, "data"))),
        output_dir=environ.get(OUTPUT_DIR, "."),
        agent_fd=int(fd) if fd else None,
        coordination=environ.get(COORDINATION, ""),
        outage=float(environ.get(OUTAGE, OUTAGE_SECONDS)),
        gather=float(environ.get(GATHER, GATHER_SECONDS)),
        checkpoint_dir=environ.get(CHECKPOINT_DIR, ""),
        checkpoint_seconds=float(environ.get(CHECKPOINT_SECONDS, "600")),
        wire_secret=environ.get(WIRE_SECRET, "").encode(),
        parameters=parameters(environ),
    )


def parameter_variable(name: str) -> str:
    """Return the name of the environment variable of a parameter: ``lr.head`` is ``REGATTA_PARAM_LR_HEAD``."""
    return PARAMETER_PREFIX + re.sub("[^A-Z0-9_]", "_", name.upper())


def is_parameter(variable: str) -> bool:
    """Return whether the environment variable holds parameters of the job."""
    return variable == PARAMETERS or variable.startswith(PARAMETER_PREFIX)


def parameters(environ: Mapping[str, str]) -> dict[str, bool | int | float | str]:
    """Return the job's parameters. Raises ValueError if the variable is not a JSON object."""
    given = json.loads(environ.get(PARAMETERS) or "{}")
    if not isinstance(given, dict):
        raise ValueError(f"{PARAMETERS} is not a JSON object")
    return given


def runs_user_code(role: str, environ: Mapping[str, str]) -> bool:
    """Return whether a process of that role and environment runs the user's code."""
    return role == TRAINER or environ.get(USER_CODE) == "1"


def _paths(value: str) -> Iterator[str]:
    return (part for part in value.split(os.pathsep) if part)
