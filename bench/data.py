"""D: data. Reading and indexing RecordIO beside raw reads and other formats; then ``bench.uploads``, ``bench.waiting``.

D1  Sequential read with checksums, records of 1 to 100 KB, as bytes and as views; the file is in the page cache.
D1s The same with records of 0.4 KB, and with snappy in chunks of 1 MiB.
D2  The index of a file of 10 GB, whose payloads are holes: an index reads none of them.

Peers are what is installed of webdataset, array_record, streaming (MDS) and tfrecord; each reads the same records from
its own format in the same run. BENCH_DATA_MB says how large the file is (1024).
"""

from __future__ import annotations

import importlib.util
import io
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from bench import uploads, waiting
from bench.report import Row
from runtime.data.formats import recordio
from runtime.data.formats.span import CHUNK_BYTES
from runtime.data.recordio import Writer
from runtime.data.recordio.header import Header

ROUNDS = 3
MIB = 1 << 20
SIZE = int(os.environ.get("BENCH_DATA_MB", "1024")) * MIB
LONG, SHORT = (1_000, 100_000), (400, 401)
INDEXED, PAYLOAD = 10 << 30, MIB
_PIECE = 1 << 20


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as scratch:
        folder = Path(scratch)
        rows = list(_reading(folder, "D1", "1 to 100 KB", LONG, SIZE, (0.55, 0.75)))
        rows += _reading(folder, "D1s", "0.4 KB", SHORT, SIZE // 8, (0.0, 0.0))
        rows += [_snappy(folder), *_indexing(folder)]
    return [*rows, *uploads.measure(), *waiting.measure()]


# --- D1 --------------------------------------------------------------------------------------------------------------
def _records(lengths: tuple[int, int], size: int) -> Iterator[bytes]:
    """Bytes that nothing can compress."""
    rng = np.random.default_rng(7)
    left = size
    while left > 0:
        length = int(rng.integers(*lengths))
        left -= length
        yield rng.bytes(length)


def _reading(
    folder: Path, row: str, what: str, lengths: tuple[int, int], size: int, goals: tuple[float, float]
) -> Iterator[Row]:
    """``goals``: of bytes and of views, beside a raw read; 0: none."""
    ours = folder / "data.recordio"
    with ours.open("wb") as file, Writer(file, compressor="none", max_chunk_bytes=CHUNK_BYTES) as writer:
        for record in _records(lengths, size):
            writer.write(record)
    raw = _speed(size, lambda: _read_raw(ours))
    kinds: tuple[tuple[str, Callable[[Path], None]], ...] = (("bytes", _read_bytes), ("views", _read_views))
    for (kind, read), goal in zip(kinds, goals, strict=True):
        value = _speed(size, lambda read=read: read(ours))  # type: ignore[misc]
        yield _beside(row, f"{what} as {kind}, beside a raw read: GB/s", value, raw, goal)
    best = value
    ours.unlink()
    for name, peer in _PEERS.items():
        if importlib.util.find_spec(name) is None:
            print(f"{row}: {name} is not installed; it is left out.", file=sys.stderr)
            continue
        write, read_peer, goal = peer
        path = folder / f"data.{name}"
        write(path, _records(lengths, size))
        theirs = _speed(size, lambda path=path, read=read_peer: read(path))  # type: ignore[misc]
        _remove(path)
        yield _beside(row, f"{what} as views, beside {name}: GB/s", best, theirs, goal)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _snappy(folder: Path) -> Row:
    """Bytes that compress by half, as text does."""
    path, size = folder / "data.snappy", SIZE // 4
    half = np.random.default_rng(7).bytes(2_000)
    with path.open("wb") as file, Writer(file, compressor="snappy", max_chunk_bytes=MIB) as writer:
        for _ in range(size // 4_000):
            writer.write(half + bytes(2_000))
    raw = _speed(path.stat().st_size, lambda: _read_raw(path))
    value = _speed(size, lambda: _read_views(path))
    path.unlink()
    return _beside("D1s", "snappy in chunks of 1 MiB, beside a raw read: GB/s", value, raw, 0.2)


def _speed(size: int, read: Callable[[], object]) -> float:
    """GB a second, the median; once before for the page cache."""
    seconds = []
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - begun)
    return size / median(seconds[1:]) / 1e9


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
    """All of them, one after the other. None is held on to, which would keep its chunk beside the next one."""
    deque(records, maxlen=0)


def _beside(row: str, case: str, value: float, peer: float, goal: float) -> Row:
    ratio = value / peer
    told = f">= {goal:g} x" if goal else ""
    return Row(row, case, round(value, 3), told, ratio >= goal, round(peer, 3), round(ratio, 2))


# --- Peers -----------------------------------------------------------------------------------------------------------
def _write_tar(path: Path, records: Iterable[bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for number, record in enumerate(records):
            info = tarfile.TarInfo(f"{number:08}.bin")
            info.size = len(record)
            archive.addfile(info, io.BytesIO(record))


def _read_tar(path: Path) -> None:
    import webdataset  # type: ignore[import-not-found,unused-ignore]

    for sample in webdataset.WebDataset(str(path), shardshuffle=False):
        sample["bin"]


def _write_mds(path: Path, records: Iterable[bytes]) -> None:
    from streaming import MDSWriter  # type: ignore[import-not-found,unused-ignore]

    with MDSWriter(out=str(path), columns={"record": "bytes"}) as writer:
        for record in records:
            writer.write({"record": record})


def _read_mds(path: Path) -> None:
    from streaming import StreamingDataset

    _through(StreamingDataset(local=str(path), shuffle=False, batch_size=1))


def _write_array_record(path: Path, records: Iterable[bytes]) -> None:
    from array_record.python import array_record_module  # type: ignore[import-not-found,unused-ignore]

    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for record in records:
        writer.write(record)
    writer.close()


def _read_array_record(path: Path) -> None:
    from array_record.python import array_record_module

    reader = array_record_module.ArrayRecordReader(str(path))
    for _ in range(reader.num_records()):
        reader.read()
    reader.close()


def _write_tfrecord(path: Path, records: Iterable[bytes]) -> None:
    from runtime.data.formats import tfrecord

    with path.open("wb") as file:
        for record in records:
            tfrecord.write(file, record)


def _read_tfrecord(path: Path) -> None:
    from tfrecord.reader import tfrecord_iterator  # type: ignore[import-not-found,unused-ignore]

    for _ in tfrecord_iterator(str(path)):
        pass


_PEERS: Mapping[str, tuple[Callable[[Path, Iterable[bytes]], None], Callable[[Path], None], float]] = {
    "webdataset": (_write_tar, _read_tar, 4.0),
    "array_record": (_write_array_record, _read_array_record, 1.0),
    "streaming": (_write_mds, _read_mds, 2.0),
    # It checks nothing of what it reads; there is no goal beside it.
    "tfrecord": (_write_tfrecord, _read_tfrecord, 0.0),
}


# --- D2 --------------------------------------------------------------------------------------------------------------
def _indexing(folder: Path) -> Sequence[Row]:
    path = folder / "data.holes"
    header = Header(0, 0, PAYLOAD, 1).pack()
    with path.open("wb") as file:
        for offset in range(0, INDEXED, len(header) + PAYLOAD):
            file.seek(offset)
            file.write(header)
        file.truncate(offset + len(header) + PAYLOAD)
    told = [_index_apart(path) for _ in range(ROUNDS)]
    seconds, memory = median(one[0] for one in told), max(one[1] for one in told)
    return (
        Row("D2", "index of 10 GB in chunks of 1 MiB: seconds", round(seconds, 3), "<= 1", seconds <= 1),
        Row("D2", "and what it adds to the memory: MB", round(memory, 1), "<= 16", memory <= 16),
    )


def _index_apart(path: Path) -> tuple[float, float]:
    """Seconds and MB, in a process that does nothing else."""
    done = subprocess.run([sys.executable, "-m", "bench.data", str(path)], capture_output=True, text=True, check=True)
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def index(path: Path) -> tuple[float, float]:
    """How long the index of a file takes (s), and by how much the most memory of this process grew (MB)."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    for _ in recordio.list_chunks(path, CHUNK_BYTES):
        pass
    seconds = time.perf_counter() - begun
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


if __name__ == "__main__":
    print(*index(Path(sys.argv[1])))
