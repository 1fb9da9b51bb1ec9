"""A whole attempt of real processes (master, parameter servers, trainers) with one stand-in for all their agents."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from runtime import contract, coordination
from runtime.contract import MASTER, PSERVER, TRAINER, Member

ROOT = Path(__file__).resolve().parents[3]


class _Replica:
    def __init__(self, process: subprocess.Popen[str], link: socket.socket) -> None:
        self.process = process
        self.link = link
        self.points: list[tuple[float, int, str, float]] = []


class Attempt:
    """Starts the processes of one attempt in ``directory`` and passes membership on."""

    def __init__(self, directory: Path, script: Path, number: int = 1, **variables: str) -> None:
        self.output = directory / "out"
        self.output.mkdir(parents=True)
        self._directory = directory
        self._job = variables.get(contract.JOB_ID, "job")
        self._number = number
        self._script = script
        self._variables = variables
        self._url = f"sqlite:///{directory / 'coordination.db'}"
        self._store = coordination.connect(self._url)
        self._lock = threading.Lock()
        self._members: dict[str, Member] = {}
        self._revision = 0
        self.replicas: dict[str, _Replica] = {}

    def start(self, role: str, index: int) -> None:
        name = f"{role}-{index}"
        near, far = socket.socketpair()
        command = [str(self._script)] if role == TRAINER else ["-m", f"runtime.{role}"]
        with (self._directory / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.output,
                env=self._environment(role, index, far.fileno()),
                pass_fds=[far.fileno()],
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        far.close()
        replica = self.replicas[name] = _Replica(process, near)
        threading.Thread(target=self._listen, args=(role, index, replica), daemon=True).start()

    def run(self, trainers: int = 2, pservers: int = 1, deadline: float = 60.0) -> None:
        """Start everything and wait for the trainers."""
        self.start(MASTER, 0)
        for index in range(pservers):
            self.start(PSERVER, index)
        for index in range(trainers):
            self.start(TRAINER, index)
        give_up = time.monotonic() + deadline
        for index in range(trainers):
            self.wait(f"{TRAINER}-{index}", give_up - time.monotonic())

    def wait(self, name: str, seconds: float) -> int:
        return self.replicas[name].process.wait(seconds)

    def kill(self) -> None:
        """Kill all processes at once."""
        for replica in self.replicas.values():
            replica.process.kill()
        for replica in self.replicas.values():
            replica.process.wait()

    def members(self) -> list[Member]:
        with self._lock:
            return list(self._members.values())

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    def close(self) -> None:
        for replica in self.replicas.values():
            if replica.process.poll() is None:
                replica.process.send_signal(signal.SIGTERM)
        for replica in self.replicas.values():
            try:
                replica.process.wait(60)
            except subprocess.TimeoutExpired:
                replica.process.kill()
                replica.process.wait()
            replica.link.close()

    def _environment(self, role: str, index: int, descriptor: int) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            contract.JOB_ID: self._job,
            contract.WIRE_SECRET: "0123456789abcdef" * 4,
            contract.ATTEMPT: str(self._number),
            contract.ROLE: role,
            contract.INDEX: str(index),
            contract.AGENT_FD: str(descriptor),
            contract.OUTPUT_DIR: str(self.output),
            contract.COORDINATION: "" if role == TRAINER else self._url,
            **self._variables,
        }

    def _listen(self, role: str, index: int, replica: _Replica) -> None:
        try:
            for line in replica.link.makefile("rb"):
                self._take(role, index, replica, json.loads(line))
        except OSError:
            pass
        replica.process.wait()  # as an agent does: what the process had left to send is being sent then
        with self._lock:
            self._members.pop(f"{role}-{index}", None)
            self._spread()

    def _take(self, role: str, index: int, replica: _Replica, message: dict[str, Any]) -> None:
        if message["op"] == contract.METRICS:
            replica.points += message["points"]
        elif message["op"] == contract.HELLO:
            with self._lock:
                key = contract.member_key(self._job, self._number, role, index)
                self._store.delete(key)  # the lease of an earlier process in its place has expired
                entry = self._store.put(key, b"{}")
                member = Member(role, index, entry.create_revision, message["address"])
                self._members[member.name] = member
                self._spread()

    def _spread(self) -> None:
        self._revision += 1
        members = [member.to_json() for member in self._members.values()]
        body = {"op": contract.MEMBERS, "revision": self._revision, "members": members}
        for replica in self.replicas.values():
            try:
                replica.link.sendall(json.dumps(body).encode() + b"\n")
            except OSError:
                continue
