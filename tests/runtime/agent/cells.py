"""Hostile programs, each isolated by the agent and, as a control, without isolation: there it must succeed.

``uid``: the agent is root and the program gets a user id of its own. ``user``: the agent is an ordinary user and the
program runs in a user namespace. Tests that run as an ordinary user have only the second case.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime import contract
from runtime.isolation import cgroup
from tests import unprivileged
from tests.runtime.agent.ingest_server import IngestServer
from tests.runtime.agent.replica import Replica

HOSTILE = Path(__file__).parent / "hostile"


JOB_UID = 2_000_000_007


MODES = ["uid", "user"] if os.geteuid() == 0 else ["user"]


MIB = 2**20


@dataclass
class Cell:
    """A portal's data directory with a secret, its agent's identity, and a replica in it."""

    mode: str
    data: Path
    portal: IngestServer
    victim: subprocess.Popen[bytes]
    served: str
    networked: bool = False  # replicas are on the attempt's own network
    group: Path | None = None  # cgroup of the replica; its agent is in the leaf next to it, as the portal's agents are

    @property
    def agent_uid(self) -> int:
        return unprivileged.UID if self.mode == "user" and os.geteuid() == 0 else os.geteuid()

    @property
    def job_uid(self) -> int:
        return JOB_UID if self.mode == "uid" else self.agent_uid

    @property
    def secret(self) -> Path:
        return self.data / "secret-key"

    def variables(self, **more: str) -> dict[str, str]:
        closed = "/etc/shadow" if self.agent_uid == 0 else "/etc/hostname"
        known = {"SECRET": str(self.secret), "VICTIM": str(self.victim.pid), "CLOSED": closed}
        return {**known, "SOCKET": str(self.data / "socket"), "ABSTRACT": self.served, **more}

    def run(
        self,
        name: str,
        timeout: float = 60.0,
        *,
        env: dict[str, str] | None = None,
        sandbox: str = contract.NAMESPACES,
        networked: bool = False,
        **limits: int,
    ) -> Outcome:
        """Run the program with isolation, to its end."""
        self.networked = networked
        replica = self.start((HOSTILE / f"{name}.py").read_text(), env=env, SANDBOX=sandbox, **limits)
        try:
            replica.wait(timeout)
            return Outcome("\n".join(self.portal.texts("stdout")), self.portal.last_report())
        finally:
            replica.end()

    def start(
        self, script: str, *, env: dict[str, str] | None = None, name: str = "trainer-0", **variables: Any
    ) -> Replica:
        """Start the script with isolation."""
        replica = Replica(self.data / "attempts" / "attempt" / name, self.portal)
        own_directories = [replica.directory / name for name in ("work", "output", "tmp")]
        for directory in own_directories:
            directory.mkdir(parents=True)
        (replica.directory / "work" / "sitecustomize.py").write_text(
            "import os\nopen('loaded', 'a').write(f'{os.getpid()} {os.getuid()}\\n')\n"
        )
        own(self.data, self.agent_uid)
        for directory in own_directories:
            own(directory, self.job_uid)
        if self.mode == "uid":
            variables["RUN_AS"] = JOB_UID
        if self.group is not None:
            variables["CGROUP"] = self.group
        replica.environment = {
            "PYTHONPATH": str(self.data / "python"),
            contract.USER_ENVIRONMENT: json.dumps({**self.variables(), **(env or {})}),
        }
        with as_user(self.agent_uid), self.in_leaf(), self.on_network(replica.directory.parent):
            return replica.start(script, **{"SANDBOX": "namespaces", **variables})

    def control(self, name: str, timeout: float = 60.0, **env: str) -> str:
        """Return the output of the program when it runs as the agent's user without isolation."""
        own(self.data, self.agent_uid)
        command = [sys.executable, "-B", str(HOSTILE / f"{name}.py")]
        if self.agent_uid != os.geteuid():
            command = [sys.executable, "-m", "tests.unprivileged", *command]
        own_directories = {"TMPDIR": str(self.data), contract.OUTPUT_DIR: str(self.data)}
        known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(unprivileged.PROJECT)}
        with self.in_leaf():
            done = subprocess.run(
                command,
                env={**known, **own_directories, **self.variables(**env)},
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        return done.stdout.decode() + done.stderr.decode()

    @contextlib.contextmanager
    def on_network(self, attempt: Path) -> Iterator[None]:
        """Start agents as the starter does for an attempt with its own network, if the cell has one."""
        if not self.networked:
            yield
            return
        popen, kind = subprocess.Popen, "root" if self.mode == "uid" else "user"

        def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
            return popen([sys.executable, "-m", "tests.networked", str(attempt), kind, *command], **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess, "Popen", start)
            yield

    @contextlib.contextmanager
    def in_leaf(self) -> Iterator[None]:
        """Start processes in the leaf of the delegated cgroup, if the cell has one."""
        if self.group is None:
            yield
            return
        entrance, popen = cgroup.entrance(self.group.parent / "portal"), subprocess.Popen
        with pytest.MonkeyPatch.context() as patch:
            enter = functools.partial(cgroup.enter, entrance)
            patch.setattr(subprocess, "Popen", functools.partial(popen, preexec_fn=enter))
            yield
        os.close(entrance)


@dataclass(frozen=True)
class Outcome:
    output: str
    report: dict[str, Any]


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Start replicas as that user."""
    if uid == os.geteuid():
        yield
        return
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        options["env"] = {**options["env"]}
        return popen([sys.executable, "-m", "tests.unprivileged", *command], **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", start)
        yield


def own(directory: Path, uid: int) -> None:
    if os.geteuid() != 0:
        return
    os.chown(directory, uid, uid)
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            os.chown(Path(parent, name), uid, uid, follow_symlinks=False)


@contextlib.contextmanager
def answering(address: str) -> Iterator[None]:
    """Run a server that trusts every peer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address)
        listener.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listener.accept()
                    with link:
                        link.sendall(b"secret")

        threading.Thread(target=serve, daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


def processes_named(name: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and name.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found
