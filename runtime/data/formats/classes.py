"""Pictures in a folder per class (``train/cat/1.jpg``): each file is a record of its bytes and its class.

The class is the name of the folder, as a number if it has digits. Folders are classes if there are several, they do not
merely name splits, and none has a usual name for pictures that belong together (``images``, ``masks``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from runtime.data.formats.base import read_bytes, too_large
from runtime.data.pictures import is_picture
from runtime.data.span import MAX_CHUNK_BYTES, Span
from runtime.data.splits import split_of

Label = int | str

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NO_CLASSES = frozenset({"image", "images", "img", "imgs", "mask", "masks", "label", "labels", "annotations"})


def recognise(head: bytes) -> bool:
    return is_picture(head)


def index(path: Path, chunk_bytes: int) -> Iterator[Span]:
    """Yield the file as one chunk, whatever its size: ``chunk_bytes`` has no effect."""
    del chunk_bytes
    size = path.stat().st_size
    if size > MAX_CHUNK_BYTES:
        raise too_large(path, 0, size)
    return iter([Span(0, size, 1)] if size else [])


def read(path: Path, span: Span) -> Iterator[tuple[bytes, Label]]:
    folder = path.parent.name
    return iter([(read_bytes(path, span), int(folder) if _NUMBER.fullmatch(folder) else folder)])


def are_classes(pictures: Collection[str]) -> bool:
    """Return whether the pictures are in a folder per class."""
    folders = {PurePosixPath(path).parent.name.lower() for path in pictures}
    return len(folders) > 1 and "" not in folders and not folders & _NO_CLASSES and not all(map(split_of, folders))


def spread(pictures: Sequence[str]) -> list[str]:
    """Return the same paths with every folder spread evenly.

    A training that reads them in this order gets all classes all the time.
    """
    of_folder: dict[str, list[str]] = {}
    for path in pictures:
        of_folder.setdefault(str(PurePosixPath(path).parent), []).append(path)
    places = [((number + 0.5) / len(paths), path) for paths in of_folder.values() for number, path in enumerate(paths)]
    return [path for _place, path in sorted(places)]
