"""The process of a parameter server: ``python -m runtime.pserver``."""

from __future__ import annotations

import logging
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from runtime import contract, coordination
from runtime.channel import Channel
from runtime.checkpoint import reader
from runtime.checkpoint.files import LocalFiles
from runtime.checkpoint.meta import Book
from runtime.contract import PSERVER, Environment
from runtime.coordination.base import Compare
from runtime.errors import RegattaError
from runtime.protocol.frames import job_crc
from runtime.pserver import keeper
from runtime.pserver.declaration import SYNC, Mode
from runtime.pserver.keeper import Identity, Keeper
from runtime.pserver.rate import RECORDS_PER_SECOND
from runtime.pserver.room import Room
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.pserver.slots import even_table

REGISTRATION_SECONDS = 30.0

log = logging.getLogger("pserver")


class _Checkpoints:
    """Where this server's checkpoints are."""

    def __init__(self, environment: Environment, channel: Channel) -> None:
        self._environment = environment
        self._channel = channel
        self._identity = Identity(environment.job_id, environment.index, environment.pservers)
        root = Path(environment.checkpoint_dir)
        self._files = LocalFiles(root / str(environment.attempt))
        # The last attempt first.
        self._earlier = [LocalFiles(root / str(number)) for number in range(environment.attempt - 1, 0, -1)]
        store = coordination.connect(environment.coordination)
        self._book = Book(store, environment.job_id, environment.attempt, environment.pservers)

    def restore(self, shard: Shard) -> None:
        mode = self._environment.mode
        keeper.restore(shard, self._identity, self._sources(), mode, self._tell, time.monotonic())

    def _sources(self) -> Iterator[keeper.Source]:
        yield self._files, self._book.generation()
        if Mode.parse(self._environment.mode).kind != SYNC:
            # The data begins anew with the attempt, and a synchronous job is to have the same bits on every run.
            yield from ((files, reader.found(files)) for files in self._earlier)

    def keep(self, server: ShardServer, on_lost: Callable[[str], object]) -> Keeper:
        """Begin to write, once this process is registered. Raises TimeoutError, ConnectionError."""
        owner = self._registration()
        seconds = self._environment.checkpoint_seconds
        kept = Keeper(
            server, self._identity, self._files, self._book, owner, seconds, self._tell, on_lost, self._earlier
        )
        kept.start()
        return kept

    def _registration(self) -> Compare:
        mine = (PSERVER, self._environment.index)
        members = self._channel.wait_for_members(
            lambda members: any((member.role, member.index) == mine for member in members), REGISTRATION_SECONDS
        )
        incarnation = next(member.incarnation for member in members if (member.role, member.index) == mine)
        key = contract.member_key(self._environment.job_id, self._environment.attempt, *mine)
        return Compare(key, create_revision=incarnation)

    def _tell(self, kind: str, text: str) -> None:
        log.info(text)
        self._channel.event(kind, text)


def main() -> int:
    """Serve until SIGTERM (exit 0), or until the lease is lost (exit 75)."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
    try:
        return _serve(contract.read())
    except (RegattaError, TimeoutError, ConnectionError) as error:
        log.error(error)
        return contract.EXIT_RESTART


def _room(environment: Environment) -> Room:
    """As much memory as the agent has allowed."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return Room(environment.replica, 0 if limit == resource.RLIM_INFINITY else limit, bool(environment.checkpoint_dir))


def _telling(channel: Channel, index: int) -> Callable[[int, float], object]:
    """Puts the rate on the job's chart. Every step goes to every server, so the first one speaks for all."""
    if index:
        return lambda version, rate: None
    return lambda version, rate: channel.metrics([(time.time(), version, RECORDS_PER_SECOND, rate)])


def _serve(environment: Environment) -> int:
    channel = Channel.from_environment()
    shard = Shard(environment.index, even_table(environment.pservers), environment.trainers)
    checkpoints = _Checkpoints(environment, channel) if environment.checkpoint_dir else None
    if checkpoints:
        checkpoints.restore(shard)
    server = ShardServer(
        shard,
        job_crc(environment.job_id, environment.attempt),
        on_rate=_telling(channel, environment.index),
        room=_room(environment),
    )
    ended = threading.Event()
    fenced: list[str] = []

    def fence(why: str) -> None:
        fenced.append(why)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server.start()
    channel.on_fenced(fence)
    channel.on_members(server.change_members)
    channel.hello(server.address)
    kept = checkpoints.keep(server, fence) if checkpoints else None
    ended.wait()
    log.info("ending at version %d%s", shard.version, f": {fenced[0]}" if fenced else "")
    server.close()
    if kept and not fenced:
        kept.close()
    channel.close()
    return contract.EXIT_RESTART if fenced else contract.EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
