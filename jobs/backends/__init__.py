"""What runs the replicas of attempts. ``base`` is the interface; the settings choose the implementation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from jobs.backends.base import ClusterBackend

_BACKENDS: Mapping[str, str] = {"local": "jobs.backends.local.LocalBackend"}


def current() -> ClusterBackend:
    """The backend of this installation, one instance in each process."""
    return _made(settings.CLUSTER_BACKEND)


@cache
def _made(name: str) -> ClusterBackend:
    if name not in _BACKENDS:
        raise ImproperlyConfigured(f"REGATTA_BACKEND is {name!r}; choose one of {', '.join(_BACKENDS)}.")
    backend: ClusterBackend = import_string(_BACKENDS[name])()
    return backend
