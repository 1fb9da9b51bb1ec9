"""Small real portal for the agent's tests: the ingest of ``runtime.contract``, with configurable failures."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from runtime.messages import from_json

LISTS = {"logs": "lines", "metrics": "points", "events": "events"}


class IngestServer:
    """Accepts batches exactly once, by their numbers. ``fail``, ``drop_replies`` and ``leave`` make it misbehave."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self.given: dict[str, bytes] = {}  # answers to GET, by the path after the attempt
        self.taken: dict[str, list[Any]] = defaultdict(list)
        self.reports: list[dict[str, Any]] = []
        self.artifacts: dict[str, bytes] = {}
        self.refused_artifacts: set[str] = set()
        self.heartbeats = 0
        self.tokens: set[str] = set()
        self.fail = 0  # so many calls are answered 500 without being accepted
        self.drop_replies = 0  # so many calls are accepted and not answered
        self.forget = 0  # so many entries of the logs are lost once, as by a restored database
        self.stale = False
        self.missing = False
        self.proxy: tuple[int, Any] | None = None  # the answer of a proxy in the portal's place
        self.proxied = 0  # so many calls were answered by the proxy
        self._changed = threading.Condition()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.come_back()

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    def texts(self, stream: str | None = None) -> list[str]:
        return [text for _, kind, text in self.taken["logs"] if stream in (None, kind)]

    def last_report(self) -> dict[str, Any]:
        return self.reports[-1]

    def wait_until(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition():
                assert self._changed.wait(max(0.0, deadline - time.monotonic())), (
                    "the portal received no report in time"
                )

    def go_away(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
        self._server = None

    def come_back(self) -> None:
        self._server = _Server((self._host, self._port), _Handler)
        self._server.portal = self
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self) -> None:
        if self._server is not None:
            self.go_away()

    def answer(self, path: str, body: bytes, token: str) -> tuple[int, Any] | None:
        """Return status and body, a text if it is not the portal's. None: no reply."""
        with self._changed:
            self.tokens.add(token)
            if self.proxy is not None:
                self.proxied += 1
                self._changed.notify_all()
                return self.proxy
            if self._server is None or self.fail:
                self.fail = max(0, self.fail - 1)
                return 500, {}
            if self.stale:
                return 409, problem("stale_attempt", "a newer attempt runs")
            if self.missing:
                return 404, problem("not_found", "there is no such attempt")
            answer = self._take(urlsplit(path), body)
            self._changed.notify_all()
            if self.drop_replies:
                self.drop_replies -= 1
                return None
            return answer

    def _take(self, address: Any, body: bytes) -> tuple[int, dict[str, Any]]:
        call = address.path.rpartition("/")[2]
        if call == "artifacts":
            return self._take_artifact(parse_qs(address.query), body)
        message = json.loads(body)
        if call == "report":
            self.reports.append({**message, "why": from_json(message["why"])} if "why" in message else message)
        elif call == "begin":
            return 200, {kind: len(self.taken[kind]) for kind in LISTS}
        elif call == "heartbeat":
            self.heartbeats += 1
        else:
            return self._take_batch(call, message)
        return 200, {}

    def _take_batch(self, kind: str, message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        known = self.taken[kind]
        if self.forget and kind == "logs":
            del known[-self.forget :]
            self.forget = 0
        first, entries = message["first"], message[LISTS[kind]]
        if kind == "events":
            entries = [[at, happened, from_json(text)] for at, happened, text in entries]
        if first > len(known) + 1:
            return 409, {**problem("gap", "the batch begins too late"), "last": len(known)}
        known.extend(entries[len(known) + 1 - first :])
        return 200, {"last": len(known)}

    def _take_artifact(self, query: dict[str, list[str]], body: bytes) -> tuple[int, dict[str, Any]]:
        name = query["name"][0]
        if name in self.refused_artifacts:
            return 413, problem("too_large", "that is too large")
        assert hashlib.sha256(body).hexdigest() == query["sha256"][0]
        self.artifacts[name] = body
        return 201, {"name": name, "size": len(body), "sha256": query["sha256"][0]}


def problem(code: str, detail: str) -> dict[str, Any]:
    """Return the body of one of the portal's own refusals."""
    return {"type": f"urn:regatta:problem:{code}", "code": code, "detail": detail}


class _Server(ThreadingHTTPServer):
    portal: IngestServer
    daemon_threads = True
    block_on_close = False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        token = self.headers["Authorization"].removeprefix("Bearer ")
        answer = self.server.portal.answer(self.path, body, token)
        if answer is None:
            self.close_connection = True
            return
        status, reply = answer
        payload = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def do_GET(self) -> None:
        found = self.server.portal.given.get(self.path.split("/", 5)[5])
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(found or b"")))
        self.end_headers()
        self.wfile.write(found or b"")

    def log_message(self, format: str, *args: Any) -> None:
        pass
