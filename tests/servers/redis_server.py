"""Private Redis for tests, on a free port of the loopback: with a password, and without persistence."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from tests.ports import free_port
from tests.waiting import until

START_SECONDS = 20.0
PASSWORD = "s3cret-of-tests"


class RedisServer:
    """One server. Its data is in memory; its log is in the directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self.password = PASSWORD
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: int = 1, password: str = "") -> str:
        """Return the address of a database as in REGATTA_REDIS_URL."""
        return f"redis://:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def client(self, database: int = 1) -> Redis:
        return Redis.from_url(self.url(database))

    def start(self) -> None:
        self._begin()
        until("Redis answers", self._is_up, START_SECONDS, every=0.02, story=self._log.read_text)

    @property
    def _log(self) -> Path:
        return self._directory / "redis.log"

    def _begin(self) -> None:
        # The password is not in the command: all accounts of the machine can read that.
        settings = (f"port {self.port}", "bind 127.0.0.1", f"requirepass {self.password}", f"dir {self._directory}")
        text = "\n".join((*settings, 'save ""', "appendonly no", ""))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(["redis-server", "-"], stdin=subprocess.PIPE, stdout=log, stderr=log)
        assert self._process.stdin
        self._process.stdin.write(text.encode())
        self._process.stdin.close()

    def _is_up(self) -> bool:
        if self._process and self._process.poll() is not None:
            self._begin()  # another port search held its port for a moment
        try:
            return bool(self.client().ping())
        except RedisError:
            return False

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Suspend it: the kernel accepts connections for it, and it answers nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def fill(self) -> None:
        """Let it refuse everything that needs memory, like a Redis that is full of keys that it may not evict."""
        self.client().config_set("maxmemory-policy", "noeviction")
        self.client().config_set("maxmemory", 1)

    def relieve(self) -> None:
        """Undo ``fill``."""
        self.client().config_set("maxmemory", 0)

    def empty(self) -> None:
        """Undo ``fill``, and remove all keys."""
        self.relieve()
        self.client().flushall()
