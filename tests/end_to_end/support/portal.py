"""A whole portal, started like by an operator: ``manage.py up`` with its own data directory and port."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from regatta import Client
from tests import migrated_database, unprivileged
from tests.end_to_end.support import processes
from tests.end_to_end.support.processes import Process
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
ADMIN, PASSWORD = "admin", "correct horse battery staple"
READY_SECONDS = 120.0
_OF_REPLICAS = ("runtime.agent", "runtime.isolation.launcher", "runtime.isolation.network")
STOP_SECONDS = 10.0


class RunningPortal:
    """``start``, then ``interrupt`` (like Ctrl-C) or ``crash`` (SIGKILL to all processes of the portal), and again.

    Its first start finds a migrated database, which saves seven seconds; ``tests/portal/management/test_up.py`` and
    ``ordinary`` portals start without one.

    ``ordinary``: the portal runs as an ordinary user, who owns the directory, even if the tests run as root.
    """

    def __init__(self, directory: Path, *, host: str = "127.0.0.1", ordinary: bool = False, **settings: str) -> None:
        self.directory = directory
        self._as_user = [sys.executable, "-m", "tests.unprivileged"] if ordinary and os.geteuid() == 0 else []
        self.port = free_port()
        self.address = f"http://{host}:{self.port}"
        self.output = directory / "up.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REGATTA_", "DJANGO_"))}
        ours = {"REGATTA_DATA_DIR": str(directory), "PORT": str(self.port), "REGATTA_ADMIN_PASSWORD": PASSWORD}
        ours |= {"REGATTA_HOST": host, "REGATTA_INGEST_URL": self.address}
        self._environment = {**inherited, **ours, **settings}
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._token = ""

    # --- start and stop ----------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start it and wait for its ready line."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._as_user:
            os.chown(self.directory, unprivileged.UID, unprivileged.UID)
        elif not (self.directory / "regatta.sqlite3").exists() and "REGATTA_DATABASE_URL" not in self._environment:
            migrated_database.provide_for_portal(self.directory / "regatta.sqlite3")
        offset = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self._supervisor = subprocess.Popen(
                [*self._as_user, sys.executable, "manage.py", "up"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            until("the portal says that it is ready", lambda: self._ready(offset), READY_SECONDS, every=0.05)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.printed()[offset:][-3000:]}") from None

    def _ready(self, offset: int) -> bool:
        printed = self.printed()[offset:]
        if self._supervisor is not None and self._supervisor.poll() is not None:
            raise AssertionError(f"`manage.py up` ended with {self._supervisor.returncode}:\n{printed}")
        return bool(re.search(rf"{re.escape(self.address)}\b", printed)) and self._answers()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.address}/api/v1/me", timeout=5).status_code == 401
        except httpx.TransportError:
            return False

    def printed(self) -> str:
        return self.output.read_bytes().decode(errors="replace")

    @contextmanager
    def open(self) -> Iterator[RunningPortal]:
        """Run it inside the block; at the end it is stopped like with Ctrl-C, and no process may be left."""
        try:
            self.start()
            yield self
            self.remove()
        finally:
            self.kill_all()

    def interrupt(self) -> float:
        """Send Ctrl-C. Returns the seconds until no process is left; fails if one is."""
        assert self._supervisor is not None
        began = time.monotonic()
        self._supervisor.send_signal(signal.SIGINT)
        self._supervisor.wait(STOP_SECONDS + 5)
        left = self.processes()
        took = time.monotonic() - began
        assert left == [], f"left behind: {[process.command for process in left]}"
        return took

    def crash(self) -> None:
        """Send SIGKILL to the supervisor and its children; the agents and their processes keep running."""
        assert self._supervisor is not None
        victims = [process for process in self.processes() if not is_of_a_replica(process)]
        processes.kill(self._supervisor.pid)
        for victim in victims:
            processes.kill(victim.pid)
        self._supervisor.wait(10)
        until("the portal is dead", lambda: not [p for p in self.processes() if not is_of_a_replica(p)], 10)

    def manage(self, *arguments: str) -> str:
        """Run a command of ``manage.py`` with its settings; return what it printed."""
        command = [*self._as_user, sys.executable, "manage.py", *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, timeout=READY_SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def remove(self) -> None:
        """End it in any state, and fail if an orderly end leaves something."""
        try:
            if self._supervisor is not None and self._supervisor.poll() is None:
                self.interrupt()
        finally:
            self.kill_all()

    def kill_all(self) -> None:
        """Kill everything that the tests started, however they ended."""

        def are_gone() -> bool:
            for process in self.processes():
                processes.kill(process.pid)
            return not self.processes()

        until("what the tests started has ended", are_gone, every=0.1)

    def processes(self) -> list[Process]:
        return processes.of(self.directory)

    def replica(self, job_id: str, name: str) -> list[Process]:
        """Return the processes of a replica that run its code, without its agent."""
        return [p for p in self.processes() if is_code_of(p, job_id, name)]

    def attempts(self, job_id: str) -> list[Path]:
        """Return the directories of the job's attempts, which exist until each has ended."""
        plans = (self.directory / "attempts").glob("*/plan.json")
        return [plan.parent for plan in plans if json.loads(plan.read_text())["ref"][0] == job_id]

    def release(self, job_id: str) -> None:
        """Let a slow job make its remaining steps without a pause."""
        ours = (one.environment for one in self.processes() if one.environment.get("REGATTA_JOB_ID") == job_id)
        # For every replica of the attempt: the code of some may not run yet.
        for attempt in {Path(one["REGATTA_WORK_DIR"]).parent.parent for one in ours if "REGATTA_WORK_DIR" in one}:
            for work in attempt.glob("*/work"):
                (work / "enough").touch()

    # --- clients -----------------------------------------------------------------------------------------------------
    def client(self, username: str = ADMIN, password: str = PASSWORD) -> Client:
        """Return a signed-in client."""
        return Client(self.address, self.token(username, password))

    def token(self, username: str = ADMIN, password: str = PASSWORD) -> str:
        if username == ADMIN and self._token:
            return self._token
        with Client(self.address) as portal:
            token = portal.tokens.sign_in(username, password, "end to end")
        self._token = token if username == ADMIN else self._token
        return token

    def http(self, token: str | None = None) -> httpx.Client:
        """Return a plain HTTP client with the token of an account, for what the client hides."""
        headers = {"Authorization": f"Bearer {self.token() if token is None else token}"}
        return httpx.Client(base_url=self.address, headers=headers if token != "" else {}, timeout=30)


def is_of_a_replica(process: Process) -> bool:
    """Return whether it is an agent or started by one: the launcher of the isolation has no environment."""
    return "REGATTA_REPLICA" in process.environment or any(name in process.command for name in _OF_REPLICAS)


def is_code_of(process: Process, job_id: str, name: str) -> bool:
    environment = process.environment
    ours = environment.get("REGATTA_JOB_ID") == job_id and environment.get("REGATTA_REPLICA") == name
    return ours and "REGATTA_INGEST_TOKEN" not in environment and "runtime.agent" not in process.command
