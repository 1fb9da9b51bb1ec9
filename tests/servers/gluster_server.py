"""Private GlusterFS volume, mounted by FUSE. Needs root, /dev/fuse and Debian's glusterfs-server."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from pathlib import Path

from tests.waiting import until

PROGRAMS = ("glusterd", "gluster", "mount.glusterfs")
_UP_SECONDS = 60.0


def missing() -> str:
    """Return what the volume needs and this machine lacks; empty if nothing."""
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    if lacking:
        return f"there is no {lacking[0]} (Debian: apt-get install glusterfs-server)"
    return "" if Path("/dev/fuse").exists() else "there is no /dev/fuse"


def own_address() -> str:
    """Return an address of this machine other than loopback, which glusterd refuses. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


class Volume:
    """Volume below a directory. ``start`` creates and mounts it, with immediate quotas; ``remove`` removes
    everything."""

    def __init__(self, directory: Path, name: str) -> None:
        self.mount = directory / "mount"
        self._brick = directory / "brick"
        self._name = name
        self._address = own_address()
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.mount.mkdir(parents=True)
        self._brick.mkdir()
        if not self._is_up():
            quiet = subprocess.DEVNULL
            command = ["glusterd", "--no-daemon"]
            self._daemon = subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True)
        until("glusterd is up", self._is_up, _UP_SECONDS, every=0.1)
        self._gluster("volume", "create", self._name, f"{self._address}:{self._brick}", "force")
        self._gluster("volume", "start", self._name)
        self._gluster("volume", "quota", self._name, "enable")
        for timeout in ("soft-timeout", "hard-timeout"):
            self._gluster("volume", "quota", self._name, timeout, "0")
        subprocess.run(["mount", "-t", "glusterfs", f"{self._address}:/{self._name}", str(self.mount)], check=True)

    def limit(self, folder: str, size: str) -> None:
        """Limit a folder of the volume, such as ``blobs/7``, to ``size``, such as ``1MB``."""
        self._gluster("volume", "quota", self._name, "limit-usage", f"/{folder}", size)

    def remove(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.mount)], capture_output=True)
        for deed in ("stop", "delete"):
            with contextlib.suppress(subprocess.CalledProcessError):
                self._gluster("volume", deed, self._name)
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait(30)

    def _is_up(self) -> bool:
        return subprocess.run(["gluster", "--mode=script", "volume", "list"], capture_output=True).returncode == 0

    def _gluster(self, *words: str) -> None:
        done = subprocess.run(["gluster", "--mode=script", *words], capture_output=True, text=True)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
