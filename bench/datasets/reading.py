"""D: read and index RecordIO, compared with raw reads and other formats.

D1  Sequential read with checksums, records of 1 to 100 KB, as bytes and as views; the file is in the page cache.
D1s The same with records of 0.4 KB, and with snappy in chunks of 1 MiB.
D2  The index of a file of 10 GB in chunks of 1 MiB, each of a thousand records. The payloads are holes: an index reads
    only the headers, which are on the disk. Once with the headers in the page cache, and once from the disk, where
    the figure includes the disk's speed.

Peers are webdataset, array_record, mosaicml-streaming (MDS) and tfrecord. Each reads the same records from its own
format, in a separate process, in turns with ours. Peers that yield bytes are compared with our bytes, peers that yield
views with our views.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bench import peers
from bench.environment import servers
from bench.environment.processes import answer, running, send_line
from bench.report import Row, at_most, beside
from bench.scale import scale
from runtime.data.formats import recordio
from runtime.data.recordio import Writer
from runtime.data.recordio.header import Header
from runtime.data.span import CHUNK_BYTES

ROUNDS = scale(5, 1)
MIB = 1 << 20
SIZE = scale(1024, 16) * MIB
LONG, SHORT = (1_000, 100_000), (400, 401)
RAW_GOALS, SNAPPY_GOAL, INDEX_GOAL_SECONDS, INDEX_GOAL_MB = (0.55, 0.75), 0.2, 1.0, 16.0
INDEXED, PAYLOAD = scale(10 << 30, 1 << 30), MIB
_PIECE = 1 << 20
_PEER = Path(__file__).with_name("record_peer.py")


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-", dir=servers.disk()) as scratch:
        folder = Path(scratch)
        yield from _reading(folder, "D1", "1 to 100 KB", LONG, SIZE, RAW_GOALS)
        yield from _reading(folder, "D1s", f"{SIZE // 8 // MIB} MB of 0.4 KB", SHORT, SIZE // 8, (0.0, 0.0))
        yield _snappy(folder)
        yield from _indexing(folder)


# --- D1 --------------------------------------------------------------------------------------------------------------
def _records(lengths: tuple[int, int], size: int) -> Iterator[bytes]:
    """Yield incompressible bytes."""
    rng = np.random.default_rng(7)
    left = size
    while left > 0:
        length = int(rng.integers(*lengths))
        left -= length
        yield rng.bytes(length)


def _reading(
    folder: Path, row: str, what: str, lengths: tuple[int, int], size: int, goals: tuple[float, float]
) -> Iterator[Row]:
    """Measure reading. ``goals``: of bytes and of views, relative to a raw read; 0: none. All take turns."""
    ours = folder / "data.recordio"
    with ours.open("wb") as file, Writer(file, compressor="none", max_chunk_bytes=CHUNK_BYTES) as writer:
        for record in _records(lengths, size):
            writer.write(record)
    with ExitStack() as stack:
        ways: dict[str, Callable[[], float]] = {
            "raw": lambda: _seconds(lambda: _read_raw(ours)),
            "bytes": lambda: _seconds(lambda: _read_bytes(ours)),
            "views": lambda: _seconds(lambda: _read_views(ours)),
        }
        for name in _PEERS:
            if (read := stack.enter_context(_peer(name, folder, lengths, size))) is not None:
                ways[name] = read
        speeds = _speeds(size, ways)
    ours.unlink()
    for kind, goal in zip(("bytes", "views"), goals, strict=True):
        yield beside(row, f"{what} as {kind}, beside a raw read: GB/s", speeds[kind], speeds["raw"], goal)
    for name, peer in _PEERS.items():
        kind = "views" if peer.views else "bytes"
        case = f"{what} as {kind}, beside {peer.package}: GB/s"
        yield beside(
            row, case, speeds[kind], speeds.get(name), peer.goal, note="" if name in speeds else "the peer is missing"
        )


def _speeds(size: int, ways: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Return GB per second of each way: the median of rounds in which they take turns, after one round for the page
    cache."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, read in ways.items():
            seconds = read()
            if number:
                taken[name].append(seconds)
    return {name: size / median(seconds) / 1e9 for name, seconds in taken.items()}


def _seconds(read: Callable[[], object]) -> float:
    begun = time.perf_counter()
    read()
    return time.perf_counter() - begun


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _snappy(folder: Path) -> Row:
    """Measure records that compress by half, like text."""
    path, size = folder / "data.snappy", SIZE // 4
    half = np.random.default_rng(7).bytes(2_000)
    with path.open("wb") as file, Writer(file, compressor="snappy", max_chunk_bytes=MIB) as writer:
        for _ in range(size // 4_000):
            writer.write(half + bytes(2_000))
    stored = path.stat().st_size
    ways = {"raw": lambda: _seconds(lambda: _read_raw(path)), "ours": lambda: _seconds(lambda: _read_views(path))}
    speeds = _speeds(size, ways)
    path.unlink()
    # A raw read of the stored bytes, which are half of the decompressed ones.
    raw = speeds["raw"] * stored / size
    return beside("D1s", "snappy in chunks of 1 MiB, beside a raw read: GB/s", speeds["ours"], raw, SNAPPY_GOAL)


def _read_raw(path: Path) -> None:
    piece = bytearray(_PIECE)
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass


def _read_bytes(path: Path) -> None:
    for span in recordio.list_chunks(path, CHUNK_BYTES):
        _through(recordio.read_bytes(path, span))


def _read_views(path: Path) -> None:
    for span in recordio.list_chunks(path, CHUNK_BYTES):
        _through(recordio.read(path, span))


def _through(records: Iterable[object]) -> None:
    """Iterate without keeping any record, which would keep its chunk in memory beside the next one."""
    deque(records, maxlen=0)


# --- Peers -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Peer:
    """Peer of D1.

    ``module`` is what it imports, ``package`` its name for people. ``views``: it yields views and no bytes. ``goal``:
    our target speed relative to it; 0: none.
    """

    package: str
    module: str
    goal: float
    views: bool = False


_PEERS: Mapping[str, _Peer] = {
    "webdataset": _Peer("webdataset", "webdataset", 4.0),
    # The peer handles its own import requirements (``record_peer``).
    "mds": _Peer("mosaicml-streaming (MDS)", "torch", 2.0),
    "array_record": _Peer("array_record, 1,000 by a call", "array_record.python.array_record_module", 1.0),
    "tfrecord": _Peer("tfrecord, examples", "tfrecord", 1.0),
    # It verifies and decodes nothing of what it reads; there is no goal relative to it.
    "tfrecord-bare": _Peer("tfrecord, unchecked and bare", "tfrecord", 0.0, views=True),
}


@contextmanager
def _peer(name: str, folder: Path, lengths: tuple[int, int], size: int) -> Iterator[Callable[[], float] | None]:
    """Provide a function that returns the seconds of one reading, or None if the peer is not installed."""
    python = peers.python_with(_PEERS[name].module)
    if not python:
        yield None
        return
    path = folder / f"data.{name}"
    command = [python, peers.NOT_BESIDE, str(_PEER), name, str(path), *map(str, (*lengths, size))]
    with running(command, {**os.environ}) as process:
        if answer(process) != "ready":  # it has printed the reason
            yield None
            return

        def seconds() -> float:
            send_line(process, "read")
            return float(answer(process))

        yield seconds
    _remove(path)


# --- D2 --------------------------------------------------------------------------------------------------------------
def _indexing(folder: Path) -> Sequence[Row]:
    path = folder / "data.holes"
    header = Header(0, 0, PAYLOAD, PAYLOAD // 1024).pack()
    with path.open("wb") as file:
        for offset in range(0, INDEXED, len(header) + PAYLOAD):
            file.seek(offset)
            file.write(header)
        file.truncate(offset + len(header) + PAYLOAD)
    warm, cold = [], []
    for _ in range(ROUNDS):
        _forget(path)
        cold.append(_index_apart(path))
        warm.append(_index_apart(path))
    case, note = f"index of {INDEXED >> 30} GB in chunks of 1 MiB (payloads are holes)", "headers in the page cache"
    seconds, from_disk = (median(each[0] for each in timings) for timings in (warm, cold))
    memory = max(each[1] for each in (*warm, *cold))
    return (
        at_most("D2", f"{case}: seconds", round(seconds, 3), INDEX_GOAL_SECONDS, note=note),
        at_most("D2", f"{case}: seconds", round(from_disk, 3), INDEX_GOAL_SECONDS, note="headers from the disk"),
        at_most("D2", "and what it adds to the memory: MB", round(memory, 1), INDEX_GOAL_MB),
    )


def _forget(path: Path) -> None:
    """Drop a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _index_apart(path: Path) -> tuple[float, float]:
    """Return seconds and MB, measured in a process that does nothing else."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.datasets.reading", str(path)], capture_output=True, text=True, check=True
    )
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def index(path: Path) -> tuple[float, float]:
    """Return the seconds to index a file, and the growth of this process's peak memory in MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    for _ in recordio.list_chunks(path, CHUNK_BYTES):
        pass
    seconds = time.perf_counter() - begun
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


if __name__ == "__main__":
    print(*index(Path(sys.argv[1])))
