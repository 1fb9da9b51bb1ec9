"""Checkpoints of running shards, and shards that continue from them."""

import errno
import itertools
import json
from dataclasses import asdict

import numpy as np
import pytest

from runtime.checkpoint import reader, writer
from runtime.checkpoint.filesystem import LocalFiles
from runtime.checkpoint.format import Header
from runtime.checkpoint.index import Book
from runtime.contract import Member
from runtime.coordination.base import AccessDenied, Compare, StoreUnavailable
from runtime.coordination.embedded import EmbeddedStore
from runtime.messages import training as messages
from runtime.parameters import embedding_tables
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.embedding_tables import Rows, Table
from runtime.parameters.initializers import Uniform
from runtime.parameters.messages import Outcome
from runtime.parameters.optimisers import Adam
from runtime.parameters.sharding import even_table, servers_of_rows
from runtime.pserver import checkpointer
from runtime.pserver.checkpointer import Checkpointer, Identity
from runtime.pserver.requests import Step, TrainerId
from runtime.pserver.server import ShardServer
from runtime.pserver.shard import Shard
from tests.messages import mentions
from tests.waiting import until

SIZES = {"w": 600_000, "v": 300_000, "b": 3}
DECLARATION = Declaration(tuple(Tensor(name, (size,), "<f4") for name, size in SIZES.items()), Adam(0.1))
INCARNATIONS = itertools.count(100)


class Place:
    """What is kept beyond the servers of a job: a disk and a coordination store."""

    def __init__(self, path):
        self.path = path
        self.store = EmbeddedStore(path / "coordination.db")
        self.reported = []
        self.lost = []

    def files(self, attempt=1):
        return LocalFiles(self.path / str(attempt))

    def book(self, servers=1, attempt=1):
        return Book(self.store, "job", attempt, servers)

    def owner(self, index):
        self.store.delete(f"/members/{index}")
        entry = self.store.put(f"/members/{index}", b"")
        return Compare(f"/members/{index}", create_revision=entry.create_revision)

    def report(self, kind, text):
        self.reported.append(text)


class Servers:
    """``count`` servers of a job with one trainer, restored if possible, and their checkpointers."""

    def __init__(self, place, count, mode="sync", files=None, attempt=1):
        self.place, self.count = place, count
        self.trainer = TrainerId(0, next(INCARNATIONS))
        self.declaration = Declaration(DECLARATION.tensors, DECLARATION.optimiser, mode)
        self.shards = [Shard(index, even_table(count), 1) for index in range(count)]
        for index, shard in enumerate(self.shards):
            sources = [(place.files(attempt), place.book(count, attempt).generation())]
            sources += [(place.files(number), reader.found(place.files(number))) for number in range(1, attempt)]
            checkpointer.restore(shard, Identity("job", index, count), sources, mode, place.report, 0.0)
        self.servers = [ShardServer(shard) for shard in self.shards]
        self.now = 0.0
        self.checkpointers = [
            Checkpointer(
                server,
                Identity("job", index, count),
                files or place.files(attempt),
                place.book(count, attempt),
                place.owner(index),
                10.0,
                place.report,
                place.lost.append,
                [place.files(number) for number in range(1, attempt)],
                lambda: self.now,
            )
            for index, server in enumerate(self.servers)
        ]
        for server in self.servers:
            server.change_members([Member("trainer", self.trainer.index, self.trainer.incarnation)])
        self.seq = 1
        for shard in self.shards:
            values = [np.zeros(place.stop - place.start, "f4") for place in self._places(shard)]
            shard.declare("declare", self.trainer, self.declaration, 0.0)
            shard.initialise("init", self.trainer, self.declaration.digest, values)
            shard.begin_pass("begin", self.trainer, self.seq, 0)

    def _places(self, shard):
        number = self.shards.index(shard)
        return [p for p in self.declaration.blocks(even_table(self.count)) if p.server == number]

    def use_book(self, book):
        """Give the first server another book, for its announcements and its checkpoints."""
        self.checkpointers[0]._book = self.checkpointers[0]._schedule._book = book

    def push(self, step):
        rng = np.random.default_rng(step)
        gradients = {name: rng.normal(size=size).astype("f4") for name, size in SIZES.items()}
        self.seq += 1
        for shard in self.shards:
            names = [tensor.name for tensor in self.declaration.tensors]
            parts = [gradients[names[place.tensor]][place.start : place.stop] for place in shard.state.places]
            (release,) = shard.push("push", self.trainer, Step(self.seq, 1, shard.version, parts))
            assert release.outcome is Outcome.DONE

    def look(self, seconds=0.0):
        self.now += seconds
        for one in self.checkpointers:
            one.look(self.now)

    def close(self):
        for one in self.checkpointers:
            one.close()

    @property
    def values(self):
        found = {
            (place.tensor, place.block): values.tobytes()
            for shard in self.shards
            for place, values in zip(shard.state.places, shard.state.parameters, strict=True)
        }
        return b"".join(found[key] for key in sorted(found))

    @property
    def versions(self):
        return {shard.version for shard in self.shards}


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    place.store.close()


