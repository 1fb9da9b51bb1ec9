"""The coordination gateway as a process of its own, before a private etcd."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from runtime.coordination.gateway import settings
from tests.ports import free_port
from tests.waiting import until

ROOT = Path(__file__).parents[2]
KEY = "k" * 32
START_SECONDS = 20.0


class CoordinationGateway:
    """One replica. ``site`` is the address of etcd without an account."""

    def __init__(self, site: str, directory: Path, **environment: str) -> None:
        self.port, self.health_port = free_port(), free_port()
        self._log = directory / f"gateway-{self.port}.log"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")},
            settings.SERVERS: site,
            settings.KEY: KEY,
            settings.LISTEN: f"127.0.0.1:{self.port}",
            settings.HEALTH: f"127.0.0.1:{self.health_port}",
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "runtime.coordination.gateway"]
            self._process = subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=log, stderr=log)
        until("the gateway answers", self._is_healthy, START_SECONDS, every=0.05, story=self._log.read_text)

    def stop(self) -> int:
        """End it as Kubernetes does. Return its exit code."""
        assert self._process
        self._process.terminate()
        return self._process.wait(60)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health_port}/healthz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
