import errno
import hashlib
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime import patience
from runtime.checkpoint import reader, writer
from runtime.checkpoint.filesystem import LocalFiles
from runtime.checkpoint.format import Damaged, Header
from runtime.checkpoint.index import Book
from runtime.coordination.base import StoreUnavailable
from runtime.errors import Lost
from runtime.messages import training as messages
from tests.messages import pattern as pattern_of
from tests.runtime.checkpoint.conftest import Writer, blocks
from tests.runtime.checkpoint.disk import Crash, CrashingDisk, ForgetfulStore


def save(files, book, server, version):
    return writer.save(files, book, server.header(version), blocks(version), server.owner, 1.0)


def restored(files, book, same_version=False):
    """The versions that a restore returns, checked against what was written, and its warnings."""
    warnings = []
    found = reader.restore(files, book.generation(), same_version, reader.all_blocks, warnings.append)
    for checkpoint in found:
        for kind in (0, 1):
            numbers = np.frombuffer(checkpoint.blocks[kind, 0], "<f4")
            assert numbers.tolist() == [checkpoint.header.version + kind / 2] * 3
    return [checkpoint.header.version for checkpoint in found], warnings


# --- Files ----------------------------------------------------------------------------------------------------------
def test_a_file_returns_what_was_written(tmp_path):
    files = LocalFiles(tmp_path / "deep" / "checkpoints")
    header = Header("job", 0, 1, 7, 3, {}, 1, 1, {"9": 4})
    numbers = np.arange(50_000, dtype="<f4")
    entry = writer.write(files, header, [(0, 0, numbers.data.cast("B"))], 1.0)
    found = reader.load(files, entry.file, entry.md5)
    assert found.header == header
    assert bytes(found.blocks[0, 0]) == numbers.tobytes()
    assert hashlib.md5(found.blocks[0, 0]).hexdigest() == "9d896a7bd12b3bfc0aae669d00c6cb44"
    assert (files.directory / entry.file).stat().st_size == entry.size


def test_a_header_whose_tables_make_no_sense_is_damaged():
    header = Header("job", 0, 1, 7, 3, {}, 1, 1, tables=[{"table": {}, "pieces": 2, "kinds": 4}])
    body = header.to_bytes()[8:]
    assert Header.from_bytes(body).frames == 9
    for old, new in ((b"pieces", b"pieceS"), (b'"kinds":4', b'"kinds":{}')):
        with pytest.raises(Damaged, match=pattern_of(messages.HEADER_UNREADABLE)):
            Header.from_bytes(body.replace(old, new))


@given(st.data())
@settings(deadline=None)
def test_no_cut_and_no_changed_bit_goes_unnoticed(data):
    disk = CrashingDisk()
    name = writer.write(disk, Header("job", 0, 1, 7, 3, {}, 2, 1), blocks(1), 1.0).file
    size = len(disk.open(name).read())
    at = data.draw(st.integers(0, size - 1))
    flip = data.draw(st.integers(0, 255))
    if flip:
        disk.damage(name, lambda old: old[:at] + bytes([old[at] ^ flip]) + old[at + 1 :])
    else:
        disk.damage(name, lambda old: old[:at])
    with pytest.raises(Damaged):
        reader.load(disk, name)


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (lambda old: old[:-30], pattern_of(messages.CHECKPOINT_TRUNCATED)),
        (lambda old: b"PK" + old, pattern_of(messages.NOT_A_CHECKPOINT)),
        (lambda old: old + b"x", pattern_of(messages.CHECKSUM_MISMATCH)),
        (lambda old: old[:-26] + b"\0" + old[-25:], pattern_of(messages.BLOCK_CHECKSUM_MISMATCH, block=0, array=1)),
        (lambda old: old[:4] + b"\xff" * 4 + old[8:], pattern_of(messages.HEADER_TOO_LONG)),
    ],
)
def test_damage_is_an_error_message(change, pattern):
    disk = CrashingDisk()
    name = writer.write(disk, Header("job", 0, 1, 7, 3, {}, 2, 1), blocks(1), 1.0).file
    disk.damage(name, change)
    with pytest.raises(Damaged, match=pattern):
        reader.load(disk, name)


# --- Records --------------------------------------------------------------------------------------------------------
def test_the_current_and_the_previous_checkpoint_are_kept(store, book):
    disk, server = CrashingDisk(), Writer(store)
    names = [save(disk, book, server, version).file for version in (1, 2, 3)]
    assert disk.names() == sorted(names[1:])
    assert restored(disk, book) == ([3], [])


