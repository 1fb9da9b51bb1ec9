"""Files of a folder and their paths in a dataset, in both directions, without leaving the folder."""

from __future__ import annotations

import hashlib
import os
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath

from regatta.errors import BadFile

PIECE = 1 << 20
IGNORE_FILE = ".regattaignore"


@dataclass(frozen=True)
class LocalFile:
    """File to be sent: ``path`` is its path in the dataset, ``state`` shows whether it has changed since."""

    file: Path
    path: str
    size: int
    state: tuple[int, int, int]

    @classmethod
    def of(cls, file: Path, path: str) -> LocalFile:
        """Return the file. Raises BadFile if it is not a regular file or cannot be read."""
        return cls(file, unicodedata.normalize("NFC", path), file.stat().st_size, _state(file))

    def check_unchanged(self) -> None:
        """Raise BadFile if the file has changed since it was listed."""
        try:
            same = _state(self.file) == self.state
        except OSError as error:
            raise BadFile(f"{self.file} is gone: {error.strerror}. Nothing was sealed; run the upload again.") from None
        if not same:
            raise _changed(self.file)


@dataclass(frozen=True)
class Piece:
    """Part of a local file: ``length`` bytes from ``offset``.

    Each iteration reads them from the disk again, in blocks. It raises BadFile if they are no longer there.
    """

    file: LocalFile
    offset: int
    length: int

    def __iter__(self) -> Iterator[bytes]:
        left = self.length
        try:
            with self.file.file.open("rb", buffering=0) as stream:
                stream.seek(self.offset)
                while left:
                    content = stream.read(min(PIECE, left))
                    if not content:
                        raise _changed(self.file.file)
                    left -= len(content)
                    yield content
        except OSError as error:
            raise BadFile(f"{self.file.file} cannot be read: {error.strerror}.") from None


def _changed(file: Path) -> BadFile:
    return BadFile(f"{file} changed while it was uploaded. Nothing was sealed; run the upload again.")


def files_of(sources: Sequence[Path]) -> list[LocalFile]:
    """Return the files of these files and folders, sorted by path. Files of a folder have paths relative to it.

    Links are not followed, and hidden files (names that begin with a dot) are skipped. Patterns in a ``.regattaignore``
    of a folder (one per line, as of ``PurePath.match``) exclude files. Raises BadFile if there is no file, or two have
    the same path.
    """
    found = [each for source in sources for each in _below(source)]
    if not found:
        raise BadFile(f"No files found in {', '.join(map(str, sources))}.")
    found.sort(key=lambda each: each.path)
    if double := next((one.path for one, other in pairwise(found) if one.path == other.path), None):
        raise BadFile(f"Two files have the same name {double!r}. Upload their common folder instead.")
    return found


def _below(source: Path) -> Iterator[LocalFile]:
    if source.is_symlink() or not source.exists():
        raise BadFile(f"{source} is {'a link; give its target instead' if source.is_symlink() else 'not found'}.")
    if source.is_file():
        yield LocalFile.of(source, source.name)
        return
    patterns = _ignored(source)
    for folder, folders, names in os.walk(source, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            path = file.relative_to(source)
            hidden = name.startswith(".") or any(path.match(pattern) for pattern in patterns)
            if hidden or file.is_symlink() or not file.is_file():
                continue
            yield LocalFile.of(file, path.as_posix())


def _ignored(folder: Path) -> Sequence[str]:
    file = folder / IGNORE_FILE
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _state(file: Path) -> tuple[int, int, int]:
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def sha256_of(file: Path, on_bytes: Callable[[int], None] = lambda _count: None) -> str:
    """Return the digest of a file, which is read in blocks. Raises BadFile."""
    digest = hashlib.sha256()
    try:
        with file.open("rb") as stream:
            while piece := stream.read(PIECE):
                digest.update(piece)
                on_bytes(len(piece))
    except OSError as error:
        raise BadFile(f"{file} cannot be read: {error.strerror}.") from None
    return digest.hexdigest()


class Checksums:
    """All checksums of a file in one lazy pass.

    Iterating yields the number and the CRC-32 of each part in order; after that, ``sha256`` is that of the whole file.
    Raises BadFile.
    """

    def __init__(self, file: LocalFile, part_size: int) -> None:
        self._file, self._part_size = file, part_size
        self._digest = hashlib.sha256()

    def __iter__(self) -> Iterator[tuple[int, str]]:
        for number, offset in enumerate(range(0, self._file.size, self._part_size)):
            value = 0
            for content in Piece(self._file, offset, min(self._part_size, self._file.size - offset)):
                value = zlib.crc32(content, value)
                self._digest.update(content)
            yield number, f"{value:08x}"

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def place_of(target: Path, path: str) -> Path:
    """Return the path of a dataset file below ``target``. Raises BadFile if it would be outside."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or "\\" in path or "\0" in path or any(part in ("..", ".") for part in parts):
        raise BadFile(
            f"The dataset has a file named {path!r}, which points outside of {target}. It was not downloaded."
        )
    return target.joinpath(*parts)
