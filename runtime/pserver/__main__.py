"""The process of a parameter server: ``python -m runtime.pserver``.

The first process of an attempt waits for first values. A replacement waits for the values that trainers hold
(``recovery.Comeback``).
"""

from __future__ import annotations

import logging
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from runtime import contract, coordination
from runtime.agent_channel import Channel
from runtime.checkpoint import reader
from runtime.checkpoint.filesystem import before_attempt, of_attempt
from runtime.checkpoint.index import Book
from runtime.contract import PSERVER, Environment
from runtime.coordination.base import Compare, CoordinationError, CoordinationStore
from runtime.errors import RegattaError
from runtime.parameters.messages import NOTHING
from runtime.parameters.sharding import even_table
from runtime.protocol.frames import job_crc
from runtime.protocol.proof import secret_of
from runtime.pserver import checkpointer
from runtime.pserver.checkpointer import Checkpointer, Identity
from runtime.pserver.memory_budget import MemoryBudget
from runtime.pserver.recovery import Recovered
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.pserver.shard_reports import RECORDS_PER_SECOND

REGISTRATION_SECONDS = 30.0
# The interval of retries to store the mark that there are values.
NOTE_SECONDS = 1.0

log = logging.getLogger("pserver")


class _Checkpoints:
    """The checkpoints of this server."""

    def __init__(self, environment: Environment, store: CoordinationStore, report: checkpointer.Report) -> None:
        self._environment = environment
        self._report = report
        self._identity = Identity(environment.job_id, environment.index, environment.pservers)
        root = Path(environment.checkpoint_dir)
        self._files = of_attempt(root, environment.attempt)
        self._earlier = before_attempt(root, environment.attempt)
        self._book = Book(store, environment.job_id, environment.attempt, environment.pservers)

    def restore(self, shard: Shard) -> None:
        """Restore the first process of an attempt from an earlier attempt."""
        sources = ((files, reader.found(files, self._unusable)) for files in self._earlier)
        checkpointer.restore(shard, self._identity, sources, self._environment.mode, self._report, time.monotonic())

    def restore_own(self, shard: Shard) -> int:
        """Restore a replacement process from its last checkpoint; return the version, or NOTHING."""
        meta = self._book.meta(self._environment.index)
        return checkpointer.restore_own(shard, self._identity, self._files, meta, self._unusable, time.monotonic())

    def _unusable(self, why: str) -> None:
        self._report("warning", why)

    def start(self, server: ShardServer, owner: Compare, on_lost: Callable[[str], object]) -> Checkpointer:
        """Start to write checkpoints."""
        seconds = self._environment.checkpoint_seconds
        started = Checkpointer(
            server, self._identity, self._files, self._book, owner, seconds, self._report, on_lost, self._earlier
        )
        started.start()
        return started


