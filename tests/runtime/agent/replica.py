"""A replica under an agent, as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime import contract
from runtime.contract import ReplicaState
from tests.runtime.agent.ingest_server import IngestServer

PROJECT = Path(contract.__file__).parent.parent


@dataclass
class Replica:
    """One agent with its own script and its own directory."""

    directory: Path
    portal: IngestServer
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        return self.directory / "output"

    @property
    def state(self) -> ReplicaState | None:
        return ReplicaState.load(self.directory)

    @property
    def store(self) -> str:
        return f"sqlite:///{self.directory.parent / 'coordination.sqlite3'}"

    def start(
        self,
        script: str,
        command: Sequence[str] = (sys.executable, "train.py"),
        agent: Sequence[str] = ("-m", "runtime.agent"),
        **variables: Any,
    ) -> Replica:
        """Start the script under an agent. ``variables`` are the contract's, by their Python names."""
        for name in ("work", "output", "tmp"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        (self.directory / "work" / "train.py").write_text(textwrap.dedent(script))
        self.process = subprocess.Popen(
            [sys.executable, *agent, "--", *command],
            env=self._environment(variables),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def deliver(self) -> int:
        """Run the agent that delivers the entries left by one that is gone. Return its exit code."""
        lock = contract.take_lock(self.directory)
        assert lock is not None
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runtime.agent", "--deliver"],
            env=self._environment({"LOCK_FD": lock}),
            stderr=subprocess.PIPE,
            pass_fds=[lock],
        )
        os.close(lock)
        return self.wait()

    def run(self, script: str, timeout: float = 20.0, **variables: Any) -> dict[str, Any]:
        """Run the script to its end. Return the last report."""
        self.start(script, **variables).wait(timeout)
        return self.portal.last_report()

    def wait(self, timeout: float = 20.0) -> int:
        assert self.process is not None
        return self.process.wait(timeout)

    def ask_to_stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def complaint(self) -> str:
        assert self.process is not None
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()

    def _environment(self, variables: dict[str, Any]) -> dict[str, str]:
        contractual = {getattr(contract, name): str(value) for name, value in variables.items()}
        return {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(PROJECT),
            contract.JOB_ID: "job",
            contract.ATTEMPT_ID: "attempt",
            contract.ROLE: contract.TRAINER,
            contract.REPLICA: "trainer-0",
            contract.INGEST_URL: self.portal.url,
            contract.INGEST_TOKEN: "secret-token",
            contract.COORDINATION: self.store,
            contract.REPLICA_DIR: str(self.directory),
            contract.WORK_DIR: str(self.directory / "work"),
            contract.OUTPUT_DIR: str(self.output),
            contract.GRACE_SECONDS: "5",
            **self.environment,
            **contractual,
        }
