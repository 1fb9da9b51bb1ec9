"""What test runs that were killed have left on the cluster and on this machine, and how it is told from what is in use.

Whatever a run makes has the run's mark in its name: this machine and the number of its process. Where there is no such
process any more, nobody will need it again, and the next run removes it: pods that nobody stops hold a node, and
controllers that nobody stops the lease.
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
# The variable of processes that tests start and that outlive a SIGKILL of the run.
RUN = "KUBE_TESTS_RUN"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
MARK = f"{_MACHINE}-{os.getpid()}"
_NAME = re.compile(rf"[a-z]+-{_MACHINE}-(?P<run>[0-9]+)-.*")
_VARIABLE = re.compile(rf"{RUN}={_MACHINE}-(?P<run>[0-9]+)")


def remove(api: ApiServer) -> None:
    """Processes first: a portal would make its namespace again."""
    for process in _processes():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    for path in ("/api/v1/namespaces", PRIORITIES):
        for item in api.call("GET", path)["items"]:
            name = item["metadata"]["name"]
            if _is_over(_NAME.fullmatch(name)):
                with suppress(Refusal):  # another run was quicker
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
