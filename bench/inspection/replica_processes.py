"""Processes of the replicas of a local portal, and ways to disturb one from outside.

Each raises ``Absent`` where the machine does not allow it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.environment.servers import Absent, program
from runtime import contract

_LISTENS = "0A"
_CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD, _QUOTA = 100_000, 1_000  # microseconds


def script_of(data: Path, replica: str) -> int:
    """Return the process that runs a replica's own program: the last one below its agent. One job must run."""
    start, end = f"{contract.WORK_DIR}={data}/attempts/".encode(), f"/{replica}/work".encode()
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            values = (entry / "environ").read_bytes().split(b"\0")
            if any(value.startswith(start) and value.endswith(end) for value in values):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    leaves = sorted(parents.keys() - set(parents.values()))
    if not leaves:
        raise Absent(f"no process of {replica} was found")
    return leaves[-1]


@contextmanager
def stopped(data: Path) -> Iterator[None]:
    """Stop trainer-1."""
    process = script_of(data, "trainer-1")
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


@contextmanager
def starved(data: Path) -> Iterator[None]:
    """Give pserver-0 a hundredth of a core."""
    group = _CPU_GROUPS / f"regatta-bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(_QUOTA))
        process = script_of(data, "pserver-0")
        before = _cpu_group_of(process)
        (group / "cgroup.procs").write_text(str(process))
    except OSError as error:
        raise Absent(f"the CPU of a process cannot be limited: {error.strerror}") from error
    try:
        yield
    finally:
        with suppress(OSError):
            (before / "cgroup.procs").write_text(str(process))
        with suppress(OSError):
            group.rmdir()


def _cpu_group_of(process: int) -> Path:
    lines = (line.split(":", 2) for line in Path(f"/proc/{process}/cgroup").read_text().splitlines())
    inner = next((path for _, kinds, path in lines if "cpu" in kinds.split(",")), "/")
    return _CPU_GROUPS / inner.lstrip("/")


@contextmanager
def cut_off(data: Path) -> Iterator[None]:
    """Drop every packet to and from the ports of pserver-0."""
    process = script_of(data, "pserver-0")
    shares = Path(f"/proc/{process}/ns/net").readlink() == Path("/proc/self/ns/net").readlink()
    inside = [] if shares else [program("nsenter"), "--target", str(process), "--net"]
    command = [*inside, program("iptables")]
    ports = [str(port) for port in listening_ports(process)]
    if not ports:
        raise Absent("pserver-0 listens to no TCP port")
    rules = [["INPUT", "-p", "tcp", way, port, "-j", "DROP"] for port in ports for way in ("--dport", "--sport")]
    try:
        for rule in rules:
            subprocess.run([*command, "-I", *rule], check=True, capture_output=True)
        yield
    except subprocess.CalledProcessError as error:
        raise Absent(f"iptables: {error.stderr.decode(errors='replace').strip()}") from error
    finally:
        for rule in rules:  # with the processes their network is gone
            subprocess.run([*command, "-D", *rule], check=False, capture_output=True)


def listening_ports(process: int) -> list[int]:
    """Return the TCP ports to which a process listens."""
    own = set()
    for link in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            own.add(str(link.readlink()))
    rows = [line.split() for line in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]]
    found = {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTENS and f"socket:[{row[9]}]" in own}
    return sorted(found)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system of 64 MB at a directory."""
    folder.mkdir(parents=True)
    try:
        mount = [program("mount"), "-t", "tmpfs", "-o", "size=64m,mode=755", "tmpfs", str(folder)]
        subprocess.run(mount, check=True, capture_output=True)
    except (subprocess.CalledProcessError, Absent) as error:
        raise Absent("no file system can be mounted") from error
    try:
        yield
    finally:
        subprocess.run([program("umount"), "--lazy", str(folder)], check=False)
