"""D3 and D4: an upload to the portal on this machine, with all checksums.

D3  2 GB by the command until the version is sealed, compared with ``curl -T`` to nginx (with WebDAV) on the same disk,
    in turns; without nginx there is no peer. Ours is synced to disk when it is answered, nginx's is in the page cache.
D4  Memory growth of the portal (each of its processes) and the command over idle while 10 GB are uploaded. The portal
    is a new one, and idle memory is read before the first request. The file is sparse, but it is read and sent in
    full.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

from bench.environment.servers import disk
from bench.pages import start as portal
from bench.pages.start import Running
from bench.report import Row, at_most, beside
from bench.scale import scale

MIB = 1 << 20
UPLOAD, LARGE = scale(2048, 16) * MIB, scale(10240, 64) * MIB
GOAL, MEMORY_GOAL = 0.5, 150.0
ROUNDS = scale(5, 1)
_POLL_SECONDS = 0.1
_SETTLE_SECONDS = 5.0
_SCRIPT = """\
import sys
from regatta import Client
with Client(sys.argv[1], sys.argv[2]) as portal:
    portal.namespaces.default()
    print("ready", flush=True)
    input()
    version = portal.datasets.upload(f"{portal.namespaces.default()}/bench", sys.argv[3], fresh=True)
    assert version.state == "sealed", version.why
"""
_NGINX = """\
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_max_body_size 0;
  client_body_temp_path {folder}/body;
  server {{
    listen 127.0.0.1:{port};
    location / {{ root {folder}/files; dav_methods PUT; }}
  }}
}}
"""


def measure() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="regatta-bench-", dir=disk()) as scratch:
        folder = Path(scratch)
        with _portal(_made(folder / "data")) as (running, token, _idle):
            file = _file(folder / "upload.bin", UPLOAD)
            rounds = [_round(running, token, folder, file) for _ in range(ROUNDS)]
            file.unlink()
        shutil.rmtree(folder / "data")
        ours, peers = (median(speeds) for speeds in zip(*rounds, strict=True))
        yield _row(ours, peers or None)
        with _portal(_made(folder / "data")) as (running, token, idle):
            file = folder / "large.bin"
            with file.open("wb") as stream:
                stream.truncate(LARGE)
            _seconds, memory = _upload(running, token, file, idle)
    for process, most in memory.items():
        yield at_most("D4", f"{process} beyond idle, {LARGE / 1024**3:g} GB: MB", most, MEMORY_GOAL)


@contextlib.contextmanager
def _portal(data: Path) -> Iterator[tuple[Running, str, Mapping[str, float]]]:
    """Provide a new portal, a token of its admin, and the memory of its processes before any request."""
    with portal.running_here(data) as running:
        time.sleep(_SETTLE_SECONDS)
        idle = _portal_memory(running)
        with portal.signed_in(running) as http:
            namespace = portal.namespace_of(http)
            portal.answer_of(http.put(f"/api/v1/namespaces/{namespace}/quota", json={"storage": 1 << 40}))
            yield running, http.headers["Authorization"].removeprefix("Bearer "), idle


def _portal_memory(running: Running) -> dict[str, float]:
    """Return the resident MB of each process of the portal, by its function."""
    web = _web_process(int(running.address.rpartition(":")[2]))
    parent = _parent(web)
    found = {"web process": _memory(web), "supervisor": _memory(parent)}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(stat.parent.name)
            words = (stat.parent / "cmdline").read_bytes().split(b"\0")
            for command, name in {b"work": "worker", b"sweep": "sweep"}.items():
                if command in words and _parent(pid) == parent:
                    found[name] = found.get(name, 0.0) + _memory(pid)
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _round(running: Running, token: str, folder: Path, file: Path) -> tuple[float, float]:
    """Return MB per second of ours and of the peer; 0 without one. Dirty pages are written before each."""
    # Content that the portal already has would not be sent again.
    with file.open("r+b") as stream:
        stream.write(os.urandom(16))
    os.sync()
    seconds, _memory = _upload(running, token, file)
    os.sync()
    peer = _to_nginx(folder, file)
    return UPLOAD / seconds / 1e6, peer or 0.0


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _file(path: Path, size: int) -> Path:
    """Create a file with repeating bytes in which no two parts are equal."""
    block = os.urandom(MIB)
    with path.open("wb") as file:
        for number in range(size // MIB):
            file.write(number.to_bytes(8, "big") + block[8:])
    return path


def _row(value: float, peer: float | None) -> Row:
    case = f"upload of {UPLOAD / 1024**3:g} GB, beside curl to nginx: MB/s"
    return beside("D3", case, value, peer, GOAL, note="" if peer else "the peer nginx or curl is missing")


# --- Portal ----------------------------------------------------------------------------------------------------------
def _upload(
    running: Running, token: str, file: Path, idle: Mapping[str, float] | None = None
) -> tuple[float, dict[str, float]]:
    """Return the seconds until the version is sealed, and the peak memory of command and portal beyond idle, in MB."""
    command = [sys.executable, "-c", _SCRIPT, running.address, token, str(file)]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    client.stdout.readline()
    started, most = _memory(client.pid), {"command": 0.0}
    begun = time.monotonic()
    with client.stdin, client.stdout, _looking(lambda: _note(most, running, idle, client.pid, started)):
        client.stdin.write(b"\n")
        client.stdin.flush()
        if client.wait():
            raise RuntimeError("The upload failed.")
    return time.monotonic() - begun, most


def _note(
    most: dict[str, float], running: Running, idle: Mapping[str, float] | None, client: int, started: float
) -> None:
    most["command"] = max(most["command"], _memory(client) - started)
    if idle is not None:
        now = _portal_memory(running)
        for process, before in idle.items():
            most[process] = max(most.get(process, 0.0), now.get(process, 0.0) - before)


@contextlib.contextmanager
def _looking(look: Callable[[], object]) -> Iterator[None]:
    over = threading.Event()

    def loop() -> None:
        while not over.wait(_POLL_SECONDS):
            with contextlib.suppress(OSError, ValueError):
                look()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _memory(pid: int) -> float:
    """Return the resident memory in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(pid)


def _web_process(port: int) -> int:
    """Return the process that listens on the port."""
    inode = next(
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
    )
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if descriptor.readlink().name == f"socket:[{inode}]":
                found = int(descriptor.parts[2])
                if b"serve" in Path(f"/proc/{found}/cmdline").read_bytes():
                    return found
    raise RuntimeError(f"Nobody listens on port {port}.")


# --- Peer ------------------------------------------------------------------------------------------------------------
def _to_nginx(folder: Path, file: Path) -> float | None:
    """Return MB per second; None without nginx or curl."""
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if nginx is None or shutil.which("curl") is None:
        return None
    place = _made(folder / "nginx")
    (place / "files").mkdir(mode=0o777)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    configuration = place / "nginx.conf"
    configuration.write_text(_NGINX.format(folder=place, port=port))
    process = ["-g", "daemon off; user root;" if os.getuid() == 0 else "daemon off;"]
    server = subprocess.Popen([nginx, "-c", str(configuration), "-p", str(place), *process], stderr=subprocess.DEVNULL)
    try:
        begun = _when_up(port)
        target = f"http://127.0.0.1:{port}/upload.bin"
        subprocess.run(["curl", "--silent", "--show-error", "--fail", "-T", str(file), target], check=True)
        seconds = time.monotonic() - begun
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(place)
    return file.stat().st_size / seconds / 1e6


def _when_up(port: int) -> float:
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return time.monotonic()
        time.sleep(0.05)
    raise RuntimeError("nginx does not come up.")
