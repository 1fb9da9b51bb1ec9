"""Part of this machine's cgroup tree (version 2), delegated like by systemd, for the tests of cgroups."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.isolation import cgroup, delegation
from tests.waiting import until

OWN = delegation.observe()
needed = pytest.mark.skipif(OWN.path is None or not OWN.writable, reason="needs a cgroup v2 that may be written")


@contextlib.contextmanager
def delegated(uid: int = 0) -> Iterator[Path]:
    """Provide a new cgroup that belongs to the user. At the end all processes in it and below are killed."""
    assert OWN.path is not None
    base = OWN.path / f"regatta-test-{uuid.uuid4().hex}"
    base.mkdir()
    for path in (base, base / "cgroup.procs", base / "cgroup.subtree_control", base / "cgroup.threads"):
        os.chown(path, uid, uid)
    try:
        yield base
    finally:
        cgroup.kill(base)
        until("the cgroups of the test can be removed", lambda: removed(base), 60)


def removed(base: Path) -> bool:
    for parent, _directories, _files in os.walk(base, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(parent)  # noqa: PTH106  as os.walk names it
    return not base.exists()


def inside(path: Path) -> list[int]:
    """Return the processes in a cgroup."""
    return [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