@pytest.fixture
def uninterrupted(tmp_path):
    (tmp_path / "other").mkdir()
    servers = Servers(Place(tmp_path / "other"), 1)
    for step in range(6):
        servers.push(step)
    return servers.values


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (1, 2), (2, 3), (3, 1)])
def test_training_goes_on_bit_for_bit_with_as_many_servers_or_others(place, uninterrupted, before, after):
    first = Servers(place, before)
    for step in range(4):
        first.push(step)
    first.close()
    second = Servers(place, after, attempt=1 if before == after else 2)
    assert second.versions == {4}
    assert second.values == first.values
    for step in (4, 5):
        second.push(step)
    assert second.values == uninterrupted
    second.close()
    assert bool(list(place.files(1).names())) == (before == after)
    ways = messages.PSERVER_RESUMES, messages.PSERVER_RESUMES_FROM_OTHERS
    assert any(mentions(place.reported[0], way, server=0, version=4) for way in ways)


def test_a_checkpoint_is_written_when_its_time_has_come(place):
    servers = Servers(place, 1)
    servers.push(0)
    servers.look(9.0)
    assert place.book().generation() == ()
    servers.look(1.0)
    assert place.book().generation()[0].current.version == 1


def test_nothing_is_written_twice(place):
    servers = Servers(place, 1)
    servers.push(0)
    for _ in range(3):
        servers.look(10.0)
    assert place.book().generation()[0].previous is None


def test_pushes_while_a_checkpoint_is_written_are_not_in_it(place):
    servers = Servers(place, 1)
    servers.push(0)
    kept = servers.values

    class SlowFiles(LocalFiles):
        """A disk so slow that a push arrives after the first write."""

        def create(self, name):
            draft = super().create(name)
            servers.push(1)
            return draft

    servers.checkpointers[0]._files = SlowFiles(place.files().directory)
    servers.look(10.0)
    assert servers.versions == {2}
    again = Servers(place, 1)
    assert (again.versions, again.values) == ({1}, kept)


def test_synchronous_servers_cut_at_the_version_that_the_first_announces(place):
    servers = Servers(place, 3)
    servers.push(0)
    servers.look(10.0)
    version = place.book(3).announced()
    assert version > 1
    assert place.book(3).generation() == ()
    for step in range(1, version + 3):
        servers.push(step)
    servers.look()
    assert {meta.current.version for meta in place.book(3).generation()} == {version}
    assert Servers(place, 3).versions == {version}


def test_asynchronous_servers_cut_each_for_itself(place):
    servers = Servers(place, 2, mode="async")
    servers.push(0)
    servers.look(10.0)
    assert len(place.book(2).generation()) == 2


def test_a_disk_failure_is_reported_and_training_continues(place):
    class FullFiles(LocalFiles):
        def create(self, name):
            raise OSError(errno.ENOSPC, "No space left on device")

    servers = Servers(place, 1, files=FullFiles(place.files().directory))
    servers.push(0)
    servers.look(10.0)
    servers.push(1)
    assert place.reported == [
        messages.CHECKPOINT_FAILED_CONTINUES(
            checkpoint=messages.CHECKPOINT_OF_VERSION(version=1), why="No space left on device"
        )
    ]
    servers.look(10.0)
    assert len(place.reported) == 1, "that it goes on failing is no news"
    servers.checkpointers[0]._files = place.files()
    servers.look(10.0)
    assert place.book().generation()[0].current.version == 2
    servers.checkpointers[0]._files = FullFiles(place.files().directory)
    servers.push(2)
    servers.look(10.0)
    assert place.reported[1:] == [
        messages.CHECKPOINT_FAILED_CONTINUES(
            checkpoint=messages.CHECKPOINT_OF_VERSION(version=3), why="No space left on device"
        )
    ]


def test_an_earlier_attempt_that_cannot_be_deleted_fails_no_checkpoint(place):
    class Kept(LocalFiles):
        def delete(self, name):
            raise OSError(errno.EACCES, "Permission denied")

    earlier = Kept(place.path / "earlier")
    earlier.create("old.dck").close()
    servers = Servers(place, 1)
    servers.checkpointers[0]._earlier = [earlier]
    servers.push(0)
    servers.look(10.0)
    assert place.book().generation()[0].current.version == 1
    assert place.reported == []


