"""What a dataset is to those who read it: a description, and the chunks of its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from runtime.data.span import Span
from runtime.errors import RegattaError, UsageError

# The format of datasets whose description gives the shape of their features.
FEATURES = "features"
# The format of which every file is one record.
PICTURES = "image"


class UnknownDataset(UsageError):
    """There is no dataset, or no split, of that name."""


class BadDataset(RegattaError):
    """A dataset's own files are wrong."""


class Chunk(NamedTuple):
    """A piece of a file that can be read on its own; ``Span`` says more. ``format`` names what its records are made
    of."""

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


# The chunks of a split, in order. Raises BadDataset, FormatError.
Listing = Callable[[str], tuple[Chunk, ...]]


@dataclass(frozen=True)
class DatasetInfo:
    """``records`` are those of each split, as far as they are known without reading the files; ``listing`` finds the
    chunks of one.

    ``features`` is the shape of one record's features, empty where records are something else. ``format`` names what
    all files are, or is empty: then each file tells.
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
