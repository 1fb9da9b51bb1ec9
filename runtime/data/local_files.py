"""Files of this machine as a dataset: one file, several by a pattern, or a folder.

``"rows.csv"``, ``"shards/*.tar"``, ``"~/pictures"``. The files to read and their formats are selected as the portal
does when a version is sealed.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from pathlib import Path

from runtime.data import saved
from runtime.data.dataset import BadDataset, Chunk, DatasetInfo
from runtime.data.errors import FormatError, UnknownFormat
from runtime.data.format_selection import Unread, choose, in_order, of_version
from runtime.data.formats import registry
from runtime.data.span import CHUNK_BYTES, Span
from runtime.data.splits import TRAIN, assign, split_of
from runtime.messages import data as messages

_PATTERN = frozenset("*?[")

# Returns the split that a path names, or an empty text.
_SplitOf = Callable[[str], str]


def find(place: str) -> DatasetInfo | None:
    """Return the dataset of the files that ``place`` names, or None if it names none. Raises BadDataset.

    Files that are named one by one or by a pattern are all for training.
    """
    path = Path(place).expanduser()
    if path.is_dir():
        return of_folder(place, path)
    found = [path] if path.is_file() else _matching(str(path))
    files = {str(each): each for each in found}
    return _made(place, path.parent, files, lambda _short: TRAIN) if files else None


def of_folder(name: str, folder: Path) -> DatasetInfo | None:
    """Return the dataset of all files below a folder except hidden ones, or None if there are none.

    Raises BadDataset.
    """
    found = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {short.as_posix(): path for short, path in found.items() if not _is_hidden(short)}
    return _made(name, folder, files, split_of) if files else None


def _matching(pattern: str) -> list[Path]:
    if not _PATTERN.intersection(pattern):
        return []
    return sorted(path for path in map(Path, glob.glob(pattern, recursive=True)) if path.is_file())  # noqa: PTH207


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _made(name: str, folder: Path, files: Mapping[str, Path], split_from: _SplitOf) -> DatasetInfo:
    try:
        left = saved.left_out(files, lambda short: _head(files[short]))
        chosen = choose({**{short: _detected(path) for short, path in files.items()}, **left}, "")
    except OSError as error:
        raise BadDataset(messages.FILE_UNREADABLE(file=error.filename, error=error.strerror)) from error
    except FormatError as error:
        raise BadDataset(str(error)) from error
    read = in_order({short: chosen[short].format for short in files if chosen[short].format})
    if not read and len(files) == 1:
        (path,) = files.values()
        _refuse(path)
    if not read:
        known = ", ".join(registry.suffixes())
        raise BadDataset(messages.FORMAT_UNSUPPORTED(name=name, suffixes=known))
    own = {short: registry.named(chosen[short].format).splits(files[short]) for short in read}
    splits = assign((split or split_from(short), (short, split)) for short in read for split in own[short] or ("",))

    def chunks(split: str) -> tuple[Chunk, ...]:
        return tuple(
            Chunk.of(files[short], span, chosen[short].format)
            for short, named in splits[split]
            for span in _spans(files[short], chosen[short].format)
            if span.split == named
        )

    return DatasetInfo(name, folder, tuple(splits), chunks, format=of_version(chosen))


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(saved.MOST_BYTES + 1)


def _refuse(path: Path) -> None:
    """Raise BadDataset with the reason, if more than the name of a single file is known."""
    try:
        registry.detect(path)
    except UnknownFormat as unknown:
        if unknown.packed or unknown.foreign:
            raise BadDataset(str(unknown)) from None


def _detected(path: Path) -> str | Unread:
    try:
        return registry.detect(path).name
    except UnknownFormat as unknown:
        return Unread.PACKED if unknown.packed else Unread.UNKNOWN


def _spans(path: Path, format_: str) -> list[Span]:
    try:
        return list(registry.named(format_).index(path, CHUNK_BYTES))
    except OSError as error:
        raise BadDataset(messages.FILE_UNREADABLE(file=path, error=error.strerror)) from error
