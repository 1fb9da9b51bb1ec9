"""Reading of checkpoints: every byte is checked before any is used."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, TypeVar

from runtime.checkpoint import format
from runtime.checkpoint.data_position import Progress, common
from runtime.checkpoint.filesystem import Files
from runtime.checkpoint.format import BLOCK, PREFIX, TRAILER, Damaged, Header
from runtime.checkpoint.index import Entry, Generation, Meta
from runtime.messages import training as messages
from runtime.parameters.sharding import BLOCK_BYTES
from runtime.patience import is_shortage, patiently

Key = tuple[int, int]  # array and block

# Selects the blocks of a file that are needed.
Wanted = Callable[[Header], Callable[[Key], bool]]
Warn = Callable[[str], object]
T = TypeVar("T")
# Takes an entry of a server, or reports what is wrong with it and what is tried next.
Take = Callable[[int, Entry, str], T | None]

_TRIED_NEXT = messages.TRYING_VERSION_NEXT
_NO_OTHER = messages.NO_OTHER_CHECKPOINT()


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a file as bytes."""

    header: Header
    blocks: Mapping[Key, memoryview]
    md5: str


def all_blocks(header: Header) -> Callable[[Key], bool]:
    """Select every block."""
    return lambda key: True


def no_blocks(header: Header) -> Callable[[Key], bool]:
    """Select no block, to check only whether a file is complete."""
    return lambda key: False


def load(files: Files, name: str, md5: str = "", wanted: Wanted = all_blocks) -> Checkpoint:
    """Read and check a file and keep the wanted blocks; ``md5`` is the recorded checksum.

    Raises Damaged with the reason, and OSError.
    """
    with files.open(name) as file:
        checked = _Checked(file)
        header = Header.from_bytes(checked.read(format.header_length(checked.read(PREFIX.size))))
        keep = wanted(header)
        blocks = {key: numbers for key, numbers in _blocks(checked, header) if keep(key)}
        length, written = TRAILER.unpack(checked.read(TRAILER.size, counts=False))
        if (length, written) != (checked.size, checked.md5.digest()) or file.read(1):
            raise Damaged(messages.CHECKSUM_MISMATCH())
    if md5 and written.hex() != md5:
        raise Damaged(messages.CHECKPOINT_NOT_RECORDED())
    return Checkpoint(header, blocks, written.hex())


def head(files: Files, name: str) -> Header:
    """Read only the header of a file. Raises Damaged, OSError."""
    with files.open(name) as file:
        checked = _Checked(file)
        return Header.from_bytes(checked.read(format.header_length(checked.read(PREFIX.size))))


def found(files: Files, warn: Warn = lambda why: None) -> Generation:
    """The checkpoints in the files of an attempt that is over.

    No process writes there any more, so no record is needed to decide which count. Empty if those of one server are
    missing. ``warn`` is called with a message for each file that cannot be read. Raises OSError while descriptors or
    memory are used up, because a file must not count as missing during a shortage.
    """
    heads = {}
    for name in patiently(lambda: list(files.names())):
        try:
            heads[name] = patiently(partial(head, files, name))
        except Damaged:
            pass  # truncated by a crash, or not a checkpoint
        except OSError as error:
            _raise_shortage(error)
            warn(messages.CHECKPOINT_UNREADABLE(name=name, error=reason(error)))
    return generation(heads)


def _raise_shortage(error: Damaged | OSError) -> None:
    """Raise the error if it is temporary: the file must not count as missing."""
    if is_shortage(error):
        raise error


def generation(heads: Mapping[str, Header]) -> Generation:
    """The checkpoints of every server, from the headers of the files by name."""
    entries: dict[int, list[Entry]] = {}
    for name, header in heads.items():
        entry = Entry("", name, "", 0, header.version, header.incarnation, 0.0)
        entries.setdefault(header.shard, []).append(entry)
    shards = max((header.shards for header in heads.values()), default=0)
    newest = {shard: sorted(some, key=lambda entry: -entry.version) for shard, some in entries.items()}
    metas = [Meta(*newest[shard][:2]) for shard in range(shards) if shard in newest]
    return metas if len(metas) == shards else ()


