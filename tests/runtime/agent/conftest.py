"""Fixtures of the agent's tests: a portal, a runner of one replica, and a cell that isolates it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import cgroup_tree, unprivileged
from tests.runtime.agent.cells import MODES, Cell, answering
from tests.runtime.agent.ingest_server import IngestServer
from tests.runtime.agent.replica import Replica

__all__ = ["Replica"]


@pytest.fixture
def portal() -> Iterator[IngestServer]:
    server = IngestServer()
    yield server
    server.close()


@pytest.fixture
def replica(tmp_path: Path, portal: IngestServer) -> Iterator[Replica]:
    subject = Replica(tmp_path / "attempt" / "trainer-0", portal)
    yield subject
    subject.end()


@pytest.fixture(params=MODES)
def cell(request: pytest.FixtureRequest, portal: IngestServer) -> Iterator[Cell]:
    # Not in /tmp, where a job has a directory of its own.
    parent = Path("/srv") if os.geteuid() == 0 else unprivileged.PROJECT / "build"
    parent.mkdir(exist_ok=True)
    data = Path(tempfile.mkdtemp(prefix="regatta-cell-", dir=parent))
    (data / "python").mkdir()
    (data / "python" / "runtime").symlink_to(unprivileged.PROJECT / "runtime")
    (data / "secret-key").write_text("secret")
    (data / "secret-key").chmod(0o600)
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    if request.param == "user" and os.geteuid() == 0:
        command = [sys.executable, "-m", "tests.unprivileged", *command]
    victim = subprocess.Popen(command)
    name = f"regatta-test-{uuid.uuid4().hex}"
    with contextlib.ExitStack() as stack:
        for address in (str(data / "socket"), "\0" + name):
            stack.enter_context(answering(address))
        yield Cell(request.param, data, portal, victim, name)
    victim.kill()
    victim.wait()
    shutil.rmtree(data, ignore_errors=True)


@pytest.fixture
def grouped(cell: Cell) -> Iterator[Cell]:
    """Return the cell with a cgroup for its replica, in one that belongs to the agent's user."""
    with cgroup_tree.delegated(cell.agent_uid) as base:
        cell.group = base / "trainer"
        for path in (base / "portal", cell.group):
            path.mkdir()
            for own_file in (path, path / "cgroup.procs", path / "cgroup.kill"):
                os.chown(own_file, cell.agent_uid, cell.agent_uid)
        yield cell
