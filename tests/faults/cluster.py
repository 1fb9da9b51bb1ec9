"""The processes of one job, each under a real agent, and the faults that can be injected into them.

The test takes the portal's place: it starts the replicas, restarts those whose end the portal would answer with a
restart, and collects what all of them recorded. Every start of a replica has a directory of its own (``trainer-0.2``),
like a pod. They share only the coordination store and the directory of checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.runtime.proxy import Proxy
from runtime import contract, coordination
from runtime.agent import process_tree
from runtime.contract import MASTER, PSERVER, TRAINER, Member, ReplicaState
from runtime.coordination.base import Change, Versioned
from runtime.messages import from_json
from tests import waiting
from tests.faults import datasets
from tests.faults.recording.history import ENOUGH, HISTORY, PROXY, SOURCE, Event, Reader, Recorder
from tests.runtime.agent.ingest_server import IngestServer
from tests.servers.etcd_server import EtcdServer

ROOT = Path(__file__).resolve().parents[2]
JOB, ATTEMPT = "job", 1
SECRET = "0123456789abcdef" * 4
PREFIX = contract.attempt_prefix(JOB, ATTEMPT)
# Long enough for a machine that is busy with other tests; shorter where a test waits for a lease to expire.
LEASE_SECONDS, SHORT_LEASE_SECONDS = 8.0, 3.0
PATIENCE_SECONDS = 100.0


@dataclass
class Run:
    """One start of a replica: its agent, and its end if it is known."""

    name: str
    number: int
    directory: Path
    agent: subprocess.Popen[bytes]
    child: int = 0

    @property
    def source(self) -> str:
        return f"{self.name}.{self.number}"

    @property
    def state(self) -> ReplicaState | None:
        return ReplicaState.load(self.directory)

    @property
    def ended(self) -> bool:
        return self.agent.poll() is not None

    @property
    def code(self) -> int | None:
        """The exit code of the process; None if a signal ended it or its agent."""
        state = self.state
        return state.code if state and state.phase == "exited" else None

    @property
    def why(self) -> str:
        return state.why if (state := self.state) else ""

    @property
    def pid(self) -> int:
        """The role's process. It is the agent's first child."""
        if not self.child:
            until(lambda: self.ended or any(process_tree.descendants(self.agent.pid)), f"{self.source} starts")
            self.child = next(iter(process_tree.descendants(self.agent.pid)), 0)
        return self.child


class Portal(IngestServer):
    """Receives what the agents of all starts send, and stores it by source."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        super().__init__()

    def output(self, source: str) -> str:
        """The output of a start, and the remarks of its agent."""
        return "\n".join(text for _at, _stream, text in self._of[source]["logs"])

    def events(self) -> list[str]:
        """The texts of the timeline."""
        return [from_json(text) for taken in list(self._of.values()) for _at, _kind, text in taken["events"]]

    def _take(self, address: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        self.taken = self._of[address.path.split("/")[4]]
        return super()._take(address, body)


@dataclass
class Plan:
    """The description of a job. ``variables`` are the contract's, for all processes."""

    workload: str = "bank"
    trainers: int = 2
    pservers: int = 1
    masters: int = 1
    tasks: int = 20
    passes: int = 1
    mode: str = "sync"
    lease: float = LEASE_SECONDS
    checkpoint_seconds: float = 0.0  # 0: none
    variables: dict[str, str] = field(default_factory=dict)


class Cluster:
    """A job with its processes. ``etcd``: without one the coordination store is a file."""

    def __init__(self, directory: Path, plan: Plan, etcd: EtcdServer | None = None) -> None:
        self.plan = plan
        self.directory = directory
        self.histories = directory / "histories"
        self._reader = Reader(self.histories)
        self.runs: dict[str, list[Run]] = defaultdict(list)
        self.portal = Portal()
        self.wires: dict[str, Proxy] = {}  # of each trainer, to master and parameter servers
        self.lines: dict[str, Proxy] = {}  # of each replica to etcd
        self._etcd = etcd
        self._url = f"{etcd.url}/{directory.name}" if etcd else f"sqlite:///{directory / 'coordination.db'}"
        self._dismissed: set[str] = set()
        self._frozen: set[int] = set()
        directory.mkdir(parents=True, exist_ok=True)
        datasets.make(directory / "data", plan.tasks)
        self.store = coordination.connect(self._url)
        self._archive = _Archive(self._url, self.histories)

    # --- Starting ----------------------------------------------------------------------------------------------------
    def launch(self) -> None:
        """Start every replica for the first time."""
        for role, count in ((MASTER, self.plan.masters), (PSERVER, self.plan.pservers), (TRAINER, self.plan.trainers)):
            for index in range(count):
                self.start(f"{role}-{index}")

    def start(self, name: str, **variables: str) -> Run:
        """Start a replica again."""
        number = len(self.runs[name]) + 1
        directory = self.directory / f"{name}.{number}"
        for subdirectory in ("work", "output", "tmp"):
            (directory / subdirectory).mkdir(parents=True)
        with (directory / "agent.log").open("wb") as log:
            agent = subprocess.Popen(
                [sys.executable, "-m", "runtime.agent", "--", sys.executable, *self._command(name)],
                env={**self._environment(name, number, directory), **self.plan.variables, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        run = Run(name, number, directory, agent)
        self.runs[name].append(run)
        self._dismissed.discard(name)
        return run

    def _command(self, name: str) -> tuple[str, ...]:
        role = name.partition("-")[0]
        if role == MASTER:
            return ("-m", "runtime.master")
        if role == PSERVER:
            return ("-m", "tests.faults.recording.witness")
        return ("-m", "tests.faults.workloads", self.plan.workload)

    def _environment(self, name: str, number: int, directory: Path) -> dict[str, str]:
        role, _dash, index = name.partition("-")
        plan = self.plan
        variables = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            contract.JOB_ID: JOB,
            contract.ATTEMPT_ID: f"{name}.{number}",
            contract.ATTEMPT: str(ATTEMPT),
            contract.ROLE: role,
            contract.REPLICA: name,
            contract.INDEX: index,
            contract.START_NUMBER: str(number),
            contract.TRAINERS: str(plan.trainers),
            contract.PSERVERS: str(plan.pservers),
            contract.MODE: plan.mode,
            contract.PASSES: str(plan.passes),
            contract.DATASET: datasets.NAME,
            contract.DATA_PATH: str(self.directory / "data"),
            contract.INGEST_URL: self.portal.url,
            contract.INGEST_TOKEN: "token",
            contract.WIRE_SECRET: SECRET,
            contract.COORDINATION: self._coordination(name),
            contract.REPLICA_DIR: str(directory),
            contract.WORK_DIR: str(directory / "work"),
            contract.OUTPUT_DIR: str(directory / "output"),
            contract.LEASE: str(plan.lease),
            contract.SANDBOX: "none",
            HISTORY: str(self.histories),
            SOURCE: f"{name}.{number}",
        }
        if role == TRAINER:
            variables[PROXY] = self.wires.setdefault(name, Proxy(name_of=self._name_of)).address
        if role == PSERVER and plan.checkpoint_seconds:
            variables[contract.CHECKPOINT_DIR] = str(self.directory / "checkpoints")
            variables[contract.CHECKPOINT_SECONDS] = str(plan.checkpoint_seconds)
        return variables

    def _coordination(self, name: str) -> str:
        if self._etcd is None:
            return self._url
        line = self.lines.setdefault(name, Proxy(self._etcd.server))
        return f"etcd://{line.address}/{self.directory.name}"

    # --- Looking -----------------------------------------------------------------------------------------------------
    def members(self) -> list[Member]:
        """The members registered now."""
        return [_member(entry) for entry in self.store.list(f"{PREFIX}members/").entries]

    def member(self, name: str) -> Member | None:
        return next((member for member in self.members() if member.name == name), None)

    def _name_of(self, address: str) -> str:
        return next((member.name for member in self.members() if member.address == address), address)

    def run(self, name: str) -> Run:
        """The present start of a replica."""
        return self.runs[name][-1]

    def history(self) -> list[Event]:
        """Everything that the processes have recorded so far."""
        return self._reader.events()

    def count(self, kind: str, source: str = "") -> int:
        return sum(event.kind == kind and event.source.startswith(source) for event in self.history())

    def await_count(self, kind: str, number: int, source: str = "") -> None:
        """Wait until ``number`` events of a kind (of a source) have happened."""
        self.until(lambda: self.count(kind, source) >= number, f"{number} times {kind} {source}")

    def await_quiet(self, kind: str, source: str = "", seconds: float = 0.5) -> None:
        """Wait until no event of a kind (of a source) has happened for ``seconds``."""

        def last() -> float:
            return max(event.at for event in self.history() if event.kind == kind and event.source.startswith(source))

        self.until(lambda: time.monotonic() > last() + seconds, f"{source} is quiet")

    def until(self, condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for a condition; meanwhile restart replicas that need it."""

        def look() -> object:
            self._staff()
            return condition()

        until(look, what, seconds, self.report)

    def report(self) -> str:
        """The state and the output of every replica, for a failed test."""
        runs = [run for runs in self.runs.values() for run in runs]
        return "\n".join(f"--- {run.source}: {run.state}\n{self.portal.output(run.source)[-3000:]}" for run in runs)

    # --- Doing -------------------------------------------------------------------------------------------------------
    def kill(self, name: str) -> Run:
        """Send SIGKILL to the process; its agent keeps running and deletes the registration."""
        return self._signal(name, signal.SIGKILL)

    def terminate(self, name: str) -> Run:
        """End a replica as the portal, or a preemption, does: SIGTERM, and the grace period."""
        run = self.run(name)
        run.agent.send_signal(signal.SIGTERM)
        return run

    def lose(self, name: str) -> Run:
        """Kill the whole machine: the process and its agent, without a message."""
        run = self.run(name)
        run.agent.kill()
        run.agent.wait()
        return run

    def freeze(self, name: str) -> Run:
        """Stop the whole machine for a time."""
        run = self.run(name)
        for pid in (run.agent.pid, run.pid):
            os.kill(pid, signal.SIGSTOP)
            self._frozen.add(pid)
        return run

    def thaw(self, run: Run) -> None:
        for pid in (run.pid, run.agent.pid):
            os.kill(pid, signal.SIGCONT)
            self._frozen.discard(pid)

    def dismiss(self, name: str) -> Run:
        """End a replica as the portal does to scale down: it is not started again."""
        self._dismissed.add(name)
        return self.terminate(name)

    def kill_all(self) -> None:
        """Kill every process of the job and every agent, at once."""
        runs = [self.run(name) for name in self.runs]
        for run in runs:
            run.agent.kill()
        for run in runs:
            run.agent.wait()

    def _signal(self, name: str, number: int) -> Run:
        run = self.run(name)
        os.kill(run.pid, number)
        return run

    # --- Ending ------------------------------------------------------------------------------------------------------
    def finish(self, seconds: float = PATIENCE_SECONDS) -> list[Event]:
        """Wait until the job is done, without further faults; return the whole history."""
        (self.histories / ENOUGH).touch()
        self.until(self._done, "the job is done", seconds)
        for name in self.runs:
            if not self.run(name).ended:
                self.dismiss(name)
        until(lambda: all(self.run(name).ended for name in self.runs), "all have left", 30.0, self.report)
        return self.history()

    def _done(self) -> bool:
        """A master that ends with 0 has ended all passes, and every trainer has left."""
        return any(run.ended and run.code == contract.EXIT_OK and not run.why for run in self._masters())

    def _masters(self) -> list[Run]:
        return [run for name, runs in self.runs.items() if name.startswith(MASTER) for run in runs]

    def _staff(self) -> None:
        """Restart replicas as the portal does: those that were lost or request it. A failed replica fails the test."""
        for name in list(self.runs):
            run = self.run(name)
            if not run.ended or name in self._dismissed or run.code == contract.EXIT_OK:
                continue
            assert run.code != contract.EXIT_ERROR, f"{run.source} failed.\n{self.report()}"
            self.start(name)

    def close(self) -> None:
        """End all processes."""
        for pid in self._frozen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        runs = [run for runs in self.runs.values() for run in runs]
        for run in runs:
            run.agent.kill()
        for run in runs:
            run.agent.wait()
        for proxy in (*self.wires.values(), *self.lines.values()):
            proxy.close()
        self._archive.close()
        self.store.close()
        self.portal.close()


class _Archive:
    """Records every change of the job's keys, with the revision of the store."""

    def __init__(self, url: str, directory: Path) -> None:
        self._store = coordination.connect(url)
        self._recorder = Recorder(directory, "store")
        self._watch = self._store.watch(PREFIX, self._store.list(PREFIX).revision)
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._watch.close()
        self._store.close()
        self._thread.join(10.0)

    def _run(self) -> None:
        for happening in self._watch:
            if isinstance(happening, Change):
                self._note(happening.key, happening.entry, happening.revision)
            else:
                for entry in happening.entries:
                    self._note(entry.key, entry, entry.mod_revision)

    def _note(self, key: str, entry: Versioned | None, revision: int) -> None:
        value = entry.value.decode() if entry else None
        create = entry.create_revision if entry else 0
        self._recorder.note("stored", key=key.removeprefix(PREFIX), value=value, revision=revision, create=create)


def _member(entry: Versioned) -> Member:
    return Member.from_json({**json.loads(entry.value), "incarnation": entry.create_revision})


def until(
    condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS, report: Callable[[], str] = str
) -> None:
    """Wait for a condition. If it does not come true, ``report`` is shown."""
    waiting.until(what, condition, seconds, every=0.03, story=report)