def test_a_replaced_server_is_stopped(place):
    servers = Servers(place, 1)
    servers.push(0)
    place.owner(0)
    servers.look(10.0)
    assert mentions(place.lost[0], messages.PSERVER_REPLACED)
    assert place.book().generation() == ()


def test_a_request_that_a_checkpoint_contains_is_not_applied_again(place):
    servers = Servers(place, 1)
    servers.push(0)
    servers.close()
    shard = Shard(0, even_table(1), 1)
    assert checkpointer.restore_own(shard, Identity("job", 0, 1), place.files(), place.book().meta(0), print, 0.0) == 1
    assert repeated(servers, shard) is Outcome.DUPLICATE


def test_the_requests_of_an_earlier_attempt_are_ignored(place):
    servers = Servers(place, 1)
    servers.push(0)
    servers.close()
    shard = Shard(0, even_table(1), 1)
    sources = [(place.files(), place.book().generation())]
    assert checkpointer.restore(shard, Identity("job", 0, 1), sources, "sync", place.report, 0.0)
    assert repeated(servers, shard) is Outcome.OUT_OF_PLACE


def repeated(servers, shard):
    shard.change_members({0: servers.trainer.incarnation})
    gradients = [np.ones(part.size, "f4") for part in shard.state.parameters]
    (release,) = shard.push("again", servers.trainer, Step(servers.seq, 1, 0, gradients))
    return release.outcome


def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_taken(place):
    servers = Servers(place, 1)
    for step in range(2):
        servers.push(step)
        servers.look(10.0)
    last = place.files().directory / place.book().generation()[0].current.file
    last.write_bytes(last.read_bytes()[:-100])
    assert Servers(place, 1).versions == {1}
    assert mentions(place.reported[0], messages.CHECKPOINT_UNUSABLE_THEN)
    assert place.reported[1] == messages.PSERVER_RESUMES(server=0, version=1)


def test_without_a_usable_checkpoint_training_starts_over(place):
    servers = Servers(place, 1)
    servers.push(0)
    servers.close()
    for name in place.files().names():
        place.files().delete(name)
    assert Servers(place, 1).versions == {0}
    assert place.reported[-1] == messages.NO_CHECKPOINT_USABLE()


# --- Tables ----------------------------------------------------------------------------------------------------------
TABLE = Table("emb", 3, Uniform(0.5), Adam(0.1), 7)
ROW_IDS = np.arange(-40, 60)


def push_rows(servers, step):
    """A step that updates some rows, different ones each time."""
    rng = np.random.default_rng(step)
    rows = Rows(rng.permutation(ROW_IDS)[:60].copy(), rng.normal(size=(60, 3)).astype("f4"))
    servers.seq += 1
    for number, shard in enumerate(servers.shards):
        shard.state.tables.declare(TABLE)
        here = servers_of_rows("emb", rows.ids, even_table(servers.count)) == number
        gradients = [np.zeros_like(part) for part in shard.state.parameters]
        step_of_one = Step(servers.seq, 1, shard.version, gradients, {"emb": rows.part(here)})
        (release,) = shard.push("push", servers.trainer, step_of_one)
        assert release.outcome is Outcome.DONE


def rows_of(servers):
    """The table as a whole: bits of every row, trained or not."""
    where = servers_of_rows("emb", ROW_IDS, even_table(servers.count))
    whole = np.empty((ROW_IDS.size, 3), "f4")
    for number, shard in enumerate(servers.shards):
        whole[where == number] = shard.state.tables.declare(TABLE).values(ROW_IDS[where == number])
    return whole.tobytes()


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 2), (1, 2), (2, 3), (3, 1)])
def test_rows_go_on_bit_for_bit_with_as_many_servers_or_others(place, tmp_path, before, after):
    (tmp_path / "other").mkdir()
    uninterrupted = Servers(Place(tmp_path / "other"), 1)
    first = Servers(place, before)
    for step in range(3):
        push_rows(first, step)
        push_rows(uninterrupted, step)
    first.close()
    second = Servers(place, after, attempt=1 if before == after else 2)
    assert rows_of(second) == rows_of(first)
    push_rows(second, 3)
    push_rows(uninterrupted, 3)
    assert rows_of(second) == rows_of(uninterrupted)


