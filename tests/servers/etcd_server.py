"""Private etcd for tests, on free ports of the loopback, with its data in a directory of the test."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from runtime.coordination.etcd_address import EtcdAddress
from tests.ports import free_port
from tests.waiting import until

START_SECONDS = 20.0


class EtcdServer:
    """One server. ``peers`` maps the names of all members of its cluster, itself included, to their peer addresses."""

    def __init__(
        self,
        directory: Path,
        *arguments: str,
        name: str = "single",
        peers: dict[str, str] | None = None,
        port: int | None = None,
        scheme: str = "http",
        host: str = "127.0.0.1",
    ) -> None:
        self._host = host
        self.port = port or free_port()
        self._health_port = free_port()
        self.password = "s3cret/@"
        peers = peers or {name: peer_address()}
        self._directory = directory / name
        self._command = [
            *("etcd", "--name", name, "--data-dir", str(self._directory)),
            *("--listen-client-urls", f"{scheme}://{host}:{self.port}"),
            *("--advertise-client-urls", f"{scheme}://{host}:{self.port}"),
            *("--listen-metrics-urls", f"http://127.0.0.1:{self._health_port}"),
            *("--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name]),
            *("--initial-cluster", ",".join(f"{member}={address}" for member, address in peers.items())),
            # Leases of one second, and a quick leader election.
            *("--heartbeat-interval", "50", "--election-timeout", "250", "--log-level", "error"),
            *arguments,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def server(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def url(self) -> str:
        return f"etcd://{self.server}"

    def url_of_root(self, prefix: str = "") -> str:
        """Return the address with the account ``root``, for keys below the prefix."""
        return EtcdAddress((self.server,), prefix, "root", self.password).url

    def start(self, *, wait: bool = True) -> None:
        self._begin()
        if wait:
            self.wait()

    def _begin(self) -> None:
        with (self._directory.parent / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until it answers. Starts it again if it ended because another port search held its port for a moment."""

        def is_up() -> bool:
            if self._process and self._process.poll() is not None:
                self._begin()
            return self._is_healthy()

        until("etcd answers", is_up, START_SECONDS, every=0.05, story=(self._directory.parent / "etcd.log").read_text)

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Suspend it: it keeps its connections and answers nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)  # all of its threads have stopped

    def ctl(self, *arguments: str, account: str = "") -> str:
        """Return the output of etcdctl."""
        command = [
            "etcdctl",
            "--command-timeout=15s",
            "--dial-timeout=15s",
            "--endpoints",
            self.server,
            *(("--user", account) if account else ()),
            *arguments,
        ]
        environment = {"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin:/usr/local/bin"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def compact(self) -> None:
        """Drop all history up to now."""
        status = json.loads(self.ctl("endpoint", "status", "-w", "json"))
        self.ctl("compact", str(status[0]["Status"]["header"]["revision"]))

    def switch_authentication_on(self) -> None:
        """Enable authentication: from now on only ``root``, with ``password``, has full access."""
        self.ctl("user", "add", f"root:{self.password}")
        self.ctl("user", "grant-role", "root", "root")
        self.ctl("auth", "enable")

    def _is_healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._health_port, timeout=1.0)
        try:
            connection.request("GET", "/health")
            return b'"health":"true"' in connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate for 127.0.0.1, and its key."""
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=etcd -addext subjectAltName=IP:127.0.0.1"
    command += f" -out {certificate} -keyout {key}"
    subprocess.run(command.split(), check=True, capture_output=True, timeout=20)
    return certificate, key


def cluster(directory: Path, members: Sequence[str]) -> dict[str, EtcdServer]:
    """Start a cluster. Returns its servers by name."""
    peers = {name: peer_address() for name in members}
    servers = {name: EtcdServer(directory, name=name, peers=peers) for name in members}
    for server in servers.values():
        server.start(wait=False)
    for server in servers.values():
        server.wait()
    return servers


def peer_address() -> str:
    return f"http://127.0.0.1:{free_port()}"
