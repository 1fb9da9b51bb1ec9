"""Keys of the contents of jobs in the storage."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.builds import code_snapshots
from jobs.models import Artifact, CodeSnapshot


def keys() -> Iterator[str]:
    """Yield the keys to which rows of jobs refer: artifacts and code."""
    yield from Artifact.objects.values_list("key", flat=True).iterator()
    yield from map(code_snapshots.key_of, CodeSnapshot.objects.values_list("pk", flat=True).iterator())