class _Process:
    """The parts of the running server and the reasons to end."""

    def __init__(self, environment: Environment, channel: Channel, store: CoordinationStore) -> None:
        self._began = time.monotonic()
        self._environment = environment
        self._secret = secret_of(environment)
        self._channel = channel
        self._store = store
        self._mark = contract.values_key(environment.job_id, environment.attempt, environment.index)
        self._checkpoints = _Checkpoints(environment, store, self._report) if environment.checkpoint_dir else None
        self._shard = Shard(environment.index, even_table(environment.pservers), environment.trainers)
        self._ended = threading.Event()
        self._unnoted = False
        self._why = ""
        self._code = contract.EXIT_OK

    def run(self) -> int:
        """Serve until the end and return the exit code. Raises TimeoutError, ConnectionError, StoreUnavailable."""
        self._restore()
        job = job_crc(self._environment.job_id, self._environment.attempt)
        server = ShardServer(
            self._shard,
            job,
            on_rate=self._on_rate,
            on_values=self._has_values,
            on_lost=self._lost,
            budget=_memory_budget(self._environment),
            secret=self._secret,
        )
        server.refusals.report = partial(self._report, "warning")
        server.start()
        self._channel.on_fenced(self._fenced)
        self._channel.on_members(server.change_members)
        self._channel.hello(server.address)
        owner = self._registration()
        server.fence(owner.create_revision or 0)
        writer = self._checkpoints.start(server, owner, self._fenced) if self._checkpoints else None
        self._wait()
        log.info("ending at version %d%s", self._shard.version, f": {self._why}" if self._why else "")
        server.close()
        if writer and self._code == contract.EXIT_OK:
            writer.close()
        return self._code

    def _wait(self) -> None:
        """Return when this process is to end. Meanwhile retry to store the mark."""
        while not self._ended.wait(NOTE_SECONDS):
            if self._unnoted:
                self._note_values()

    def end(self, why: str = "", code: int = contract.EXIT_OK) -> None:
        """End this process. The first reason counts."""
        if not self._ended.is_set():
            self._why, self._code = why, code
            self._ended.set()

    def _restore(self) -> None:
        if self._store.get(self._mark) is not None:
            stored = self._checkpoints.restore_own(self._shard) if self._checkpoints else NOTHING
            self._shard.election.begin_recovery(stored)
        elif self._checkpoints:
            self._checkpoints.restore(self._shard)
        if self._shard.election.ready:
            self._has_values(None)

    def _has_values(self, recovered: Recovered | None) -> None:
        """Store that there are values: from now on a replacement process must not begin from first values."""
        if recovered is not None:
            seconds, tables = time.monotonic() - self._began, any(self._shard.state.tables)
            self._report(
                "recovery", recovered.describe(self._environment.index, seconds, self._shard.state.optimiser, tables)
            )
            return
        self._note_values()

    def _note_values(self) -> None:
        try:
            self._store.put(self._mark, b"")
        except CoordinationError as error:
            if not self._unnoted:
                log.warning("That there are values could not be noted, and is tried again: %s", error)
            self._unnoted = True
        else:
            self._unnoted = False

    def _lost(self, why: str) -> None:
        self._report("recovery", why)
        self.end(why, contract.EXIT_RESUME)

    def _fenced(self, why: str) -> None:
        self.end(why, contract.EXIT_RESTART)

    def _on_rate(self, version: int, rate: float) -> None:
        """Send the rate to the job's chart. Every step goes to every server, so the first one reports for all."""
        if self._environment.index == 0:
            self._channel.metrics([(time.time(), version, RECORDS_PER_SECOND, rate)])

    def _registration(self) -> Compare:
        mine = (PSERVER, self._environment.index)
        members = self._channel.wait_for_members(
            lambda members: any((member.role, member.index) == mine for member in members), REGISTRATION_SECONDS
        )
        incarnation = next(member.incarnation for member in members if (member.role, member.index) == mine)
        key = contract.member_key(self._environment.job_id, self._environment.attempt, *mine)
        return Compare(key, create_revision=incarnation)

    def _report(self, kind: str, text: str) -> None:
        log.info(text)
        self._channel.event(kind, text)


def main() -> int:
    """Serve until SIGTERM (exit 0), until the lease is lost (exit 75), or until there is nothing to serve (exit 76)."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    environment = contract.read()
    channel = Channel.from_environment()
    try:
        process = _Process(environment, channel, coordination.connect(environment.coordination))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: process.end())
        return process.run()
    except (RegattaError, OSError) as error:
        # Includes a registration that took too long, and a machine short of resources: the next process may do better.
        log.error(error)
        return contract.EXIT_RESTART
    except (RuntimeError, MemoryError):  # threads or memory are short
        log.exception("This parameter server ends and has to be started again.")
        return contract.EXIT_RESTART
    finally:
        channel.close()


def _memory_budget(environment: Environment) -> MemoryBudget:
    """The memory limit that the agent has set."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return MemoryBudget(
        environment.replica, 0 if limit == resource.RLIM_INFINITY else limit, bool(environment.checkpoint_dir)
    )


if __name__ == "__main__":
    sys.exit(main())
