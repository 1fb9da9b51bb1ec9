"""Client of the portal for the agent of a container: entry numbers, code and data before the start, and the grace
period.

The calls are listed in ``runtime.contract``.
"""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import tarfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast
from urllib.parse import quote, urlsplit

from runtime.agent.delivery.ingest_client import (
    CONNECT_SECONDS,
    MISSING_SECONDS,
    TIMEOUT_SECONDS,
    Missing,
    Persistence,
    Replaced,
    headers_of,
    meaning,
)
from runtime.agent.delivery.spool import EVENTS, LOGS, METRICS

_PIECE = 1024 * 1024
# Bytes of a refusal that are read, and that are shown.
_LONGEST_REFUSAL, _SHOWN = 64 * 1024, 500


class NotFetched(Exception):
    """The portal did not return it. ``over``: it never will, because the attempt is over."""

    def __init__(self, why: str, *, over: bool = False) -> None:
        super().__init__(why)
        self.over = over


class Portal:
    """The calls that one attempt's agent may make. For one thread; every call has a connection of its own."""

    def __init__(
        self,
        url: str,
        attempt_id: str,
        token: str,
        connect: float = CONNECT_SECONDS,
        answer: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        traceparent: str = "",
    ) -> None:
        """Prepare the calls. ``clock`` measures how long the portal has answered that there is no such attempt."""
        self.missing = Persistence(MISSING_SECONDS, clock)
        self._url = urlsplit(url)
        self._base = f"{self._url.path.rstrip('/')}/ingest/v1/attempts/{attempt_id}/"
        self._connect, self._answer_timeout = connect, answer
        self._headers = headers_of(token, traceparent)

    def numbers(self, replica: str, start_number: int) -> Mapping[str, int]:
        """Return the last entry number of each kind that the portal has accepted from the replica.

        The portal accepts nothing more of earlier starts. Raises NotFetched.
        """
        body = json.dumps({"replica": replica, "start_number": start_number}).encode()
        with _Answer(self, "POST", "begin", body) as answer:
            numbers = _object(answer)
            # All three are required: a missing kind would be numbered from 1 again, and its first entries would be
            # lost.
            return {kind: int(numbers[kind]) for kind in (LOGS, METRICS, EVENTS)}

    def grace(self) -> float:
        """Return how many seconds a process has to end after a request to stop. Raises NotFetched."""
        with _Answer(self, "GET", "stop") as answer:
            return float(_object(answer)["grace"])

    def code(self, directory: Path) -> None:
        """Unpack the job's code. Raises NotFetched, OSError."""
        with _Answer(self, "GET", "code") as answer, tarfile.open(fileobj=answer, mode="r|") as tar:
            for entry in tar:
                content = tar.extractfile(entry)
                if content is not None:  # otherwise it is not a file
                    target = directory / _plain(entry.name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content.read())
            # A tar that ends between two files looks complete: the rest is read to detect a cut answer.
            while answer.read(_PIECE):
                pass

    def data(self, directory: Path) -> None:
        """Download the files of the job's dataset that are not present. Raises NotFetched, OSError."""
        with _Answer(self, "GET", "data") as answer:
            listing = [(str(file["path"]), int(file["size"])) for file in _object(answer)["files"]]
        for path, size in listing:
            target = directory / _plain(path)
            if not (target.exists() and target.stat().st_size == size):
                self._file(path, size, target)

    def _file(self, path: str, size: int, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.part")
        with _Answer(self, "GET", f"data/{quote(path)}") as answer, fresh.open("wb") as out:
            shutil.copyfileobj(answer, out, _PIECE)
        if fresh.stat().st_size != size:
            raise NotFetched(f"{path} came with {fresh.stat().st_size} of {size} bytes")
        fresh.rename(target)

    def open(self, method: str, call: str, body: bytes | None) -> tuple[http.client.HTTPConnection, Any]:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=self._connect)
        connection.connect()
        connection.sock.settimeout(self._answer_timeout)
        connection.request(method, self._base + call, body, {**self._headers, "Content-Type": "application/json"})
        return connection, connection.getresponse()


class _Answer:
    """Body of an answer, for reading. Every failure is raised as NotFetched."""

    def __init__(self, portal: Portal, method: str, call: str, body: bytes | None = None) -> None:
        self._portal, self._method, self._call, self._body = portal, method, call, body

    def __enter__(self) -> BinaryIO:
        try:
            self._connection, response = self._portal.open(self._method, self._call, self._body)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise NotFetched(f"the portal did not answer ({error})") from error
        self._response = response
        if response.status != http.HTTPStatus.OK:
            try:
                content = response.read(_LONGEST_REFUSAL)
            except (OSError, http.client.HTTPException):
                content = b""
            self._connection.close()
            text = content[:_SHOWN].decode("utf-8", "replace")
            raise NotFetched(
                f"the portal refused {self._call} ({response.status}): {text}", over=self._is_over(content)
            )
        self._portal.missing.reset()
        return cast(BinaryIO, response)

    def _is_over(self, content: bytes) -> bool:
        """Return whether the portal itself, and no proxy, reports that the attempt is over, or missing for a minute."""
        answer = meaning(self._response.status, content)
        if isinstance(answer, Missing):
            return self._portal.missing.persists()
        self._portal.missing.reset()
        return isinstance(answer, Replaced)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        left = self._response.length
        self._connection.close()
        if isinstance(error, _GARBLED):
            raise NotFetched(f"{self._call} did not come whole ({error})") from error
        if error is None and left:
            raise NotFetched(f"{self._call} did not come whole ({left} bytes are missing)")


# Errors of an answer that was cut or comes from another server, such as a proxy's page with status 200.
_GARBLED = (
    http.client.HTTPException,
    tarfile.TarError,
    ValueError,
    RecursionError,
    TimeoutError,
    ConnectionError,
    ssl.SSLError,
    KeyError,
    TypeError,
)


def _object(answer: BinaryIO) -> Mapping[str, Any]:
    """Return a JSON object. Raises ValueError, TypeError."""
    body = json.load(answer)
    if not isinstance(body, dict):
        raise TypeError("no JSON object")
    return body


def _plain(path: str) -> PurePosixPath:
    """Return a path below a directory; refuse any other."""
    plain = PurePosixPath(path)
    if plain.is_absolute() or ".." in plain.parts:
        raise NotFetched(f"{path!r} is no path below a directory", over=True)
    return plain
