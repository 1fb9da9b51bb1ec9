"""Where files are kept: code snapshots, artifacts and sealed segments. ``base`` is the interface."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from datasets.storage.base import Storage
from datasets.storage.local import LocalStorage


def default_storage() -> Storage:
    """The portal's storage. Cheap; read anew each time so that a test may move ``STORAGE_DIR``."""
    return LocalStorage(Path(settings.STORAGE_DIR))
