"""The master process, next to its agent: ``python -m runtime.master``.

There may be several masters. The one that registered first serves. The others are on standby and take over in the order
of their registration, as soon as the registration before theirs is gone.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from runtime import contract, coordination
from runtime.agent_channel import Channel, Members
from runtime.checkpoint import reader
from runtime.checkpoint.data_position import Progress
from runtime.checkpoint.filesystem import before_attempt
from runtime.coordination.base import Compare, CoordinationStore, StoreUnavailable
from runtime.data import catalogue
from runtime.errors import Lost, RegattaError
from runtime.master.event_log import Pace
from runtime.master.listener import Reception
from runtime.master.messages import Trainer, serving
from runtime.master.queue_clock import QueueClock
from runtime.master.queue_store import Ledger, lead
from runtime.master.server import STORE_PATIENCE_SECONDS, Master
from runtime.master.task_table import TaskTable, partition
from runtime.master.types import Happening, Plan
from runtime.parameters.declaration import Mode
from runtime.protocol.frames import job_crc
from runtime.protocol.proof import secret_of

REGISTRATION_SECONDS = 30.0
# How often a standby master checks whether it was asked to stop.
STANDBY_POLL_SECONDS = 1.0
# How often a request to a store that does not answer is repeated.
STORE_PAUSE_SECONDS = 0.2

log = logging.getLogger("master")


class _Process:
    """The parts of the running master and the reasons to stop."""

    def __init__(self, environment: contract.Environment, channel: Channel, store: CoordinationStore) -> None:
        self._environment = environment
        self._secret = secret_of(environment)
        self._channel = channel
        self._store = store
        self._prefix = contract.attempt_prefix(environment.job_id, environment.attempt)
        self._stop = threading.Event()
        self._fenced = ""
        self._master: Master | None = None
        self._pace = Pace()
        self._clock = QueueClock()

    def run(self) -> int:
        """Serve until the job is over and return the exit code."""
        table = find_table(self._environment)
        job = job_crc(self._environment.job_id, self._environment.attempt)
        reception = Reception(job, secret=self._secret)
        reception.refusals.report = self._warn
        reception.incarnation = self._register(reception.address)
        self._channel.on_fenced(self._on_fenced)
        self._channel.on_pause(self._pause)
        owner = self._await_turn(reception.incarnation)
        if owner is None:
            reception.close()
            return self._verdict()
        ledger = Ledger(self._store, self._prefix, owner)
        self._master = master = Master(
            plan(self._environment), table, ledger, self._report, reception, clock=self._clock, patience=self._patience
        )
        self._channel.on_members(lambda members: master.members(trainers(members)))
        try:
            master.run(self._stop.is_set)
        finally:
            master.close()
            reception.close()
        return self._verdict()

    @property
    def _patience(self) -> float:
        return max(STORE_PATIENCE_SECONDS, self._environment.outage)

    def stop(self) -> None:
        self._stop.set()
        if self._master:
            self._master.wake()

    def _register(self, address: str) -> int:
        """Ask the agent to register this process and return its incarnation."""
        self._channel.hello(address)
        members = self._channel.wait_for_members(
            lambda members: any(self._is_me(member) for member in members),
            REGISTRATION_SECONDS + self._environment.outage,
        )
        return next(member.incarnation for member in members if self._is_me(member))

    def _is_me(self, member: contract.Member) -> bool:
        return (member.role, member.index) == (contract.MASTER, self._environment.index)

    def _await_turn(self, incarnation: int) -> tuple[Compare, ...] | None:
        """Stay on standby until no earlier master is alive and return what commits compare; None if stopped before."""
        reported = False
        while not self._stop.is_set():
            first = serving(self._channel.members())
            if first and first.incarnation == incarnation:
                key = contract.member_key(
                    self._environment.job_id, self._environment.attempt, contract.MASTER, self._environment.index
                )
                mine = Compare(key, create_revision=incarnation)
                return await_lead(self._store, self._prefix, mine, self._stop, self._patience)
            if first and not reported:
                log.info("%s serves; this master stands by.", first.name)
                reported = True
            self._await_change(first)
        return None

    def _await_change(self, first: contract.Member | None) -> None:
        with contextlib.suppress(TimeoutError):
            self._channel.wait_for_members(lambda members: serving(members) != first, STANDBY_POLL_SECONDS)

    def _pause(self, on: bool, target: int) -> None:
        self._clock.pause(on)
        self._channel.paused(on, None)

    def _on_fenced(self, why: str) -> None:
        self._fenced = why
        self.stop()

    def _report(self, happenings: Sequence[Happening]) -> None:
        for happening in self._pace.let_through(happenings, time.monotonic()):
            log.info(happening.text)
            if happening.notable:
                self._channel.event(happening.kind, happening.text)

    def _warn(self, text: str) -> None:
        log.warning(text)
        self._channel.event("warning", text)

    def _verdict(self) -> int:
        if why := self._fenced or str((self._master and self._master.lost) or ""):
            log.error(why)
            return contract.EXIT_RESTART
        if self._master and self._master.failed:
            return contract.EXIT_ERROR
        # 0 means that all passes are done. A master that was stopped earlier may be needed again.
        return contract.EXIT_OK if self._master and self._master.done else contract.EXIT_RESTART


def await_lead(
    store: CoordinationStore, prefix: str, mine: Compare, stop: threading.Event, patience: float
) -> tuple[Compare, ...] | None:
    """Call ``lead`` until the store answers, for up to ``patience`` seconds. Return None if asked to stop."""
    give_up = time.monotonic() + patience
    while not stop.is_set():
        try:
            return lead(store, prefix, mine)
        except StoreUnavailable:
            if time.monotonic() >= give_up:
                raise
            stop.wait(STORE_PAUSE_SECONDS)
    return None


def find_table(environment: contract.Environment) -> TaskTable:
    """Return the tasks of the job's dataset. Raises RegattaError with a message for an unknown or damaged dataset."""
    if not environment.dataset:
        log.info("This job names no dataset, so there are no tasks to hand out.")
        return TaskTable("", ())
    info = catalogue.find(environment.dataset, environment.data_path)
    table = partition(info.name, catalogue.chunks(info, "train"))
    log.info("Dataset %s: %d records in %d tasks.", info.name, table.records, len(table.tasks))
    return table


