"""Checkpoints of a shard during training, and the restore after a crash."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from runtime.checkpoint import reader, writer
from runtime.checkpoint.data_position import Progress
from runtime.checkpoint.filesystem import Files
from runtime.checkpoint.format import ROWS, Header, row_keys
from runtime.checkpoint.index import Book, Generation, Meta
from runtime.checkpoint.reader import Checkpoint, Key
from runtime.coordination.base import Compare, CoordinationError, StoreUnavailable
from runtime.errors import Lost
from runtime.messages import training as messages
from runtime.messages.composition import without_full_stop
from runtime.parameters.declaration import BlockPlace, Declaration, Mode
from runtime.parameters.embedding_tables import Piece, Table
from runtime.parameters.messages import NOTHING
from runtime.parameters.sharding import even_table
from runtime.pserver.cut_schedule import LOOK_SECONDS, CutSchedule
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from runtime.pserver.state.cow_snapshot import Snapshot

# A directory of checkpoints and what it has for every server.
Source = tuple[Files, Generation]
# Called with the kind and the text of an event on the job's timeline.
Report = Callable[[str, str], object]
log = logging.getLogger("pserver")


@dataclass(frozen=True)
class Identity:
    """Server ``shard`` of ``shards`` of a job."""

    job: str
    shard: int
    shards: int


def restore(shard: Shard, identity: Identity, sources: Iterable[Source], mode: str, report: Report, now: float) -> bool:
    """Restore a new shard from the first source whose checkpoints are complete; False if there is none.

    The checkpoints may be those of another number of servers.
    """
    attempts = 0
    for files, generation in sources:
        if generation:
            attempts += 1
            if _restore_from(shard, identity, files, generation, mode, report, now):
                return True
    if attempts:
        report("warning", messages.NO_CHECKPOINT_USABLE())
    return False


def _restore_from(
    shard: Shard, identity: Identity, files: Files, generation: Generation, mode: str, report: Report, now: float
) -> bool:

    def unusable(why: str) -> None:
        report("warning", why)

    def wanted(header: Header) -> Callable[[Key], bool]:
        mine = {key for place in _places(header, identity) for key in _keys(place, header.kinds)}
        rows = header.shards != identity.shards or header.shard == identity.shard
        return lambda key: key in mine or (rows and key[0] >= ROWS)

    found = reader.restore(files, generation, Mode.parse(mode).synchronous, wanted, unusable)
    if not found:
        return False
    same = len(found) == identity.shards
    header = found[identity.shard].header if same else max((one.header for one in found), key=lambda one: one.version)
    # Incarnations start over with an attempt, so earlier request numbers are meaningless.
    _fill(shard, identity, found, header, {}, now)
    if same:
        report("checkpoint", messages.PSERVER_RESUMES(server=identity.shard, version=shard.version))
    else:
        of_others = messages.PSERVER_RESUMES_FROM_OTHERS(server=identity.shard, version=shard.version, count=len(found))
        report("checkpoint", of_others)
    return True


def restore_own(
    shard: Shard, identity: Identity, files: Files, meta: Meta | None, report: Callable[[str], object], now: float
) -> int:
    """Restore a new shard from the newest of its own complete checkpoints; return its version, or NOTHING."""
    found = reader.first(files, identity.shard, meta.entries if meta else (), reader.all_blocks, report)
    if found is None:
        return NOTHING
    _fill(shard, identity, [found], found.header, found.header.sequences, now)
    return found.header.version


def _fill(
    shard: Shard,
    identity: Identity,
    found: Sequence[Checkpoint],
    header: Header,
    sequences: Mapping[str, int],
    now: float,
) -> None:
    declaration = Declaration.from_json(header.declaration)
    blocks = {key: numbers for checkpoint in found for key, numbers in checkpoint.blocks.items()}
    arrays = [
        tuple(np.frombuffer(blocks[key], declaration.tensors[place.tensor].dtype) for key in _keys(place, header.kinds))
        for place in _places(header, identity)
    ]
    contained = {int(incarnation): seq for incarnation, seq in sequences.items()}
    progress = Progress.from_json(header.progress)
    shard.restore(declaration, header.version, arrays, contained, now, _rows(found), progress, header.rounds)


def _rows(found: Sequence[Checkpoint]) -> Iterator[tuple[Table, Piece]]:
    """The rows of tables in files, piece by piece; also of servers that no longer exist."""
    for checkpoint in found:
        for number, body in enumerate(checkpoint.header.tables):
            table = Table.from_json(body["table"])
            for piece in range(body["pieces"]):
                keys = row_keys(number, body["kinds"], piece)
                if keys[0] in checkpoint.blocks:
                    yield table, Piece.of_bytes(table, [checkpoint.blocks[key] for key in keys])


def _places(header: Header, identity: Identity) -> Sequence[BlockPlace]:
    """The blocks that a file declares and this server holds."""
    declaration = Declaration.from_json(header.declaration)
    return [place for place in declaration.blocks(even_table(identity.shards)) if place.server == identity.shard]


def _keys(place: BlockPlace, kinds: int) -> Sequence[Key]:
    """The keys of a block and its optimiser's state in a file."""
    return [(place.tensor * kinds + kind, place.block) for kind in range(kinds)]