def _blocks(checked: _Checked, header: Header) -> Iterator[tuple[Key, memoryview]]:
    for _ in range(header.frames):
        array, block, size, crc = BLOCK.unpack(checked.read(BLOCK.size))
        if size > BLOCK_BYTES:
            raise Damaged(messages.BLOCK_TOO_LARGE(block=block, array=array, count=size))
        numbers = checked.read(size)
        format.verify_block(array, block, crc, numbers)
        yield (array, block), numbers


class _Checked:
    """Reads exactly the requested bytes and updates their digest."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.md5 = hashlib.md5(usedforsecurity=False)
        self.size = 0

    def read(self, size: int, counts: bool = True) -> memoryview:
        data = self._file.read(size)
        if len(data) < size:
            raise Damaged(messages.CHECKPOINT_TRUNCATED(count=self.size + len(data)))
        if counts:
            self.md5.update(data)
            self.size += size
        return memoryview(data)


def restore(
    files: Files, generation: Generation, same_version: bool, wanted: Wanted, warn: Warn
) -> Sequence[Checkpoint]:
    """Load the best checkpoint of every server of a generation; empty if that of one server is lost.

    ``same_version``: only versions that all servers have count, the newest of them first, because a synchronous job has
    no state between two versions. ``warn`` is called with a message for each checkpoint that could not be used.
    """
    return best(generation, same_version, _loading(files, wanted, warn))


def best(generation: Generation, same_version: bool, take: Take[T]) -> Sequence[T]:
    """The best entry of every server that can be taken, as in ``restore``; empty if one server has none."""
    choices = list(_choices(generation, same_version)) if generation else []
    for choice, then in zip(choices, _thens([choice[0][0] for choice in choices]), strict=True):
        found = [_first(number, entries, take, then) for number, entries in enumerate(choice)]
        taken = [one for one in found if one is not None]
        if taken and len(taken) == len(found):
            return taken
    return ()


def resumed(sources: Iterable[Files], same_version: bool) -> Progress | None:
    """The data position of the parameters with which an attempt begins; None if they start from scratch.

    The parameter servers begin with what ``restore`` returns for the same directories.
    """
    for files in sources:
        if found_here := restore(files, found(files), same_version, no_blocks, lambda why: None):
            parts = [Progress.from_json(checkpoint.header.progress) for checkpoint in found_here]
            return parts[0] if same_version else common(parts)
    return None


def _choices(generation: Generation, same_version: bool) -> Iterator[Sequence[Sequence[Entry]]]:
    """The combinations to try, the best first: for every server its entries, the best first."""
    if not same_version:
        yield [meta.entries for meta in generation]
        return
    versions = [{entry.version: entry for entry in reversed(meta.entries)} for meta in generation]
    common = set(versions[0]).intersection(*versions) if versions else set()
    for version in sorted(common, reverse=True):
        yield [[server[version]] for server in versions]


def first(files: Files, server: int, entries: Sequence[Entry], wanted: Wanted, warn: Warn) -> Checkpoint | None:
    """The first complete checkpoint of a server. ``warn`` is called for each one that could not be used."""
    return _first(server, entries, _loading(files, wanted, warn), _NO_OTHER)


def _first(server: int, entries: Sequence[Entry], take: Take[T], then: str) -> T | None:
    attempts = (take(server, *one) for one in zip(entries, _thens(entries, then), strict=True))
    return next((found for found in attempts if found is not None), None)


def _thens(entries: Sequence[Entry], last: str = _NO_OTHER) -> Sequence[str]:
    """What is tried after each entry if it cannot be taken, as a part of a message."""
    return [*(_TRIED_NEXT(version=entry.version) for entry in entries[1:]), last][: len(entries)]


def _loading(files: Files, wanted: Wanted, warn: Warn) -> Take[Checkpoint]:
    def attempt(server: int, entry: Entry, then: str) -> Checkpoint | None:
        try:
            return patiently(lambda: load(files, entry.file, entry.md5, wanted))
        except (Damaged, OSError) as error:
            _raise_shortage(error)
            described = messages.VERSION_OF_PSERVER(version=entry.version, server=server)
            warn(messages.CHECKPOINT_UNUSABLE_THEN(file=entry.file, described=described, why=reason(error), then=then))
            return None

    return attempt


def reason(error: Damaged | OSError) -> str:
    """Why a file cannot be used, as a part of a message."""
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
