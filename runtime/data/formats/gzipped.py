"""Files packed with gzip, read as if they were unpacked: offsets and lengths of chunks count unpacked bytes.

Nothing is unpacked onto the disk or as a whole. A stream is read from its last point before an offset. A point is the
state of the decoder at an offset, stored every few MiB by the process that has read so far. So a process unpacks a file
once to reach its end, and from then on little more than the chunk that it reads.

A file that unpacks to too many times its size is refused.
"""

from __future__ import annotations

import io
import threading
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, wraps
from pathlib import Path, PurePath
from typing import IO, Any, Literal, NamedTuple

from runtime.data.errors import FormatError
from runtime.data.formats.base import File, Index, Read, Recognise, digest_of
from runtime.data.span import Span
from runtime.messages import data as messages

MAGIC = b"\x1f\x8b\x08"  # including the only compression method
# A file that unpacks to more than this many times its size is a bomb; below so many bytes it is accepted.
MOST_TIMES = 200
FREE_BYTES = 256 << 20

_SUFFIXES = {".gz": "", ".gzip": "", ".tgz": ".tar"}
_HEAD_BYTES = 512  # the first bytes, by which some formats are recognised
_INPUT_BYTES, _OUTPUT_BYTES = 64 << 10, 1 << 20
_BETWEEN_POINTS = 4 << 20
_MOST_POINTS = 256  # each of some 40 KiB
_MOST_FILES = 8  # files whose points are kept


def index(inner: Callable[[File, int], Iterable[Span]], recognise: Recognise = lambda head: False) -> Index:
    """Return a format's index function that also accepts packed files. Their chunks all have a digest."""

    @wraps(inner)
    def of(path: Path, chunk_bytes: int) -> Iterator[Span]:
        if not is_packed(path, recognise):
            yield from inner(path, chunk_bytes)
            return
        file = Unpacked(path)
        for span in inner(file, chunk_bytes):
            yield span if span.digest is not None else span._replace(digest=digest_of(file, span))

    return of


def read(inner: Callable[[File, Span], Iterator[Any]], recognise: Recognise = lambda head: False) -> Read:
    """Return a format's read function that also accepts packed files."""

    @wraps(inner)
    def of(path: Path, span: Span) -> Iterator[Any]:
        return inner(Unpacked(path) if is_packed(path, recognise) else path, span)

    return of


def is_packed(path: Path, recognise: Recognise = lambda head: False) -> bool:
    """Return whether a file is packed.

    A file that the format recognises by its first bytes is not, whatever they are.
    """
    with path.open("rb", buffering=0) as file:
        head = file.read(_HEAD_BYTES)
    return head.startswith(MAGIC) and not recognise(head)


def unpacked_name(path: PurePath) -> PurePath:
    """Return the name without the suffix of packed files."""
    suffix = path.suffix.lower()
    return path.with_suffix(_SUFFIXES[suffix]) if suffix in _SUFFIXES else path


def unpacked_head(head: bytes) -> bytes:
    """Return the unpacked bytes of a packed file's first bytes."""
    try:
        found: bytes = _decoder().decompress(head, len(head))
    except zlib.error:
        return b""
    return found