class Checkpointer:
    """Writes a server's checkpoints every ``seconds``, on a thread of its own. ``owner`` is its registration.

    A failed checkpoint is reported once and tried again the next time. ``on_lost`` is called if another process has
    become this server. ``earlier`` are the directories of attempts that are over.
    """

    def __init__(
        self,
        server: ShardServer,
        identity: Identity,
        files: Files,
        book: Book,
        owner: Compare,
        seconds: float,
        report: Report,
        on_lost: Callable[[str], object],
        earlier: Sequence[Files] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._shard = server.shard
        self._identity = identity
        self._files = files
        self._book = book
        self._owner = owner
        self._report = report
        self._on_lost = on_lost
        self._earlier = earlier
        self._clock = clock
        shard, shards = identity.shard, identity.shards
        self._schedule = CutSchedule(server.locked_shard(), shard, shards, book, owner, seconds, clock())
        self._kept = self._shard.version  # the version of the last checkpoint
        self._failing = False  # whether a checkpoint has failed since the last success
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Write a last checkpoint, and end."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._server.locked_shard() as shard:
            snapshot = shard.cut()
        self._save(snapshot)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                self.look(self._clock())
            except Exception:  # otherwise training would continue without checkpoints
                log.exception("A checkpoint could not be ordered; it is tried again.")

    def look(self, now: float) -> None:
        """Order a cut when one is due, and write one that was made."""
        try:
            self._schedule.order(now)
        except StoreUnavailable as error:
            log.info("no checkpoint for now: %s", error)
        except CoordinationError as error:
            self._complain(messages.NEXT_CHECKPOINT(), error)
        with self._server.locked_shard() as shard:
            snapshot = shard.cut_when_due()
        self._save(snapshot)

    # --- Writing -----------------------------------------------------------------------------------------------------
    def _save(self, snapshot: Snapshot | None) -> None:
        if snapshot is None:
            return
        try:
            if snapshot.version != self._kept:
                self._write(snapshot)
        except Lost as error:
            self._on_lost(str(error))
        except Exception as error:  # noqa: BLE001  the disk, the store, threads or memory: the next one may succeed
            self._complain(messages.CHECKPOINT_OF_VERSION(version=snapshot.version), error)
        finally:
            with self._server.locked_shard() as shard:
                shard.state.forget_cut(snapshot)

    def _complain(self, what: str, error: Exception) -> None:
        """Report a failure on the job's timeline once, until a checkpoint succeeds."""
        why = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
        text = messages.CHECKPOINT_FAILED_CONTINUES(checkpoint=what, why=without_full_stop(why))
        if self._failing:
            log.info(text)
        else:
            self._report("warning", text)
        self._failing = True

    def _write(self, snapshot: Snapshot) -> None:
        began = self._clock()
        header = self._header(snapshot)
        entry = writer.save(self._files, self._book, header, self._blocks(snapshot), self._owner, time.time())
        self._kept, self._failing = snapshot.version, False
        if self._earlier and self._book.generation():
            self._forget_earlier()
        log.info("checkpoint of version %d: %s bytes, %.1f s", entry.version, f"{entry.size:,}", self._clock() - began)

    def _forget_earlier(self) -> None:
        """Delete checkpoints of earlier attempts, once all servers have one of this attempt."""
        try:
            for files in self._earlier:
                for name in list(files.names()):
                    files.delete(name)
        except OSError as error:  # this checkpoint counts anyway
            log.warning("Checkpoints of earlier attempts could not be deleted: %s", error)
        self._earlier = ()

    def _header(self, snapshot: Snapshot) -> Header:
        declaration = self._shard.declaration
        assert declaration is not None  # noqa: S101  only a shard with values is cut
        return Header(
            job=self._identity.job,
            shard=self._identity.shard,
            shards=self._identity.shards,
            incarnation=self._owner.create_revision or 0,
            version=snapshot.version,
            declaration=declaration.to_json(),
            kinds=1 + declaration.rule.slots,
            blocks=len(self._shard.state.places),
            sequences={str(incarnation): seq for incarnation, seq in snapshot.sequences.items()},
            tables=[
                {"table": table.to_json(), "pieces": pieces, "kinds": table.kinds} for table, pieces in snapshot.tables
            ],
            progress=snapshot.progress.to_json(),
            rounds=snapshot.rounds,
        )

    def _blocks(self, snapshot: Snapshot) -> Iterator[writer.Block]:
        for number, keys in enumerate(self._all_keys(self._header(snapshot))):
            for (array, block), numbers in zip(keys, snapshot.take(number), strict=True):
                yield array, block, numbers.reshape(-1).data.cast("B")

    def _all_keys(self, header: Header) -> Iterator[Sequence[Key]]:
        """The keys in the file of everything in a snapshot, in order."""
        for place in self._shard.state.places:
            yield _keys(place, header.kinds)
        for number, body in enumerate(header.tables):
            for piece in range(body["pieces"]):
                yield row_keys(number, body["kinds"], piece)
