"""The portal as it is deployed, for a load: PostgreSQL, Redis, two web processes, a worker and two sweeps.

CPU time and memory of the processes are read from /proc, the passes of a sweep from its metrics.
"""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.environment.servers import answers, free_port, postgres, redis, running, wait_until
from bench.load.portal_process import SOCKET_VARIABLE

WEBS, WORKERS, SWEEPS = 2, 1, 2
_TICKS = os.sysconf("SC_CLK_TCK")
_MOST = "1000000"
# For a step of a few seconds, on a machine that others use.
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Process:
    """A process of the portal. ``operations``: port of its metrics."""

    kind: str
    pid: int
    operations: int


class Used(NamedTuple):
    """CPU seconds since the start, and bytes of memory that the process has for itself."""

    cpu: float
    memory: int


def used(pid: int) -> Used:
    """Return what a process has used. Raises OSError for a process that is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    private = sum(int(kib) for kib in re.findall(r"^Private_\w+: +(\d+) kB", rollup, re.MULTILINE))
    return Used((int(fields[11]) + int(fields[12])) / _TICKS, private * 1024)


def cpu_of_postgres(folder: Path) -> float:
    """Return the CPU seconds of the server and of all its connections, also of those that have ended."""
    main = int((folder / "postgres/data/postmaster.pid").read_text().split()[0])
    fields = Path(f"/proc/{main}/stat").read_text().rpartition(")")[2].split()
    total = sum(map(int, fields[11:15]))
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            own = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(own[1]) == main:
            total += int(own[11]) + int(own[12])
    return total / _TICKS


def metric(process: Process, name: str) -> float:
    """Return the sum of a metric over its labels; 0 if it is absent."""
    with urllib.request.urlopen(f"http://127.0.0.1:{process.operations}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))


def labelled(process: Process, name: str) -> dict[str, float]:
    """Return a metric by the value of its only label."""
    with urllib.request.urlopen(f"http://127.0.0.1:{process.operations}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        label: float(value) for label, value in re.findall(rf'^{name}\{{\w+="([^"]*)"\}} (\S+)$', text, re.MULTILINE)
    }


@dataclass
class Stack:
    """The running portal. ``replicas``: the connection to ``bench.load.replicas``."""

    folder: Path
    ports: Sequence[int]
    processes: list[Process] = field(default_factory=list)
    replicas: Any = None

    def of(self, kind: str) -> list[Process]:
        return [process for process in self.processes if process.kind == kind]

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request to the simulated replicas."""
        self.replicas.write(json.dumps(request).encode() + b"\n")
        self.replicas.flush()
        return dict(json.loads(self.replicas.readline()))


@contextmanager
def servers(folder: Path) -> Iterator[Mapping[str, str]]:
    """Run PostgreSQL and Redis; provide the environment of the portal's processes. Raises Absent."""
    _raise_limit_of_files()
    with postgres(folder) as database, redis() as address:
        yield {
            "REGATTA_DATA_DIR": str(folder / "data"),
            "REGATTA_DATABASE_URL": database,
            "REGATTA_REDIS_URL": address,
            "REGATTA_BROKER_URL": address.rpartition("/")[0] + "/1",
            "REGATTA_SECRET_KEY": "bench " * 10,
            "REGATTA_SUBMIT_RATE": f"{_MOST}/min",
            "REGATTA_CONNECTIONS": "30000",
            "REGATTA_CONNECTIONS_PER_ADDRESS": "30000",  # all agents and browsers have the same address here
            "REGATTA_QUOTA_CPU": _MOST,
            "REGATTA_QUOTA_MEMORY": str(1 << 60),
            "REGATTA_LOG_LEVEL": "WARNING",
        }


def _raise_limit_of_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def started(folder: Path, environment: Mapping[str, str]) -> Iterator[Stack]:
    """Run the replicas' process and the portal on a database that is migrated."""
    ports = [free_port() for _ in range(WEBS)]
    path = str(folder / "replicas.sock")
    with ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("w"))
        own = {**os.environ, **environment, SOCKET_VARIABLE: path, "DJANGO_SETTINGS_MODULE": "portal.settings"}
        command = [sys.executable, "-m", "bench.load.replicas", path, *map(str, ports)]
        stack.enter_context(running(command, env=own, stdout=log, stderr=log))
        wait_until(Path(path).exists, "the start of the replicas' process")
        link = stack.enter_context(socket.socket(socket.AF_UNIX))
        link.connect(path)
        found = Stack(folder, ports, replicas=stack.enter_context(link.makefile("rwb")))
        for kind, port in (*(("web", port) for port in ports), *[("worker", 0)] * WORKERS, *[("sweep", 0)] * SWEEPS):
            operations = free_port()
            mine = {**own, "PORT": str(port or ports[0]), "REGATTA_OPERATIONS_PORT": str(operations)}
            words = [sys.executable, "-m", "bench.load.portal_process", _COMMANDS[kind]]
            process = stack.enter_context(running(words, env=mine, stdout=log, stderr=log))
            found.processes.append(Process(kind, process.pid, operations))
        listening = [*ports, *(process.operations for process in found.processes)]
        wait_until(lambda: all(map(answers, listening)), "the start of the portal", PATIENCE_SECONDS)
        try:
            yield found
        except Exception:
            print((folder / "log").read_text()[-_LOG_CHARACTERS:], file=sys.stderr)
            raise


_LOG_CHARACTERS = 5000
_COMMANDS = {"web": "serve", "worker": "work", "sweep": "sweep"}
