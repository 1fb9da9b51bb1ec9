"""Storage of datasets, code snapshots, artifacts and sealed segments. ``base`` is the interface."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from datasets.storage.base import Storage
from datasets.storage.local import LocalStorage
from datasets.storage.s3 import Address, S3Storage


def default_storage() -> Storage:
    """Return the portal's storage. Cheap; reads the settings each time so that a test may change ``STORAGE_DIR``."""
    directory = Path(settings.STORAGE_DIR)
    if settings.STORAGE_BUCKET is None:
        return LocalStorage(directory)
    return S3Storage(Address(**settings.STORAGE_BUCKET), directory)
