"""Description of a dataset for its readers, and the chunks of its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from runtime.data.span import Span
from runtime.errors import RegattaError, UsageError

# Format of datasets whose description has the shape of their features.
FEATURES = "features"
# Format in which every file is one record.
PICTURES = "image"


class UnknownDataset(UsageError):
    """There is no dataset, or no split, of that name."""


class BadDataset(RegattaError):
    """A dataset's own files are invalid."""


class Chunk(NamedTuple):
    """A piece of a file that can be read on its own; see ``Span``. ``format`` is the format of its records."""

    path: str
    offset: int
    length: int
    records: int
    digest: int | None = None
    format: str = FEATURES

    @classmethod
    def of(cls, path: str | Path, span: Span, format_: str) -> Chunk:
        return cls(str(path), span.offset, span.length, span.records, span.digest, format_)

    @property
    def span(self) -> Span:
        return Span(self.offset, self.length, self.records, self.digest)


# Returns the chunks of a split, in order. Raises BadDataset, FormatError.
Listing = Callable[[str], tuple[Chunk, ...]]


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a dataset.

    ``records`` has the number of records of each split, as far as it is known without reading the files. ``listing``
    returns the chunks of a split. ``features`` is the shape of one record's features, empty if records are something
    else. ``format`` is the format of all files; if it is empty, each file is detected.
    """

    name: str
    directory: Path
    splits: tuple[str, ...]
    listing: Listing = field(repr=False, compare=False)
    records: Mapping[str, int] = field(default_factory=dict)
    title: str = ""
    task: str = ""
    features: tuple[int, ...] = ()
    format: str = ""
    source: str = ""
    licence: str = ""
    version: int = 1