def test_a_damaged_checkpoint_gives_way_to_the_one_before(store, book):
    disk, server = CrashingDisk(), Writer(store)
    for version in (1, 2):
        last = save(disk, book, server, version)
    disk.damage(last.file, lambda old: old[:-9])
    versions, warnings = restored(disk, book)
    assert versions == [1]
    (message,) = warnings
    assert message == messages.CHECKPOINT_UNUSABLE_THEN(
        file=last.file,
        described=messages.VERSION_OF_PSERVER(version=2, server=0),
        why=messages.CHECKPOINT_TRUNCATED(count=last.size - 9),
        then=messages.TRYING_VERSION_NEXT(version=1),
    )


def test_when_both_are_lost_nothing_is_restored_and_a_warning_is_sent(store, book):
    disk, server = CrashingDisk(), Writer(store)
    for version in (1, 2):
        disk.delete(save(disk, book, server, version).file)
    versions, warnings = restored(disk, book)
    assert (versions, len(warnings)) == ([], 2)
    assert "No such file" in warnings[0]
    assert warnings[0].endswith(messages.TRYING_VERSION_NEXT(version=1))
    assert warnings[1].endswith(messages.NO_OTHER_CHECKPOINT())


def test_two_servers_of_a_synchronous_job_go_back_to_a_version_of_both(store):
    disk, both = CrashingDisk(), Book(store, "job", 1, 2)
    first, second = Writer(store, 0, 2), Writer(store, 1, 2)
    for server, version in ((first, 4), (second, 4), (first, 8)):
        save(disk, both, server, version)
    assert restored(disk, both, same_version=True)[0] == [4, 4]
    assert restored(disk, both, same_version=False)[0] == [8, 4]


def test_of_two_common_versions_the_newest_is_restored(store):
    disk, both = CrashingDisk(), Book(store, "job", 1, 2)
    first, second = Writer(store, 0, 2), Writer(store, 1, 2)
    for version in (4, 8):
        for server in (first, second):
            save(disk, both, server, version)
    assert restored(disk, both, same_version=True)[0] == [8, 8]


def test_servers_without_a_common_version_have_none(store):
    disk, both = CrashingDisk(), Book(store, "job", 1, 2)
    save(disk, both, Writer(store, 0, 2), 4)
    save(disk, both, Writer(store, 1, 2), 5)
    assert restored(disk, both, same_version=True)[0] == []


def test_while_one_server_has_none_there_is_nothing(store):
    disk, both = CrashingDisk(), Book(store, "job", 1, 2)
    save(disk, both, Writer(store, 0, 2), 4)
    assert restored(disk, both)[0] == []
    assert reader.found(disk) == ()
    assert reader.resumed([disk], same_version=False) is None


def test_files_without_records_are_found_the_newest_first(store, book):
    disk, server = CrashingDisk(), Writer(store)
    for version in (1, 2):
        save(disk, book, server, version)
    (meta,) = reader.found(disk)
    assert [entry.version for entry in meta.entries] == [2, 1]


def test_a_replaced_process_cannot_make_its_checkpoint_count(store, book):
    disk, zombie = CrashingDisk(), Writer(store)
    save(disk, book, zombie, 1)
    successor = Writer(store)
    with pytest.raises(Lost, match=pattern_of(messages.PSERVER_REPLACED)):
        save(disk, book, zombie, 2)
    assert restored(disk, book)[0] == [1]
    save(disk, book, successor, 3)
    with pytest.raises(Lost, match=pattern_of(messages.NEWER_CHECKPOINT_WRITER)):
        save(disk, book, zombie, 4)
    assert restored(disk, book)[0] == [3]


class OvertakenStore:
    """Calls ``meanwhile`` once, between a read and the transaction that follows from it."""

    def __init__(self, store, meanwhile):
        self._store, self._meanwhile = store, [meanwhile]

    def __getattr__(self, name):
        return getattr(self._store, name)

    def txn(self, compares, operations):
        while self._meanwhile:
            self._meanwhile.pop()()
        return self._store.txn(compares, operations)


def test_a_record_that_was_written_in_between_is_not_written_over(store, book):
    disk, server = CrashingDisk(), Writer(store)
    save(disk, book, server, 1)
    overtaken = Book(OvertakenStore(store, lambda: save(disk, book, server, 2)), "job", 1, 1)
    with pytest.raises(Lost):
        save(disk, overtaken, server, 3)
    assert book.meta(0).current.version == 2


