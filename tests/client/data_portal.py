"""Fake portal that accepts and returns datasets, and can break connections on request."""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
import zlib
from collections.abc import Callable
from typing import Any

import httpx

from tests.client.portal import ok, problem

PART = 1000
_VERSION = r"/api/v1/datasets/(?P<set>[^/]+/[^/]+)/versions/(?P<version>\d+)"


class DataPortal(httpx.BaseTransport):
    """Fake portal for datasets.

    ``files`` is the received content by path. ``sent`` counts the bytes of parts. ``breaks`` decides for each request
    whether the connection breaks before it is accepted.
    """

    def __init__(self, breaks: Callable[[], bool] = lambda: False) -> None:
        self.files: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.state = ""
        self.sent = 0
        self._breaks = breaks
        self._lock = threading.Lock()
        self._routes: list[tuple[str, str, Callable[..., httpx.Response]]] = [
            ("GET", r"/api/v1/datasets/[^/]+/[^/]+", self._get),
            ("POST", r"/api/v1/namespaces/[^/]+/datasets", self._get),
            ("POST", r"/api/v1/datasets/[^/]+/[^/]+/versions", self._open),
            ("GET", _VERSION, self._version),
            ("POST", f"{_VERSION}/files", self._begin),
            ("PUT", rf"{_VERSION}/files/(?P<file>[^/]+)/parts/(?P<part>\d+)", self._part),
            ("POST", f"{_VERSION}/files/(?P<file>[^/]+)/complete", self._complete),
            ("DELETE", f"{_VERSION}/files/(?P<file>[^/]+)", self._take_out),
            ("POST", f"{_VERSION}/seal", self._seal),
            ("GET", f"{_VERSION}/files", self._files),
            ("GET", f"{_VERSION}/content/(?P<path>.+)", self._content),
        ]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        with self._lock:
            if self._breaks():
                raise httpx.ReadError("the line was cut")
            for method, pattern, answer in self._routes:
                if method == request.method and (match := re.fullmatch(pattern, request.url.path)):
                    named = {key: value for key, value in match.groupdict().items() if key not in ("set", "version")}
                    return answer(request, **named)
        return problem(404, "not_found", f"Nothing at {request.url.path}.")

    def _get(self, request: httpx.Request) -> httpx.Response:
        versions = [self._detail()] if self.state else []
        latest = 1 if self.state == "sealed" else None
        return ok({"namespace": "ada", "name": "mine", "versions": versions, "latest": latest})

    def _detail(self) -> dict[str, Any]:
        size = sum(map(len, self.files.values()))
        return {"number": 1, "state": self.state, "why": "", "files": len(self.files), "size": size, "records": None}

    def _open(self, request: httpx.Request) -> httpx.Response:
        self.state = "open"
        return ok(self._detail(), 201)

    def _version(self, request: httpx.Request) -> httpx.Response:
        return ok(self._detail())

    def _begin(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        path, size, digest = body["path"], body["size"], body["sha256"]
        there = self.files.get(path)
        if there is not None and (len(there) != size or (digest and _sha256(there) != digest)):
            return problem(409, "exists", "There is another file of that name.", id=path.encode().hex())
        if digest and digest != self.digests.get(path, digest):
            self.parts[path] = {}
        self.digests[path] = digest or self.digests.get(path, "")
        self.parts.setdefault(path, {})
        same_size = size and any(len(content) == size for content in self.files.values())
        return ok({**self._upload(path, size), "hash_first": bool(same_size and not digest)}, 201)

    def _upload(self, path: str, size: int) -> dict[str, Any]:
        described = {"id": path.encode().hex(), "path": path, "size": size, "part_size": PART}
        there = sorted(self.parts[path].items())
        checksums = {"parts": [part for part, _ in there], "checksums": [_crc32(content) for _, content in there]}
        return {**described, **checksums, "complete": path in self.files}

    def _part(self, request: httpx.Request, file: str, part: str) -> httpx.Response:
        if _crc32(request.content) != request.headers["X-Content-CRC32"]:
            return problem(422, "checksum_mismatch", "The part is damaged.")
        self.sent += len(request.content)
        self.parts[bytes.fromhex(file).decode()][int(part)] = request.content
        return ok({"parts": []})

    def _complete(self, request: httpx.Request, file: str) -> httpx.Response:
        path = bytes.fromhex(file).decode()
        whole = b"".join(content for _, content in sorted(self.parts[path].items()))
        if _sha256(whole) != json.loads(request.content)["sha256"]:
            self.parts[path] = {}
            return problem(422, "checksum_mismatch", "The file is not what it was said to be.")
        self.files[path] = whole
        return ok(self._upload(path, len(whole)))

    def _take_out(self, request: httpx.Request, file: str) -> httpx.Response:
        path = bytes.fromhex(file).decode()
        for of_files in (self.files, self.parts, self.digests):
            of_files.pop(path, None)
        return httpx.Response(204)

    def _seal(self, request: httpx.Request) -> httpx.Response:
        self.state = "sealed"
        return ok(self._detail(), 202)

    def _files(self, request: httpx.Request) -> httpx.Response:
        found = [
            {"path": path, "size": len(content), "sha256": _sha256(content), "records": None}
            for path, content in sorted(self.files.items())
        ]
        return ok({"results": found, "next": None})

    def _content(self, request: httpx.Request, path: str) -> httpx.Response:
        content = self.files[path]
        start = int(request.headers.get("Range", "bytes=0-")[len("bytes=") : -1])
        if not start:
            return httpx.Response(200, content=content)
        headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        return httpx.Response(206, content=content[start:], headers=headers)


def _crc32(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def at_random(seed: int, share: float) -> Callable[[], bool]:
    """Return a function that is true for a share of all requests, the same ones for a seed."""
    dice = random.Random(seed)
    return lambda: dice.random() < share
