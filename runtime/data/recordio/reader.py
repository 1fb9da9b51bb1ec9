"""Reader of records, one by one or by number."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from runtime.data.recordio import chunks
from runtime.data.recordio.files import File, Source
from runtime.data.recordio.header import RecordIOError
from runtime.data.recordio.index import Damage, hop, survey
from runtime.data.span import Span
from runtime.messages import data as messages

Found = TypeVar("Found")
# Chunks that are read and checked ahead while one is used. Reads and checksums release the interpreter's lock.
AHEAD = 2


class Reader:
    """The records of a RecordIO file, by its path or open for reading. Iterating yields bytes, each time from the
    first.

    With ``recover``, damaged places are skipped: every chunk is read once to find them, ``damage`` lists them, and
    ``chunks`` are the whole ones. Without it, they raise RecordIOError with the place, as does a file that ends inside
    a chunk. Raises OSError if the file cannot be read. Close the reader, or use it as a context.
    """

    def __init__(self, file: File, *, recover: bool = False) -> None:
        self._source = Source(file)
        self._recover = recover

    # --- The index ---------------------------------------------------------------------------------------------------
    @cached_property
    def _survey(self) -> tuple[Span | Damage, ...]:
        return tuple(survey(self._source) if self._recover else hop(self._source))

    @cached_property
    def chunks(self) -> tuple[Span, ...]:
        """Offset and number of records of each chunk."""
        return tuple(found for found in self._survey if isinstance(found, Span))

    @cached_property
    def damage(self) -> tuple[Damage, ...]:
        """The damaged places that ``recover`` skips."""
        return tuple(found for found in self._survey if isinstance(found, Damage))

    @cached_property
    def _ends(self) -> Sequence[int]:
        """For each chunk, the total number of records up to its end."""
        return tuple(accumulate(span.records for span in self.chunks))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def locate(self, record: int) -> tuple[int, int]:
        """Return a record's chunk and its number in it, both from 0, or (-1, -1) if there is no such record."""
        if not 0 <= record < len(self):
            return -1, -1
        chunk = bisect_right(self._ends, record)
        return chunk, record - self._ends[chunk] + self.chunks[chunk].records

    # --- Records -----------------------------------------------------------------------------------------------------
    def __iter__(self) -> Iterator[bytes]:
        return self.range()

    def views(self) -> Iterator[memoryview]:
        """Yield all records without a copy. A view keeps its whole chunk in memory as long as it exists."""
        return (record for records in self._read_ahead(self.chunks, chunks.views) for record in records)

    def range(self, first: int = 0, count: int = -1) -> Iterator[bytes]:
        """Yield ``count`` records from ``first`` on, both counted over the whole file.

        A negative ``first`` is 0, a negative ``count`` means all that are left. No other chunk is read.
        """
        first = max(0, first)
        end = len(self) if count < 0 else min(len(self), first + count)
        begins = (stop - span.records for stop, span in zip(self._ends, self.chunks, strict=True))
        selected = [
            (span, max(0, first - begin), end - begin)
            for begin, span in zip(begins, self.chunks, strict=True)
            if first < begin + span.records and begin < end
        ]
        parts = self._read_ahead([span for span, _skip, _stop in selected], chunks.views)
        return (
            bytes(record)
            for (_span, skip, stop), records in zip(selected, parts, strict=True)
            for record in records[skip:stop]
        )

    def _read_ahead(
        self, spans: Sequence[Span], decode: Callable[[bytes], Found], ahead: int = AHEAD
    ) -> Iterator[Found]:
        """Yield the result of ``decode`` for each chunk, in order, with ``ahead`` of them prepared."""
        if len(spans) < 2:
            yield from (self._read(span, decode) for span in spans)
            return
        with ThreadPoolExecutor(ahead, thread_name_prefix="recordio") as readers:
            begun: deque[Future[Found]] = deque()
            try:
                for span in spans:
                    begun.append(readers.submit(self._read, span, decode))
                    if len(begun) > ahead:
                        yield begun.popleft().result()
                while begun:
                    yield begun.popleft().result()
            finally:
                for future in begun:
                    future.cancel()

    def _read(self, span: Span, decode: Callable[[bytes], Found]) -> Found:
        return read_span(self._source, span, decode)

    # --- The end -----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Close the file, if it was opened here."""
        self._source.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def read(path: str | Path, offset: int, length: int) -> Iterator[bytes]:
    """Yield the records of the chunk at ``offset`` of a file."""
    with Source(path) as source:
        return read_span(source, Span(offset, length, 0), chunks.decode_chunk)


def read_span(source: Source, span: Span, decode: Callable[[bytes], Found]) -> Found:
    """Return the result of ``decode`` for a chunk. Raises RecordIOError with the place."""
    data = source.read(span.offset, span.length)
    if len(data) != span.length:
        raise RecordIOError(messages.CHUNK_TRUNCATED_SINCE_INDEXED(path=source.name, offset=span.offset))
    try:
        return decode(data)
    except RecordIOError as error:
        raise RecordIOError(f"{source.name}, chunk at {span.offset}: {error}") from error