def test_a_replaced_process_announces_no_version_to_cut_at(store, book):
    old = Writer(store)
    book.announce(4, old.owner)
    Writer(store)
    book.announce(8, old.owner)
    assert book.announced() == 4


def test_a_whole_file_that_is_not_the_recorded_one_is_damaged(store, book):
    disk, server = CrashingDisk(), Writer(store)
    first, second = save(disk, book, server, 1), save(disk, book, server, 2)
    with pytest.raises(Damaged, match=pattern_of(messages.CHECKPOINT_NOT_RECORDED)):
        reader.load(disk, first.file, second.md5)


class OvertakenBook(Book):
    """Calls ``meanwhile`` after a record counts, before its writer deletes old files."""

    def __init__(self, *given, meanwhile):
        super().__init__(*given)
        self._meanwhile = meanwhile

    def record(self, *given):
        meta = super().record(*given)
        self._meanwhile()
        return meta


def test_a_replaced_process_leaves_the_file_that_its_successor_is_writing(store):
    disk, old, written = CrashingDisk(), Writer(store), []

    def succeed():
        new = Writer(store)
        written.append(writer.write(disk, new.header(2), blocks(2), 1.0).file)

    save(disk, OvertakenBook(store, "job", 1, 1, meanwhile=succeed), old, 1)
    assert written[0] in disk.names()


def test_a_full_disk_leaves_what_counted_and_no_litter(store, book):
    disk, server = CrashingDisk(), Writer(store)
    save(disk, book, server, 1)
    before = disk.names()

    class FullDisk(CrashingDisk):
        def append(self, name, data):
            raise OSError(errno.ENOSPC, "No space left on device")

    full = FullDisk()
    with pytest.raises(OSError, match="No space"):
        save(full, book, server, 2)
    assert (full.names(), disk.names()) == ([], before)
    assert restored(disk, book)[0] == [1]


STEPS = ("create", "write", "sync", "close", "sync_directory")


class FullAt(LocalFiles):
    """A directory on a disk that is full at one step."""

    def __init__(self, directory, step):
        super().__init__(directory)
        self.step = step

    def fail(self, step):
        if step == self.step:
            raise OSError(errno.ENOSPC, "No space left on device")

    def create(self, name):
        self.fail("create")
        return FullDraft(super().create(name), self)

    def sync_directory(self):
        super().sync_directory()
        self.fail("sync_directory")


class FullDraft:
    """A file there. Each step is done, and then fails."""

    def __init__(self, draft, files):
        self.draft, self.files = draft, files

    def write(self, data):
        self.draft.write(data)
        self.files.fail("write")

    def sync(self):
        self.draft.sync()
        self.files.fail("sync")

    def close(self):
        self.draft.close()
        self.files.fail("close")


@pytest.mark.parametrize("step", STEPS)
def test_a_disk_that_is_full_at_any_step_leaves_what_counted_and_no_litter(tmp_path, book, store, step):
    server, files = Writer(store), LocalFiles(tmp_path / "1")
    save(files, book, server, 1)
    with pytest.raises(OSError, match="No space"):
        save(FullAt(tmp_path / "1", step), book, server, 2)
    assert restored(files, book) == ([1], [])
    assert len(files.names()) == 1
    save(files, book, server, 3)
    assert restored(files, book) == ([3], [])


# --- Shortages -------------------------------------------------------------------------------------------------------
class ShortFiles(LocalFiles):
    """A directory in which the first files cannot be opened, with an error."""

    def __init__(self, directory, number, times):
        super().__init__(directory)
        self.number, self.left = number, times

    def open(self, name):
        if self.left:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number))
        return super().open(name)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM], ids=errno.errorcode.get)
def test_a_file_that_cannot_be_opened_for_a_moment_is_no_missing_one(tmp_path, book, store, number):
    server = Writer(store)
    save(LocalFiles(tmp_path / "1"), book, server, 1)
    assert [meta.current.version for meta in reader.found(ShortFiles(tmp_path / "1", number, 5))] == [1]
    assert restored(ShortFiles(tmp_path / "1", number, 5), book) == ([1], [])


@pytest.mark.usefixtures("impatient")
def test_a_shortage_that_lasts_is_an_error_and_no_missing_file(tmp_path, book, store, monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.0)
    save(LocalFiles(tmp_path / "1"), book, Writer(store), 1)
    with pytest.raises(OSError, match="Too many open files"):
        reader.found(ShortFiles(tmp_path / "1", errno.EMFILE, 5))
    with pytest.raises(OSError, match="Too many open files"):
        restored(ShortFiles(tmp_path / "1", errno.EMFILE, 5), book)


