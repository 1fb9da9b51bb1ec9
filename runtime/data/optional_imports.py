"""Packages that an environment may lack: optional ones, and those of the platform in a job's own environment."""

from __future__ import annotations

import importlib
from types import ModuleType

from runtime.errors import UsageError
from runtime.messages import data as messages


def find(name: str) -> ModuleType | None:
    """Return the module, or None if its package is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def need(name: str, package: str, purpose: str) -> ModuleType:
    """Return the module. Raises UsageError with the package to install."""
    found = find(name)
    if found is None:
        raise UsageError(messages.PACKAGE_REQUIRED(purpose=purpose, package=package))
    return found
