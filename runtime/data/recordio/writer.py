"""Writer of records into chunks."""

from __future__ import annotations

from types import TracebackType
from typing import IO

from runtime.data.recordio.chunks import encode_chunk
from runtime.data.recordio.compression import MAX_PAYLOAD_BYTES
from runtime.data.recordio.header import COMPRESSORS, LENGTH_BYTES, RecordIOError
from runtime.errors import UsageError
from runtime.messages import data as messages

DEFAULT_CHUNK_BYTES = 32 << 20
# A chunk with a single record of this size can still be read.
MAX_RECORD_BYTES = MAX_PAYLOAD_BYTES - LENGTH_BYTES


class Writer:
    """Writes records to a binary file. Closing flushes the last chunk and leaves the file open.

    A record that would make the chunk longer than ``max_chunk_bytes`` (of raw record bytes) begins the next one; 0
    makes one chunk per record. ``compressor`` is none, snappy or gzip. ``flush`` ends a chunk early. Raises UsageError
    for an unknown compressor.
    """

    def __init__(self, file: IO[bytes], compressor: str = "none", max_chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        if compressor not in COMPRESSORS:
            raise UsageError(messages.COMPRESSOR_INVALID(names=", ".join(COMPRESSORS), name=f"{compressor!r}"))
        self._file = file
        self._compressor = COMPRESSORS[compressor]
        self._max_chunk_bytes = max_chunk_bytes
        self._records: list[bytes] = []
        self._size = 0
        self._closed = False

    def write(self, record: bytes | bytearray | memoryview) -> int:
        """Add one record. Returns its length in bytes. Raises RecordIOError after ``close``."""
        if self._closed:
            raise RecordIOError(messages.WRITER_CLOSED())
        record = bytes(record)
        if len(record) > MAX_RECORD_BYTES:
            raise RecordIOError(messages.RECORD_TOO_LARGE(most=MAX_RECORD_BYTES, count=len(record)))
        if self._is_full(len(record)):
            self.flush()
        self._records.append(record)
        self._size += len(record)
        return len(record)

    def _is_full(self, more: int) -> bool:
        size = self._size + more
        return size > self._max_chunk_bytes or size + LENGTH_BYTES * (len(self._records) + 1) > MAX_PAYLOAD_BYTES

    def flush(self) -> None:
        """End the chunk. Writes nothing if it is empty."""
        if self._records:
            self._file.write(encode_chunk(self._records, self._compressor))
        self._records, self._size = [], 0

    def close(self) -> None:
        """Write the remaining records. May be called twice."""
        self.flush()
        self._closed = True

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
