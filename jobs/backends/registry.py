"""The settings choose the backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from jobs.backends.base import ClusterBackend
from jobs.backends.local import LocalBackend


def _local() -> ClusterBackend:
    return LocalBackend(Path(settings.ATTEMPTS_DIR))


BACKENDS: Mapping[str, Callable[[], ClusterBackend]] = {"local": _local}


def current() -> ClusterBackend:
    """The backend of this installation. It keeps nothing in memory, so a fresh one is as good as any."""
    make = BACKENDS.get(settings.CLUSTER_BACKEND)
    if make is None:
        raise ImproperlyConfigured(
            f"REGATTA_BACKEND is {settings.CLUSTER_BACKEND!r}; choose one of {', '.join(BACKENDS)}."
        )
    return make()
