"""Removal of objects and processes that killed test runs have left on the cluster and on this machine.

The names of a run's objects contain its mark: this machine and the id of its process. If that process no longer exists,
the next run removes the objects: leftover pods would hold a node, and leftover controllers the lease.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jobs.operator.client.api import ApiServer, Refusal

_MACHINE = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]
# The environment variable of processes that outlive a SIGKILL of the test run.
RUN = "KUBE_TESTS_RUN"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
MARK = f"{_MACHINE}-{os.getpid()}"
_NAME = re.compile(rf"[a-z]+-{_MACHINE}-(?P<run>[0-9]+)-.*")
_VARIABLE = re.compile(rf"{RUN}={_MACHINE}-(?P<run>[0-9]+)")


def remove(api: ApiServer) -> None:
    """Remove leftovers, processes first: a portal would create its namespace again."""
    for process in _processes():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    for path in ("/api/v1/namespaces", PRIORITIES):
        for item in api.call("GET", path)["items"]:
            name = item["metadata"]["name"]
            if _is_over(_NAME.fullmatch(name)):
                with suppress(Refusal):  # another run was faster
                    api.call("DELETE", f"{path}/{name}")


def _processes() -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(_is_over(_VARIABLE.fullmatch(variable)) for variable in variables):
            yield int(entry.parent.name)


def _is_over(found: re.Match[str] | None) -> bool:
    return found is not None and not Path("/proc", found["run"]).exists()
