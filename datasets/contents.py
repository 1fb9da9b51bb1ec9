"""Comparison of the storage with the database: contents that are missing, and contents that it does not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from datasets.models import Blob, Version
from datasets.storage.base import Storage

# Contents that are made again on demand, or whose rows are not compared.
_DERIVED = ("previews/",)


@dataclass(frozen=True)
class Comparison:
    """Keys of contents, in ascending order. ``missing``: the database refers to them. ``unknown``: it does not."""

    missing: tuple[str, ...]
    unknown: tuple[str, ...]


def referred() -> Iterator[str]:
    """Yield the keys to which rows of this app refer. Contents that are being handed over or deleted may be absent."""
    yield from Blob.objects.filter(kept__isnull=False, doomed=None).values_list("key", flat=True).iterator()
    yield from Version.objects.exclude(manifest="").values_list("manifest", flat=True).iterator()


def passing() -> Iterator[str]:
    """Yield the keys of contents that are being handed over or deleted."""
    rows = Blob.objects.exclude(kept__isnull=False, doomed=None)
    yield from rows.values_list("key", flat=True).iterator()


def compare(storage: Storage, keys: Iterable[str]) -> Comparison:
    """Compare the storage with ``keys`` of other apps and of this one. Raises StorageError."""
    expected = {*keys, *referred()}
    stored = {stat.key for stat in storage.list() if not stat.key.startswith(_DERIVED)}
    return Comparison(tuple(sorted(expected - stored)), tuple(sorted(stored - expected - set(passing()))))
