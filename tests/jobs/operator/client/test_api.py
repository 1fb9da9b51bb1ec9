"""The API server client over HTTP: requests and handling of responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from jobs.operator.client.api import ApiServer, Refusal, connect


class Answers(BaseHTTPRequestHandler):
    """HTTP server that answers by path and records its requests."""

    protocol_version = "HTTP/1.1"
    requests: ClassVar[list[tuple[str, str, dict[str, str], Any]]] = []

    def _take(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.requests.append((self.command, self.path, dict(self.headers), body))
        path = self.path.partition("?")[0]
        if path == "/watched":
            return self._stream()
        status, answer, headers = {
            "/busy": (429, {"kind": "Status", "reason": "TooManyRequests", "message": "wait"}, {"Retry-After": "3"}),
            "/refused": (403, {"kind": "Status", "reason": "Forbidden", "message": "exceeded quota"}, {}),
            "/broken": (200, "half", {}),
            "/empty": (200, "", {}),
            "/list": (200, [], {}),
            "/proxy": (404, {"message": "no Route matched with those values"}, {}),
        }.get(path, (200, {"kind": "Pod"}, {}))
        text = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(text)
        return None

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _take

    def _stream(self) -> None:
        """Send two and a half events in chunks that do not end at lines, and close the connection."""
        text = b"".join(json.dumps({"type": "ADDED", "object": {"n": n}}).encode() + b"\n" for n in range(3))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in (text[:10], text[10:50], text[50:-20]):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServer]:
    Answers.requests.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        named = {"name": "one"}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "one",
            "contexts": [{**named, "context": {"cluster": "one", "user": "one"}}],
            "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
            "users": [{**named, "user": {"token": "sesame"}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
        yield connect(str(tmp_path / "config"), 4)
        server.shutdown()


def test_a_call_is_signed_and_carries_json(api: ApiServer) -> None:
    assert api.call("PATCH", "/pods/p", {"a": None}, {"x": "y z"}) == {"kind": "Pod"}
    ((method, path, headers, body),) = Answers.requests
    assert (method, path, body) == ("PATCH", "/pods/p?x=y%20z", {"a": None})
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert headers["authorization"] == "Bearer sesame"


@pytest.mark.parametrize(
    ("path", "status", "message", "retry_after"),
    [("/refused", 403, "exceeded quota", None), ("/busy", 429, "wait", 3.0)],
)
def test_a_refusal_has_a_reason_and_retry_after(
    api: ApiServer, path: str, status: int, message: str, retry_after: float | None
) -> None:
    with pytest.raises(Refusal) as refused:
        api.call("POST", path, {})
    found = refused.value
    assert (found.status, found.message, found.retry_after) == (status, message, retry_after)


def test_an_answer_that_is_no_json_is_a_refusal(api: ApiServer) -> None:
    with pytest.raises(Refusal, match="cannot be read"):
        api.call("GET", "/broken")


@pytest.mark.parametrize("path", ["/empty", "/list"])
def test_an_answer_without_an_object_is_a_refusal(api: ApiServer, path: str) -> None:
    with pytest.raises(Refusal) as refused:
        api.call("GET", path)
    assert (refused.value.status, refused.value.reason) == (0, "BadAnswer")


@pytest.mark.invariant("A proxy's answer never counts as an answer of the API server.")
def test_a_404_of_a_proxy_is_not_missing(api: ApiServer) -> None:
    for send in (api.call, lambda _method, path: api.text(path), lambda _method, path: list(api.watch(path, {}, 1.0))):
        with pytest.raises(Refusal) as refused:
            send("GET", "/proxy")
        assert (refused.value.status, refused.value.reason) == (0, "BadAnswer")


def test_a_watch_yields_whole_events_and_raises_when_it_was_cut(api: ApiServer) -> None:
    events = []
    with pytest.raises(Refusal, match="BrokenWatch"):
        for event in api.watch("/watched", {"resourceVersion": "7"}, 60):
            events.append(event["object"]["n"])
    assert events == [0, 1]
    assert "timeoutSeconds=60" in Answers.requests[0][1]


def test_a_watch_that_is_refused_is_a_refusal(api: ApiServer) -> None:
    with pytest.raises(Refusal) as refused:
        list(api.watch("/busy", {}, 60))
    assert refused.value.retry_after == 3.0


def test_a_server_that_is_not_there_is_a_refusal(api: ApiServer, tmp_path: Path) -> None:
    config = yaml.safe_load((tmp_path / "config").read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    (tmp_path / "other").write_text(yaml.safe_dump(config))
    with pytest.raises(Refusal, match="cannot be reached"):
        connect(str(tmp_path / "other"), 1).call("GET", "/pods")
