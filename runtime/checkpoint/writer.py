"""Writing of checkpoints: first the complete file, then the record, and only then are older files deleted.

After a crash at any moment, the previous or the new checkpoint is complete on the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
import uuid
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from runtime.checkpoint import format
from runtime.checkpoint.filesystem import Draft, Files
from runtime.checkpoint.format import Buffer, Header
from runtime.checkpoint.index import Book, Entry, Meta
from runtime.coordination.base import Compare

# Array, block and numbers.
Block = tuple[int, int, Buffer]

MARK = ".dck"
# Headers and blocks; a block has up to a mebibyte.
_PARTS_BEHIND = 64
_NICENESS = 5

log = logging.getLogger("checkpoint")


def file_name(header: Header, unique: str) -> str:
    return f"{header.shard}-{header.incarnation}-{unique}{MARK}"


def save(files: Files, book: Book, header: Header, blocks: Iterable[Block], owner: Compare, timestamp: float) -> Entry:
    """Write a checkpoint and record it.

    Raises OSError, StoreUnavailable, and Lost if another process is this server now. On an error the checkpoint before
    still counts.

    Unrecorded files are also deleted before the file is written: otherwise a disk full of unrecorded files would stay
    full. While the store does not answer nothing is written, so that no such files accumulate.
    """
    _delete_uncounted(files, book.meta(header.shard), header)
    entry = write(files, header, blocks, timestamp)
    _delete_uncounted(files, book.record(header.shard, entry, owner), header)
    return entry


def _delete_uncounted(files: Files, meta: Meta | None, header: Header) -> None:
    """Delete files that this server wrote and no record names. A failed deletion is tried again the next time."""
    counted = {entry.file for entry in meta.entries} if meta else set()
    try:
        for name in list(files.names()):
            if name not in counted and _is_older(name, header):
                files.delete(name)
    except OSError as error:
        log.warning("Checkpoints that do not count any more could not be deleted: %s", error)


def write(files: Files, header: Header, blocks: Iterable[Block], timestamp: float) -> Entry:
    """Write the file so that it survives a power loss. A file that could not be written is removed."""
    unique = uuid.uuid4().hex
    name = file_name(header, unique)
    draft = files.create(name)
    try:
        try:
            md5, size = _fill(draft, header, blocks)
            draft.sync()
        finally:
            draft.close()
        files.sync_directory()
    except Exception:  # threads and memory may be short as well as the disk
        with contextlib.suppress(OSError):
            files.delete(name)
        raise
    return Entry(unique, name, md5, size, header.version, header.incarnation, timestamp)


def _fill(draft: Draft, header: Header, blocks: Iterable[Block]) -> tuple[str, int]:
    """Write everything; return the MD5 in hex and the size of the file."""
    with _Digest() as digest:
        for part in _parts(header, blocks):
            digest.update(part)
            draft.write(part)
        md5, size = digest.finish()
    draft.write(format.TRAILER.pack(size, md5))
    return md5.hex(), size + format.TRAILER.size


def _parts(header: Header, blocks: Iterable[Block]) -> Iterable[Buffer]:
    yield header.to_bytes()
    for array, block, numbers in blocks:
        yield format.block_head(array, block, numbers)
        yield numbers


class _Digest:
    """MD5 on a thread of its own, because it takes longer than all the rest.

    The queue is long enough that writing never waits.
    """

    def __init__(self) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._size = 0
        self._thread = ThreadPoolExecutor(1, "checkpoint-md5", _come_after_training)
        self._due: deque[Future[None]] = deque()

    def __enter__(self) -> _Digest:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def update(self, part: Buffer) -> None:
        self._wait(_PARTS_BEHIND)
        self._size += memoryview(part).nbytes
        self._due.append(self._thread.submit(self._md5.update, part))

    def finish(self) -> tuple[bytes, int]:
        self._wait(0)
        return self._md5.digest(), self._size

    def _wait(self, behind: int) -> None:
        """Wait until at most ``behind`` parts are due."""
        while len(self._due) > behind:
            self._due.popleft().result()


def _come_after_training() -> None:
    """Lower this thread's priority where there are fewer processors than busy threads."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)


def _is_older(name: str, header: Header) -> bool:
    """Whether a file is of this server (also one left by a crash) and not of a newer process."""
    if not name.endswith(MARK):
        return False
    shard, incarnation = map(int, name.split("-")[:2])
    return shard == header.shard and incarnation <= header.incarnation