def test_rows_that_are_updated_while_a_checkpoint_is_written_are_not_in_it(place):
    servers = Servers(place, 1)
    push_rows(servers, 0)
    kept = rows_of(servers)

    class SlowFiles(LocalFiles):
        """A disk so slow that a step arrives after the first write, with new and existing rows."""

        def create(self, name):
            draft = super().create(name)
            push_rows(servers, 1)
            return draft

    servers.checkpointers[0]._files = SlowFiles(place.files().directory)
    servers.look(10.0)
    assert servers.versions == {2}
    again = Servers(place, 1)
    assert (again.versions, rows_of(again)) == ({1}, kept)


def test_rows_of_a_large_table_are_kept_in_pieces_of_a_block(place, monkeypatch):
    monkeypatch.setattr(embedding_tables, "BLOCK_BYTES", 12 * 7)
    servers = Servers(place, 1)
    push_rows(servers, 0)
    servers.close()
    (name,) = place.files().names()
    assert reader.head(place.files(), name).tables[0]["pieces"] == 9
    assert rows_of(Servers(place, 1)) == rows_of(servers)


def test_the_position_of_a_schedule_outlives_the_server(place):
    servers = Servers(place, 1, mode="ssp(2)")
    for step in range(3):
        servers.push(step)
    servers.shards[0].pace.resume_rounds(1.25)  # as two trainers would have left it
    servers.close()
    assert Servers(place, 1, mode="ssp(2)", attempt=1).shards[0].cut().rounds == 1.25


def test_a_checkpoint_without_the_position_of_a_schedule_continues_from_its_version(place):
    servers = Servers(place, 1, mode="ssp(2)")
    servers.push(0)
    servers.close()
    (name,) = place.files().names()
    body = {key: value for key, value in asdict(reader.head(place.files(), name)).items() if key != "rounds"}
    assert Header.from_bytes(json.dumps(body).encode()).rounds is None


def test_a_checkpoint_from_before_there_were_tables_is_read(place):
    servers = Servers(place, 1)
    servers.push(0)
    servers.close()
    (name,) = place.files().names()
    header = reader.head(place.files(), name)
    body = {key: value for key, value in asdict(header).items() if key != "tables"}
    assert Header.from_bytes(json.dumps(body).encode()).frames == header.blocks * header.kinds


# --- Faults of the disk and the store -------------------------------------------------------------------------------
class StoreWithoutWrites:
    """A coordination store that can be read but not written, like a full one; ``error`` is the one it raises."""

    def __init__(self, store, error):
        self._store, self.error = store, error

    def __getattr__(self, name):
        return getattr(self._store, name)

    def txn(self, compares, operations):
        if self.error:
            raise self.error
        return self._store.txn(compares, operations)


def test_a_refusal_of_the_store_does_not_end_the_checkpoints(place):
    servers = Servers(place, 1)
    store = StoreWithoutWrites(place.store, AccessDenied("This user of etcd may not do that."))
    servers.use_book(Book(store, "job", 1, 1))
    servers.push(0)
    servers.look(10.0)
    assert place.reported == [
        messages.CHECKPOINT_FAILED_CONTINUES(
            checkpoint=messages.CHECKPOINT_OF_VERSION(version=1), why="This user of etcd may not do that"
        )
    ]
    store.error = None
    servers.push(1)
    servers.look(10.0)
    assert place.book().generation()[0].current.version == 2


def test_a_version_to_cut_at_that_the_store_did_not_take_is_announced_soon_after(place):
    servers = Servers(place, 2)
    store = StoreWithoutWrites(place.store, StoreUnavailable("The store does not answer."))
    servers.use_book(Book(store, "job", 1, 2))
    servers.push(0)
    servers.look(10.0)
    store.error = None
    servers.look(0.5)
    assert place.book(2).announced() > 0


def test_threads_that_are_short_do_not_end_the_checkpoints(place, monkeypatch):
    servers = Servers(place, 1)
    servers.push(0)

    def short(*arguments):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(writer, "_fill", short)
        servers.look(10.0)
    assert place.reported == [
        messages.CHECKPOINT_FAILED_CONTINUES(
            checkpoint=messages.CHECKPOINT_OF_VERSION(version=1), why="can't start new thread"
        )
    ]
    assert place.files().names() == []
    servers.look(10.0)
    assert place.book().generation()[0].current.version == 1


def test_the_thread_of_the_checkpoints_survives_what_nobody_foresaw(place, monkeypatch):
    servers = Servers(place, 1)
    polls = []

    def look(now):
        polls.append(now)
        raise MemoryError

    monkeypatch.setattr(checkpointer, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(servers.checkpointers[0], "look", look)
    servers.checkpointers[0].start()
    until("the checkpointer looks again", lambda: len(polls) > 1)
    servers.checkpointers[0].close()