class Unpacked:
    """The unpacked content of a packed file. Reading raises FormatError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = path.stat()
        self._stream = _stream(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))

    @property
    def name(self) -> str:
        return unpacked_name(self._path).name

    @property
    def suffix(self) -> str:
        return unpacked_name(self._path).suffix

    @property
    def parent(self) -> Path:
        return self._path.parent

    def open(self, mode: Literal["rb"] = "rb", buffering: int = -1) -> IO[bytes]:
        return io.BufferedReader(_Raw(self._stream), buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)

    def stat(self) -> Size:
        """Return its size. All of it is unpacked once for that."""
        return Size(self._stream.size())

    def __str__(self) -> str:
        return str(self._path)


class Size(NamedTuple):
    st_size: int


class _Point(NamedTuple):
    """A point: ``at`` unpacked bytes are before it, and the packed bytes after it begin at ``place``.

    ``state`` is None between two members of a file.
    """

    at: int
    place: int
    state: Any


class _Stream:
    """The unpacked bytes of a file, from any offset. For any number of threads."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._packed_size = size
        self._lock = threading.Lock()
        self._points = [_Point(0, 0, None)]
        self._between = _BETWEEN_POINTS
        self._size: int | None = None

    def size(self) -> int:
        if self._size is None:
            for _piece in self.pieces(self._points[-1].at):
                pass
        assert self._size is not None  # noqa: S101  the end was reached
        return self._size

    def pieces(self, offset: int) -> Iterator[bytes]:
        """Yield the bytes from ``offset`` to the end in small pieces. Raises FormatError for a damaged file."""
        at, place, state = self._before(offset)
        with self._path.open("rb", buffering=0) as file:
            file.seek(place)
            packed = b""
            while packed or (packed := file.read(_INPUT_BYTES)) or state is not None:
                if state is None:
                    state, packed = self._member(packed)
                    if state is None:
                        continue
                ended = not packed
                piece, packed = self._decode(state, packed)
                if ended and not piece and not state.eof:
                    raise FormatError(messages.GZIP_TRUNCATED(path=self._path))
                at += len(piece)
                if state.eof:
                    state = None
                self._check(at)
                self._keep(at, file.tell() - len(packed), state)
                if at > offset and piece:
                    yield piece[max(0, len(piece) - (at - offset)) :]
        self._size = at

    def _member(self, packed: bytes) -> tuple[Any, bytes]:
        """Return the decoder of the next member, or None if only zeros follow, with which tapes are filled up."""
        rest = packed.lstrip(b"\0")
        return (_decoder(), rest) if rest else (None, b"")

    def _decode(self, state: Any, packed: bytes) -> tuple[bytes, bytes]:
        try:
            piece: bytes = state.decompress(packed, _OUTPUT_BYTES)
        except zlib.error as error:
            raise FormatError(messages.GZIP_DAMAGED(path=self._path, error=error)) from None
        return piece, state.unused_data if state.eof else state.unconsumed_tail

    def _check(self, at: int) -> None:
        if at > FREE_BYTES and at > MOST_TIMES * self._packed_size:
            raise FormatError(messages.GZIP_RATIO_TOO_HIGH(path=self._path, times=MOST_TIMES))

    # --- Points ---
    def _before(self, offset: int) -> _Point:
        """Return the last point at or before an offset, with its own copy of the state."""
        with self._lock:
            point = self._points[bisect_right(self._points, offset, key=lambda each: each.at) - 1]
            return point._replace(state=point.state and point.state.copy())

    def _keep(self, at: int, place: int, state: Any) -> None:
        with self._lock:
            if at - self._points[-1].at < self._between:
                return
            self._points.append(_Point(at, place, state and state.copy()))
            if len(self._points) > _MOST_POINTS:
                self._points = self._points[::2]
                self._between *= 2


@lru_cache(maxsize=_MOST_FILES)
def _stream(path: Path, identity: tuple[int, ...]) -> _Stream:
    """Return the shared stream of a file in its current version."""
    return _Stream(path, identity[2])


def _decoder() -> Any:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)


class _Raw(io.RawIOBase):
    """A file object on a stream."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self._at = 0
        self._pieces: Iterator[bytes] | None = None
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        target = offset + (self._stream.size() if base is None else base)
        if not self._skips(target - self._at):
            self._pieces, self._rest = None, memoryview(b"")
        self._at = target
        return target

    def _skips(self, count: int) -> bool:
        """Skip a few bytes without searching for a point. Returns False if that is not worth it."""
        if self._pieces is None or not 0 <= count <= _BETWEEN_POINTS:
            return count == 0
        while count > len(self._rest):
            count -= len(self._rest)
            self._rest = memoryview(next(self._pieces, b""))
            if not self._rest:
                return True
        self._rest = self._rest[count:]
        return True

    def readinto(self, buffer: Any) -> int:
        if self._pieces is None:
            self._pieces = self._stream.pieces(self._at)
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        self._at += count
        return count

    def close(self) -> None:
        self._pieces, self._rest = None, memoryview(b"")
        super().close()
