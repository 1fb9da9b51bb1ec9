"""One peer of D1: another format's Python reader. ``record_peer.py NAME PATH LO HI SIZE`` in the peers' own Python.

Writes random records of LO to HI bytes, SIZE in all, in its own format. Then, for each line of standard input, it reads
all of them and prints the seconds. Nothing is compressed.
"""

from __future__ import annotations

import io
import sys
import tarfile
import time
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np

_BULK = 1_000


def records(lo: int, hi: int, size: int) -> Iterator[bytes]:
    """Yield the same records as ``bench.datasets.reading``."""
    rng = np.random.default_rng(7)
    left = size
    while left > 0:
        length = int(rng.integers(lo, hi))
        left -= length
        yield rng.bytes(length)


def write_webdataset(path: Path, given: Iterable[bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for number, record in enumerate(given):
            info = tarfile.TarInfo(f"{number:08}.bin")
            info.size = len(record)
            archive.addfile(info, io.BytesIO(record))


def read_webdataset(path: Path) -> Iterator[object]:
    import webdataset  # type: ignore[import-not-found,unused-ignore]

    return (sample["bin"] for sample in webdataset.WebDataset(str(path), shardshuffle=False))


class _StandIn(types.ModuleType):
    """Module in which every name is an empty class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return object


def _allow_import_of_streaming() -> None:
    """Replace torchvision, which streaming imports for pictures and this peer does not use.

    It cannot be imported with a PyTorch that was built differently, such as one for CPUs only.
    """
    try:
        import torchvision  # type: ignore[import-not-found,import-untyped,unused-ignore] # noqa: F401
    except (ImportError, RuntimeError):
        names = ("torchvision", "torchvision.datasets", "torchvision.transforms", "torchvision.transforms.functional")
        sys.modules.update({name: _StandIn(name) for name in names})


def write_mds(path: Path, given: Iterable[bytes]) -> None:
    _allow_import_of_streaming()
    from streaming import MDSWriter  # type: ignore[import-not-found,unused-ignore]

    with MDSWriter(out=str(path), columns={"record": "bytes"}) as writer:
        for record in given:
            writer.write({"record": record})


def read_mds(path: Path) -> Iterator[object]:
    from streaming import StreamingDataset

    return iter(StreamingDataset(local=str(path), shuffle=False, batch_size=1))


def write_array_record(path: Path, given: Iterable[bytes]) -> None:
    from array_record.python import array_record_module  # type: ignore[import-not-found,unused-ignore]

    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for record in given:
        writer.write(record)
    writer.close()


def read_array_record(path: Path) -> Iterator[object]:
    """Read in bulk: many records per call."""
    from array_record.python import array_record_module

    reader = array_record_module.ArrayRecordReader(str(path))
    count = reader.num_records()
    for start in range(0, count, _BULK):
        yield from reader.read(start, min(start + _BULK, count))
    reader.close()


def write_tfrecord(path: Path, given: Iterable[bytes]) -> None:
    from tfrecord import TFRecordWriter  # type: ignore[import-not-found,unused-ignore]

    writer = TFRecordWriter(str(path))
    for record in given:
        writer.write({"record": (record, "byte")})
    writer.close()


def read_tfrecord(path: Path) -> Iterator[object]:
    from tfrecord.reader import tfrecord_loader  # type: ignore[import-not-found,unused-ignore]

    loader: Iterator[object] = tfrecord_loader(str(path), None, {"record": "byte"})
    return loader


def read_tfrecord_bare(path: Path) -> Iterator[object]:
    """Yield views of serialised examples, unverified."""
    from tfrecord.reader import tfrecord_iterator

    iterator: Iterator[object] = tfrecord_iterator(str(path))
    return iterator


KINDS: dict[str, tuple[Callable[[Path, Iterable[bytes]], None], Callable[[Path], Iterator[object]]]] = {
    "webdataset": (write_webdataset, read_webdataset),
    "mds": (write_mds, read_mds),
    "array_record": (write_array_record, read_array_record),
    "tfrecord": (write_tfrecord, read_tfrecord),
    "tfrecord-bare": (write_tfrecord, read_tfrecord_bare),
}


def main(name: str, path: Path, lo: int, hi: int, size: int) -> None:
    write, read = KINDS[name]
    write(path, records(lo, hi, size))
    print("ready", flush=True)
    for _line in sys.stdin:
        begun = time.perf_counter()
        deque(read(path), maxlen=0)
        print(time.perf_counter() - begun, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6]))
