"""A private image registry: Debian's docker-registry, as a process."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tests.waiting import until

USER, PASSWORD = "builder", "let-me-push"
_PASSWORD_HASH = "$2b$05$zZ/UzhXQKhM2IvlvJZ671uXiOMTymIHeFgY8QZ13pb.usqdrAao/u"  # bcrypt's


class ImageRegistry:
    """``host``: address and port, by default on the loopback interface. A guarded registry requires a password."""

    def __init__(self, folder: Path, *, guarded: bool = False, address: str = "127.0.0.1") -> None:
        self._folder, self._guarded = folder, guarded
        with socket.create_server((address, 0)) as free:
            self.host = f"{address}:{free.getsockname()[1]}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        config = {
            "version": 0.1,
            "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(self._folder / "blobs")}},
            "http": {"addr": self.host},
        }
        if self._guarded:
            config["auth"] = {"htpasswd": {"realm": "tests", "path": str(self._write_password())}}
        (self._folder / "registry.yml").write_text(json.dumps(config))
        self._process = subprocess.Popen(
            ["docker-registry", "serve", str(self._folder / "registry.yml")],
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / "registry.log").open("wb"),
        )
        log = self._folder / "registry.log"
        until("the registry answers", lambda: self._answers() or self._process.poll() is not None, story=log.read_text)
        assert self._process.poll() is None, log.read_text()

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self.host}/v2/", timeout=2).close()
        except urllib.error.HTTPError as refused:
            return refused.code == 401
        except OSError:
            return False
        return True

    def _write_password(self) -> Path:
        path = self._folder / "htpasswd"
        path.write_text(f"{USER}:{_PASSWORD_HASH}\n")
        return path

    def credentials(self) -> Path:
        """Write a Docker configuration file with the registry's password; return its path."""
        path = self._folder / "config.json"
        auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        path.write_text(json.dumps({"auths": {self.host: {"auth": auth}}}))
        return path

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