def test_a_file_that_cannot_be_read_is_reported(tmp_path, book, store):
    entry = save(LocalFiles(tmp_path / "1"), book, Writer(store), 1)
    warnings = []
    assert not reader.found(ShortFiles(tmp_path / "1", errno.EIO, 1), warnings.append)
    assert warnings == [messages.CHECKPOINT_UNREADABLE(name=entry.file, error="Input/output error")]


def test_a_disk_that_is_full_of_what_never_counted_is_freed_for_the_next_checkpoint(store, book):
    class SmallDisk(CrashingDisk):
        """A disk with space for two files."""

        def create(self, name):
            if len(self.names()) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().create(name)

    disk, server = SmallDisk(), Writer(store)
    for version in (1, 2):
        writer.write(disk, server.header(version), blocks(version), 1.0)
    save(disk, book, server, 3)
    assert restored(disk, book) == ([3], [])


def test_while_the_store_is_away_no_file_is_written(store):
    class AbsentStore:
        def get(self, key):
            raise StoreUnavailable("The store did not answer in time.")

    disk, server = CrashingDisk(), Writer(store)
    with pytest.raises(StoreUnavailable):
        save(disk, Book(AbsentStore(), "job", 1, 1), server, 1)
    assert disk.names() == []


def test_a_checkpoint_counts_though_an_older_file_cannot_be_deleted(store, book, caplog):
    class StickyDisk(CrashingDisk):
        def delete(self, name):
            raise OSError(errno.EIO, "Input/output error")

    disk, server = StickyDisk(), Writer(store)
    entries = [save(disk, book, server, version) for version in (1, 2, 3)]
    assert book.generation()[0].current == entries[-1]
    assert "could not be deleted" in caplog.text


def test_a_lost_answer_is_found_to_have_been_written(store):
    class OnceSilentStore:
        silent = True

        def __getattr__(self, name):
            return getattr(store, name)

        def txn(self, compares, operations):
            answer = store.txn(compares, operations)
            if self.silent:
                self.silent = False
                raise StoreUnavailable("The store did not answer in time.")
            return answer

    disk, server = CrashingDisk(), Writer(store)
    entry = save(disk, Book(OnceSilentStore(), "job", 1, 1), server, 1)
    (meta,) = Book(store, "job", 1, 1).generation()
    assert (meta.current, meta.previous) == (entry, None)


# --- Crash points ---------------------------------------------------------------------------------------------------
def crash_points():
    """Every step of writing the third checkpoint, and both ways in which it can be the last."""
    return [
        *["create", "write", "write", "write", "write", "write", "write", "sync", "sync directory"],
        *["txn is not sent", "the answer is lost", "delete"],
    ]


@pytest.mark.parametrize("power", ["stays", "goes"])
@pytest.mark.parametrize(("number", "what"), list(enumerate(crash_points())))
def test_after_a_crash_at_any_step_a_whole_checkpoint_is_restored(store, number, what, power):
    disk, server = CrashingDisk(), Writer(store)
    book = Book(ForgetfulStore(store, disk), "job", 1, 1)
    for version in (1, 2):
        save(disk, book, server, version)
    disk.steps, disk.crash_at = [], number
    with pytest.raises(Crash, match=what):
        save(disk, book, server, 3)
    if power == "goes":
        disk.power_cut()
    disk.steps, disk.crash_at = [], None
    counted = number > crash_points().index("txn is not sent")
    assert restored(disk, Book(store, "job", 1, 1)) == ([3] if counted else [2], [])
    for meta in Book(store, "job", 1, 1).generation():
        for entry in meta.entries:
            reader.load(disk, entry.file, entry.md5)
    successor = Writer(store)
    save(disk, Book(store, "job", 1, 1), successor, 4)
    assert len(disk.names()) == 2  # the files left by the crash are deleted
    assert restored(disk, Book(store, "job", 1, 1)) == ([4], [])


def test_those_are_all_the_steps(store):
    disk, server = CrashingDisk(), Writer(store)
    book = Book(ForgetfulStore(store, disk), "job", 1, 1)
    for version in (1, 2):
        save(disk, book, server, version)
    disk.steps = []
    save(disk, book, server, 3)
    assert disk.steps == crash_points()
