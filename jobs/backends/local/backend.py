"""Backend that runs the replicas of an attempt as processes of this machine, each under an agent of its own.

The backend keeps its state in files, not in memory: a plan file records the launch, a lock shows whether an agent is
running, and a state file records how a replica ended. So the portal may be killed and restarted at any time, and two
of its processes may call at once.

    <attempts>/checkpoints/<job>/        checkpoints of the job; they outlive its attempts
    <attempts>/python/runtime            a link: the only package of the project that replicas can import
    <attempts>/<attempt>/plan.json       the launch plan without the token
    <attempts>/<attempt>/token           the ingest token, for replicas that are added later
    <attempts>/<attempt>/wire-secret     with which the processes prove to each other that they belong to the attempt
    <attempts>/<attempt>/control-key     with which the portal and the agents prove themselves to each other
    <attempts>/<attempt>/uid             the user id of its processes, where each attempt has one (``uids``)
    <attempts>/<attempt>/network.socket  the socket from which agents get the network of the attempt, if any
    <attempts>/<attempt>/ports.json      the first port of each process, where its peers need it
    <attempts>/<attempt>/stop.json       the attempt was stopped; no replica is started again
    <attempts>/<attempt>/<replica>/      the agent's directory (runtime.contract), with work, output and tmp
    <attempts>/<attempt>/<replica>/control.socket   where the agent listens for the portal (``runtime.control``)
    <attempts>/<attempt>/<replica>/cgroup   the cgroup of its process, if any (``cgroups``)
    <attempts>/<attempt>/<replica>/agent.log, agent.2.log ...     output of the agent of each start of the replica
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import marshal
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from jobs.backends.base import (
    AttemptRef,
    AttemptView,
    ControlAddress,
    ControlMissing,
    LaunchFailed,
    LaunchPlan,
    Machine,
    Phase,
    ReplicaPlan,
    ReplicaView,
)
from jobs.backends.checkpoint_store import CheckpointStore
from jobs.backends.home_store import HomeStore
from jobs.backends.local import cgroups, gpus, homes, ports, process_sessions, uids
from jobs.backends.local.attempt_ports import PORTS_FILE, PORTS_LOCK, peer_environments, ports_in
from jobs.backends.local.isolation import Policy
from jobs.backends.local.plan_files import PLAN_FILE, draft, read_plan, write_first, write_plan, write_private
from jobs.backends.local.replica_directories import chown_directories, make_directories, remove
from jobs.backends.local.replica_views import agent_log, is_busy, is_orphaned, start_number_of, state_of, view_of
from jobs.frameworks.peer_env import PORTS
from jobs.messages import cluster as messages
from portal.common.clock import now as wall_clock
from runtime import contract
from runtime.contract import AgentOrder, ReplicaState
from runtime.control import identity
from runtime.isolation import gpu_devices

_log = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
TOKEN_FILE = "token"  # noqa: S105  a file's name
WIRE_SECRET_FILE = "wire-secret"  # noqa: S105  a file's name
CONTROL_KEY_FILE = "control-key"
# Time after the grace in which an agent can send its last lines, before it is killed too.
FLUSH_TIMEOUT = timedelta(seconds=5)

# Variables that an agent inherits from the portal's environment; all others come from the plan.
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
_DESCRIPTORS: tuple[Literal["lock"], Literal["log"]] = ("lock", "log")


class LocalBackend:
    """``ClusterBackend`` on this machine.

    ``attempts`` is the directory of all files. ``policy`` returns how jobs are isolated; without one, the variables of
    the plan decide.
    """

    rehearses = True
    outlives_the_portal = False

    def __init__(
        self,
        attempts: Path,
        clock: Callable[[], float] = lambda: wall_clock().timestamp(),
        policy: Callable[[], Policy] | None = None,
        present_gpus: Callable[[], list[int]] = gpu_devices.present,
    ) -> None:
        self._attempts = attempts
        self._policy = policy
        self._present_gpus = present_gpus
        self._checkpoint_store = CheckpointStore(attempts.absolute() / CHECKPOINTS)
        self._home_store = HomeStore(attempts.absolute().parent / homes.DIRECTORY)
        self._clock = clock
        self._unwritten: dict[Path, float] = {}  # unix times of stop requests that could not be written to a file

    def machine(self) -> Machine:
        """Return this machine: the cores that this process may use, all of the memory, and the GPUs."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Machine("this machine", len(os.sched_getaffinity(0)), memory, len(self._present_gpus()))

    def launch(self, plan: LaunchPlan) -> None:
        if self._policy is not None and not plan.trusted and (why := self._policy().admins_only):
            raise LaunchFailed(why)
        attempt = self._directory(plan.ref)
        try:
            attempt.mkdir(parents=True, exist_ok=True, mode=0o700)
            # The plan first: with it the attempt exists, whatever fails afterwards.
            if not (attempt / PLAN_FILE).exists():
                write_private(attempt / TOKEN_FILE, plan.ingest_token)
                write_first(attempt / WIRE_SECRET_FILE, plan.wire_secret)
                write_private(attempt / CONTROL_KEY_FILE, plan.control_key)
                self._write_with_ports(attempt, plan)
            if (attempt / contract.STOP_FILE).exists():
                return
            # One that was scaled down has none until it is restarted.
            kept = [one for one in plan.replicas if not gpus.gave_back(attempt, one.name)]
            with self._gpus_assigned(attempt, kept):
                self._start(attempt, plan, plan.replicas)
        except OSError as error:
            raise LaunchFailed(messages.PROCESSES_NOT_STARTED(error=error), retryable=True) from error

    def _write_with_ports(self, attempt: Path, plan: LaunchPlan) -> None:
        """Write the ports of each process, then the plan.

        A lock admits one launch at a time, so that no two choose the same ports. A second launch of the attempt uses
        what the first has written.
        """
        with (self._attempts / PORTS_LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if plan.framework in PORTS and not (attempt / PORTS_FILE).exists():
                write_private(attempt / PORTS_FILE, json.dumps(self._ports_of(plan)))
            if not (attempt / PLAN_FILE).exists():
                write_plan(attempt, plan)

    @contextlib.contextmanager
    def _gpus_assigned(self, attempt: Path, replicas: Sequence[ReplicaPlan]) -> Iterator[None]:
        """Choose the GPUs of replicas that have none, and admit no other choice during the block.

        A replica that starts again looks stopped until its agent runs. Raises LaunchFailed if too few are free, and
        OSError.
        """
        if not any(one.gpu for one in replicas):
            yield
            return
        with (self._attempts / PORTS_LOCK).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            gpus.assign(self._attempts, attempt, replicas, self._present_gpus())
            yield

    def _ports_of(self, plan: LaunchPlan) -> dict[str, int]:
        """Choose the first port of each process, by replica name. Raises OSError if none are free."""
        count, rng = PORTS[plan.framework], random.Random(plan.ref.attempt_id)  # noqa: S311  nothing secret
        taken = {port for path in self._attempts.glob(f"*/{PORTS_FILE}") for port in ports_in(path)}
        places: dict[str, int] = {}
        for replica in plan.replicas:
            places[replica.name] = ports.choose(count, taken, rng)
            taken.update(range(places[replica.name], places[replica.name] + count))
        return places

    def observe(self, ref: AttemptRef) -> AttemptView:
        attempt = self._directory(ref)
        plan = read_plan(attempt)
        if plan is None:
            return AttemptView(gone=True)
        return AttemptView(gone=False, replicas=tuple(self._view(attempt, plan, one) for one in plan.replicas))

    def scale(self, ref: AttemptRef, role: str, replicas: int) -> None:
        attempt = self._directory(ref)
        plan = read_plan(attempt)
        if plan is None or (attempt / contract.STOP_FILE).exists():
            return
        ever = [one for one in plan.replicas if one.role == role]
        fresh = range(len(ever), replicas)
        if ever and fresh:
            added = [_sibling(ever[0], index) for index in fresh]
            plan = replace(plan, replicas=(*plan.replicas, *added))
            # The GPUs first: once a replica is in the plan, it is not added again.
            with self._gpus_assigned(attempt, added):
                write_plan(attempt, plan)
            self.launch(plan)
        for surplus in ever[replicas:]:
            self._stop(attempt / surplus.name, plan.grace)

    def restart(self, ref: AttemptRef, name: str, start_number: int) -> None:
        attempt = self._directory(ref)
        plan = read_plan(attempt)
        if plan is None or (attempt / contract.STOP_FILE).exists():
            return
        again = [one for one in plan.replicas if one.name == name]
        with self._gpus_assigned(attempt, again):
            self._start(attempt, plan, again, start_number)

    def kill(self, ref: AttemptRef, name: str) -> None:
        state = state_of(self._directory(ref) / name)
        if state is not None:
            process_sessions.kill_children(state.pid, state.ticks)

    def control_address(self, ref: AttemptRef, name: str) -> ControlAddress | None:
        directory = self._directory(ref) / name
        plan = read_plan(directory.parent)
        if plan is None or all(one.name != name for one in plan.replicas):
            return None
        if view_of(directory, name, self._clock()).phase is not Phase.RUNNING:
            return None
        path = directory / identity.SOCKET_FILE
        if not path.exists():
            raise ControlMissing
        return ControlAddress(socket=path)

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        attempt = self._directory(ref)
        plan = read_plan(attempt)
        if plan is None:
            return
        self._note_stop(attempt, grace)
        for one in plan.replicas:
            if (attempt / one.name).is_dir():
                self._stop(attempt / one.name, grace)

    def cleanup(self, ref: AttemptRef) -> None:
        """Remove the files of an attempt whose replicas have ended. An attempt that still runs is left alone."""
        attempt = self._directory(ref)
        plan = read_plan(attempt)
        if plan is None or any(is_busy(attempt / one.name) for one in plan.replicas):
            return
        # The token first: it is deleted even if removing the rest is interrupted.
        (attempt / TOKEN_FILE).unlink(missing_ok=True)
        for one in plan.replicas:
            cgroups.end(attempt / one.name)
        for directory in (attempt, *(attempt / one.name for one in plan.replicas)):
            self._unwritten.pop(directory, None)
        remove(attempt)

    def attempts(self, namespaces: Collection[str]) -> Iterator[AttemptRef]:
        for path in sorted(self._attempts.absolute().glob(f"*/{PLAN_FILE}")):
            plan = read_plan(path.parent)
            if plan is not None and plan.namespace in namespaces:
                yield plan.ref

    def last_checkpoint(self, job_id: str) -> int:
        return self._checkpoint_store.last(job_id)

    def checkpoint_sizes(self) -> Mapping[str, int]:
        return self._checkpoint_store.sizes()

    def forget(self, job_id: str) -> None:
        self._checkpoint_store.forget(job_id)

    # --- Starting ----------------------------------------------------------------------------------------------------
    def _start(self, attempt: Path, plan: LaunchPlan, replicas: Iterable[ReplicaPlan], start_number: int = 1) -> None:
        """Start each replica unless this start number, or a later one, has begun. Locks decide between two callers."""
        with contextlib.ExitStack() as open_files:
            orders = [self._prepare(attempt, plan, one, start_number, open_files) for one in replicas]
            _start_agents([order for order in orders if order is not None])

    def _prepare(
        self, attempt: Path, plan: LaunchPlan, replica: ReplicaPlan, start_number: int, open_files: contextlib.ExitStack
    ) -> AgentOrder | None:
        """Make the directories of the replica and return the order for its agent; None if it is not to be started."""
        directory = attempt / replica.name
        directory.mkdir(exist_ok=True, mode=0o700)
        lock = contract.take_lock(directory)
        if lock is None:
            return None
        open_files.callback(os.close, lock)
        before = ReplicaState.load(directory)
        begun = before is not None if start_number == 1 else start_number_of(directory) >= start_number
        if begun:
            return None
        if before is not None:
            _clear(directory, before)
        isolation = self._isolation(attempt, replica)
        make_directories(directory, plan.bundle if replica.runs_user_code else None)
        if contract.RUN_AS in isolation:
            chown_directories(directory, int(isolation[contract.RUN_AS]))
        if replica.home:
            homes.prepare(self._home_store.of(replica.home), int(isolation.get(contract.RUN_AS, 0)) or None)
        cgroups.make(self._policy().cgroups if self._policy else None, directory, replica, start_number)
        order = self._order(attempt, plan, replica, start_number, lock, ("--", *replica.command), open_files)
        order["environment"].update(gpus.variables(attempt, replica, self._present_gpus()))
        if self._policy is not None and (network := self._policy().network):
            order["environment"][contract.NETWORK] = network
        return order

    def _view(self, attempt: Path, plan: LaunchPlan, replica: ReplicaPlan) -> ReplicaView:
        view = view_of(attempt / replica.name, replica.name, self._clock())
        try:
            # After the view: an agent that ends between the two is seen by the next call, and only counts as lost once
            # its spool has been delivered.
            if self._redeliver(attempt, plan, replica):
                return view_of(attempt / replica.name, replica.name, self._clock())
        except OSError as error:
            # For example, the disk is full. The observed state is valid all the same, and the next call retries.
            _log.warning("What %s had kept could not be handed to another agent. %s", replica.name, error)
        return view

    def _redeliver(self, attempt: Path, plan: LaunchPlan, replica: ReplicaPlan) -> bool:
        """If an agent ended before it had delivered its spool, kill its processes and start a second agent to deliver.

        This happens once per start of the replica. Return whether it happened now.
        """
        directory = attempt / replica.name
        if not is_orphaned(directory) or (lock := contract.take_lock(directory)) is None:
            return False
        with contextlib.ExitStack() as open_files:
            open_files.callback(os.close, lock)
            # Read again under the lock: an agent writes its last state before it releases the lock.
            state = ReplicaState.load(directory)
            if state is None or state.delivered or state.handed_over:
                return False
            _kill(directory, state)
            replace(state, handed_over=True).write(directory)
            _start_agents([self._order(attempt, plan, replica, state.start_number, lock, ("--deliver",), open_files)])
        return True

    def _order(
        self,
        attempt: Path,
        plan: LaunchPlan,
        replica: ReplicaPlan,
        start_number: int,
        lock: int,
        arguments: tuple[str, ...],
        open_files: contextlib.ExitStack,
    ) -> AgentOrder:
        directory = attempt / replica.name
        return {
            "arguments": list(arguments),
            "environment": {
                **self._environment(attempt, plan, replica, lock),
                contract.START_NUMBER: str(start_number),
            },
            "directory": str(directory),
            "lock": lock,
            "log": open_files.enter_context(agent_log(directory, start_number).open("ab")).fileno(),
        }

    def _environment(self, attempt: Path, plan: LaunchPlan, replica: ReplicaPlan, lock: int) -> dict[str, str]:
        directory = attempt / replica.name
        peer_environment = peer_environments(attempt, plan).get((replica.role, replica.index), {})
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        defaults = {contract.COORDINATION: f"sqlite:///{attempt / 'coordination.sqlite3'}"}
        if not replica.runs_user_code:
            defaults[contract.CHECKPOINT_DIR] = str(self._checkpoint_store.of(plan.ref.job_id))
        decided = {
            contract.JOB_ID: plan.ref.job_id,
            contract.ATTEMPT_ID: plan.ref.attempt_id,
            contract.ATTEMPT: str(plan.ref.number),
            contract.ROLE: replica.role,
            contract.REPLICA: replica.name,
            contract.INDEX: str(replica.index),
            contract.INGEST_TOKEN: (attempt / TOKEN_FILE).read_text(encoding="utf-8"),
            contract.WIRE_SECRET: (attempt / WIRE_SECRET_FILE).read_text(encoding="utf-8"),
            **_control_variables(attempt),
            contract.REPLICA_DIR: str(directory),
            contract.WORK_DIR: str(directory / "work"),
            contract.OUTPUT_DIR: str(directory / "output"),
            contract.GRACE_SECONDS: str(plan.grace.total_seconds()),
            contract.LOG_CAP: str(plan.log_cap),
            contract.LIMIT_MEMORY: str(replica.memory),
            contract.LIMIT_PROCESSES: str(replica.processes),
            contract.LIMIT_CPU_SECONDS: str(replica.cpu_seconds),
            contract.LOCK_FD: str(lock),
            "PYTHONPATH": str(self._import_path()),
            **({contract.NOTEBOOK_HOME: str(self._home_store.of(replica.home))} if replica.home else {}),
            **self._isolation(attempt, replica),
            **cgroups.variables(directory),
        }
        return {**inherited, **defaults, **replica.environment, **peer_environment, **decided}

    def _isolation(self, attempt: Path, replica: ReplicaPlan) -> dict[str, str]:
        """Return the variables that define the isolation of a process with user code. Raises OSError."""
        if self._policy is None or not replica.runs_user_code:
            return {}
        policy = self._policy()
        kind = contract.NAMESPACES if policy.namespaces else contract.LANDLOCK
        home = self._home_store.of(replica.home) if replica.home else None
        identity = {contract.RUN_AS: str(uids.of(attempt, policy.uids, home))} if policy.uids is not None else {}
        return {contract.SANDBOX: kind, contract.LIMIT_DISK: str(policy.disk), **identity}

    def _import_path(self) -> Path:
        """Return a directory with only a link to the package ``runtime``: the rest of the project is not importable."""
        directory = self._attempts / "python"
        directory.mkdir(parents=True, exist_ok=True)
        target = Path(contract.__file__).resolve().parent
        link = directory / "runtime"
        if not link.is_symlink() or link.readlink() != target:
            fresh = draft(link)
            fresh.symlink_to(target)
            fresh.replace(link)
        return directory

    # --- Stopping ----------------------------------------------------------------------------------------------------
    def _stop(self, directory: Path, grace: timedelta) -> None:
        """Send SIGTERM to the agent; kill it if the grace and ``FLUSH_TIMEOUT`` have passed since the first call."""
        requested = self._note_stop(directory, grace)
        state = state_of(directory)
        if state is None:
            return  # its agent reads the stop file before it starts anything
        alive = contract.is_locked(directory)
        late = self._clock() > requested + (grace + FLUSH_TIMEOUT).total_seconds()
        if alive and not late:
            process_sessions.signal_leader(state.pid, state.ticks, signal.SIGTERM)
        elif alive or state.phase != "exited":
            _kill(directory, state)

    def _note_stop(self, directory: Path, grace: timedelta) -> float:
        """Record the stop request; return the time of the first one (unix time).

        The time is kept in memory while the disk accepts no file, so that an attempt can be stopped all the same.
        """
        try:
            return self._write_stop(directory, grace, self._unwritten.get(directory, self._clock()))
        except OSError as error:
            if directory not in self._unwritten:
                _log.warning("That %s is to stop could not be written. %s", directory, error)
            return self._unwritten.setdefault(directory, self._clock())

    def _write_stop(self, directory: Path, grace: timedelta, requested: float) -> float:
        """Write the stop file; return the time of the first request. The shortest grace counts. Raises OSError."""
        path = directory / contract.STOP_FILE
        request = {"grace": grace.total_seconds(), "asked": requested}
        fresh = draft(path)
        try:
            fresh.write_text(json.dumps(request), encoding="utf-8")
            # Linking fails where the file exists: the first writer wins, and no reader sees half a file.
            path.hardlink_to(fresh)
        except FileExistsError:
            first = json.loads(path.read_text(encoding="utf-8"))
            if request["grace"] < first["grace"]:
                fresh.write_text(json.dumps({**first, "grace": request["grace"]}), encoding="utf-8")
                fresh.replace(path)
            return float(first["asked"])
        finally:
            fresh.unlink(missing_ok=True)
        return request["asked"]

    def _directory(self, ref: AttemptRef) -> Path:
        return self._attempts.absolute() / ref.attempt_id


# --- Starting --------------------------------------------------------------------------------------------------------
def _start_agents(orders: Sequence[AgentOrder]) -> None:
    """Start an agent for each order, all from one interpreter. They outlive this process and inherit their locks."""
    if not orders:
        return
    descriptor = os.memfd_create("orders", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            marshal.dump([dict(order) for order in orders], file)
        os.lseek(descriptor, 0, os.SEEK_SET)
        environment = orders[0]["environment"]
        # Not waited for: it ends as soon as the agents run. Its error output goes to the log of the first agent.
        subprocess.Popen(
            [sys.executable, "-m", "runtime.agent.starter", str(descriptor)],
            stdin=subprocess.DEVNULL,
            stdout=orders[0]["log"],
            stderr=orders[0]["log"],
            cwd=orders[0]["directory"],
            env={name: environment[name] for name in (*_INHERITED, "PYTHONPATH") if name in environment},
            pass_fds=(descriptor, *(order[name] for order in orders for name in _DESCRIPTORS)),
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def _control_variables(attempt: Path) -> dict[str, str]:
    """Return the key of the control channel; nothing for an attempt that a release without the channel launched."""
    try:
        return {contract.CONTROL_KEY: (attempt / CONTROL_KEY_FILE).read_text(encoding="utf-8")}
    except FileNotFoundError:
        return {}


# --- Files -----------------------------------------------------------------------------------------------------------
def _clear(directory: Path, before: ReplicaState) -> None:
    """Prepare the directory for another start: remove the stop request and kill processes of the earlier one."""
    (directory / contract.STOP_FILE).unlink(missing_ok=True)
    if before.phase != "exited":
        _kill(directory, before)


def _kill(directory: Path, state: ReplicaState) -> None:
    """Kill the agent and everything that it has started; the agent first, so that it starts nothing more."""
    process_sessions.kill(state.pid, state.ticks, directory)
    cgroups.end(directory)


def _sibling(replica: ReplicaPlan, index: int) -> ReplicaPlan:
    """Return the plan of another replica of the same role."""
    return replace(replica, name=f"{replica.role}-{index}", index=index)