def plan(environment: contract.Environment) -> Plan:
    """Return what is fixed for the attempt, with the data position that an earlier attempt saved."""
    return Plan(
        passes=environment.passes,
        sync=environment.mode == "sync",
        trainers=environment.trainers,
        min_trainers=environment.min_trainers,
        quarantine=True,
        resume=_progress(environment),
        prefetch=True,
    )


def _progress(environment: contract.Environment) -> Progress | None:
    if not environment.checkpoint_dir:
        return None
    earlier = before_attempt(Path(environment.checkpoint_dir), environment.attempt)
    return reader.resumed(earlier, Mode.parse(environment.mode).synchronous)


def trainers(members: Members) -> tuple[Trainer, ...]:
    """Return the trainers among the live processes."""
    return tuple(Trainer(member.index, member.incarnation) for member in members if member.role == contract.TRAINER)


def main() -> int:
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    environment = contract.read()
    try:
        store = coordination.connect(environment.coordination)
        process = _Process(environment, Channel.from_environment(), store)
        signal.signal(signal.SIGTERM, lambda number, frame: process.stop())
        return process.run()
    except (Lost, StoreUnavailable, OSError) as error:
        # Includes a registration that took too long, and a machine short of resources: the next process may do better.
        log.error(error)
        return contract.EXIT_RESTART
    except (RuntimeError, MemoryError):  # threads or memory are short
        log.exception("This master ends and has to be started again.")
        return contract.EXIT_RESTART
    except (RegattaError, LookupError) as error:
        log.error(error)
        return contract.EXIT_ERROR


if __name__ == "__main__":
    sys.exit(main())
