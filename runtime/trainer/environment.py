"""The environment of a trainer's process: none (it runs alone), or an agent, a master and parameter servers."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NoReturn, Protocol

from runtime.agent_channel import Channel, Members
from runtime.contract import EXIT_RESTART, PSERVER, Environment, Member
from runtime.data import catalogue
from runtime.errors import Leaving, Lost, Refused, UsageError
from runtime.master.messages import serving
from runtime.master.task_table import partition
from runtime.messages import training as messages
from runtime.protocol.client import Client
from runtime.protocol.frames import job_crc
from runtime.protocol.proof import secret_of
from runtime.trainer.local_store import LocalStore
from runtime.trainer.metric_sinks import ChannelSink, Sink, TerminalSink
from runtime.trainer.parameter_store import Store
from runtime.trainer.pause_gate import PauseGate
from runtime.trainer.servers.server_store import ServerStore
from runtime.trainer.tasks.task_client import LocalTasks, TaskClient, TaskSource
from runtime.trainer.tasks.task_prefetch import PrefetchingSource

# Codes by which servers refuse a replaced process, such as one that was stopped for longer than its lease.
REPLACED = ("fenced", "replaced")


class JobContext(Protocol):
    """The interface between a job and its environment."""

    sink: Sink
    gate: PauseGate

    def tasks(self, dataset: str, passes: int | None) -> TaskSource:
        """The source of tasks; ``passes`` is used only if nothing else sets the number."""

    def store(self, wire: str) -> Store:
        """The store of the parameters; ``wire`` is one of the contract's."""

    def why_leave(self) -> str:
        """Why this process should end and be started again; empty if it should not."""

    def wait(self, seconds: float) -> None:
        """Sleep until a request to end at the latest."""


class Alone:
    """Everything in one process: ``python train.py``."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.sink: Sink = TerminalSink()
        self.gate = PauseGate(lambda _stands, _version: None)

    def tasks(self, dataset: str, passes: int | None) -> TaskSource:
        info = catalogue.locate(dataset, self._environment.data_path)
        table = partition(info.name, catalogue.chunks(info))
        return LocalTasks(table, self._environment.passes if passes is None else passes)

    def store(self, wire: str) -> Store:
        return LocalStore()

    def why_leave(self) -> str:
        return ""

    def wait(self, seconds: float) -> None:
        """A queue of one trainer always has an answer."""


class Attached:
    """A trainer of a job. Registers with the agent and waits for the master and the parameter servers."""

    def __init__(self, environment: Environment, channel: Channel) -> None:
        self._environment = environment
        self._secret = secret_of(environment)
        self._leave = threading.Event()
        self._why = ""
        self.sink: Sink = ChannelSink(channel)
        self.gate = PauseGate(channel.paused)
        channel.on_pause(self.gate.request)
        self._job = job_crc(environment.job_id, environment.attempt)
        channel.on_fenced(self.leave)
        channel.hello()
        try:
            members = channel.wait_for_members(self._complete, environment.gather)
        except (TimeoutError, ConnectionError) as error:
            raise Lost(str(error)) from None
        self._peers = {member.name: member for member in members if member.role == PSERVER}
        master = serving(members)
        assert master is not None  # noqa: S101  the members are complete
        self._master = master
        self._tasks: TaskClient | None = None
        self._store: ServerStore | None = None
        self._me = next(member for member in members if member.name == environment.replica)
        channel.on_members(self._take_members)

    def _complete(self, members: Members) -> bool:
        names = {member.name for member in members}
        needed = {f"{PSERVER}-{index}" for index in range(self._environment.pservers)}
        return serving(members) is not None and needed | {self._environment.replica} <= names

    def _take_members(self, members: Members) -> None:
        """Follow replaced processes. A lost one is waited for: its tasks or values are safe."""
        self._follow_master(serving(members))
        for member in members:
            if member.role == PSERVER and member != self._peers.get(member.name):
                self._peers[member.name] = member
                if self._store is not None and member.index < self._environment.pservers:
                    self._store.redirect(member.index, member.address, member.incarnation)

    def _follow_master(self, master: Member | None) -> None:
        if master is None or master == self._master:
            return
        self._master = master
        if self._tasks is not None:
            self._tasks.move(master.address, master.incarnation)

    def leave(self, why: str) -> None:
        """Request that this process ends."""
        self._why = self._why or why
        self._leave.set()

    def tasks(self, dataset: str, passes: int | None) -> TaskSource:
        ours = self._environment.dataset
        if dataset != ours:
            raise UsageError(messages.DATASETS_DIFFER(ours=f"{ours!r}", theirs=f"{dataset!r}"))
        self._tasks = TaskClient(
            self._master.address,
            self._me.index,
            self._me.incarnation,
            master=self._master.incarnation,
            job=self._job,
            leaving=self._leave.is_set,
            secret=self._secret,
        )
        self._tasks.move(self._master.address, self._master.incarnation)  # it may have been replaced meanwhile
        return PrefetchingSource(self._tasks)

    def store(self, wire: str) -> Store:
        servers = [self._peers[f"{PSERVER}-{index}"] for index in range(self._environment.pservers)]
        self._store = ServerStore([self._client(server) for server in servers], wire=wire)
        for server in servers:
            if (present := self._peers[server.name]) != server:  # it has been replaced meanwhile
                self._store.redirect(present.index, present.address, present.incarnation)
        return self._store

    def _client(self, server: Member) -> Client:
        return Client(
            server.address,
            name=f"parameter server {server.index}",
            job=self._job,
            incarnation=self._me.incarnation,
            expected=server.incarnation,
            leaving=self._leave.is_set,
            secret=self._secret,
        )

    def why_leave(self) -> str:
        return self._why

    def wait(self, seconds: float) -> None:
        self._leave.wait(seconds)


def leave_on_sigterm(leave: Callable[[str], object]) -> None:
    """Turn SIGTERM into a request to end, so that the current task is released. Works only in the main thread."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: leave("it was asked to end (SIGTERM)"))


def guard(give_up: Callable[[str], object]) -> Callable[[], AbstractContextManager[None]]:
    """Return a context that calls ``give_up`` with the reason if this process has to end.

    Reasons are the loss of another process, the replacement of this one, and a request to end.
    """

    @contextmanager
    def guarded() -> Iterator[None]:
        try:
            yield
        except (Lost, Leaving) as error:
            give_up(str(error))
        except Refused as refused:
            if refused.code not in REPLACED:
                raise
            give_up(refused.why)

    return guarded


def end_for_restart(why: str) -> NoReturn:
    """End this process so that it is started again, and write the reason to the job's log."""
    print(messages.TRAINER_ENDING(why=why.rstrip(".")), file=sys.stderr, flush=True)  # noqa: T201
    raise SystemExit(EXIT_RESTART)
