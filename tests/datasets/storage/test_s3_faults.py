"""Invalid responses of an S3 service or of a proxy in front of it."""

from __future__ import annotations

import http.server
import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from datasets import messages as datasets_messages
from datasets.storage.base import StorageAway, StorageError
from datasets.storage.s3 import Address, S3Storage, _client
from tests.messages import pattern

MANY = 9 << 20  # more than is sent in one part
CONTENT = b"0123456789"
ERROR = b"<Error><Code>%s</Code><Message>Please reduce your request rate.</Message></Error>"


class Service(http.server.ThreadingHTTPServer):
    """Answers each method with ``answers``: status, headers and body.

    A body longer than its ``Content-Length`` is cut off.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        query = self.path.partition("?")[2].partition("=")[0]
        self.server.asked.append(f"{self.command} {query}".strip())
        answers = self.server.answers
        status, headers, body = answers.get(f"{self.command} {query}") or answers[self.command]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = "Content-Length" in headers

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """Discard the log."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    _client.cache_clear()
    with Service() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
    _client.cache_clear()


@pytest.fixture
def storage(service: Service, tmp_path: Path) -> S3Storage:
    return S3Storage(Address("bucket", "", f"http://127.0.0.1:{service.server_port}", "us-east-1"), tmp_path)


def test_a_page_of_a_proxy_is_not_taken_for_stored_content(storage: S3Storage, service: Service) -> None:
    page = 200, {"Content-Type": "text/html", "ETag": '"x"'}, b"<html>Sign in</html>"
    service.answers = {"PUT": page, "HEAD": page}
    with pytest.raises(StorageError, match=pattern(datasets_messages.STORAGE_SIZE_MISMATCH)):
        storage.put("a", io.BytesIO(CONTENT))


def test_a_service_without_ranges_is_read_from_the_requested_offset(storage: S3Storage, service: Service) -> None:
    service.answers = {"GET": (200, {}, CONTENT)}
    assert storage.open("a", 4).read() == CONTENT[4:]


def test_a_service_with_ranges_is_read_from_the_requested_offset(storage: S3Storage, service: Service) -> None:
    service.answers = {"GET": (206, {"Content-Range": "bytes 4-9/10"}, CONTENT[4:])}
    assert storage.open("a", 4).read() == CONTENT[4:]


def test_content_that_is_cut_off_is_not_laid_out(storage: S3Storage, service: Service) -> None:
    service.answers = {"GET": (200, {"Content-Length": "20"}, CONTENT)}
    with pytest.raises(StorageAway):
        storage.place("a", storage.shelf() / "a")
    assert list(storage.shelf().iterdir()) == []


def test_parts_of_a_failed_completion_are_removed(storage: S3Storage, service: Service) -> None:
    """S3 answers 200 before it knows the outcome, and reports the error in the body."""
    service.answers = {
        "POST uploads": (200, {}, b"<R><UploadId>one</UploadId></R>"),
        "PUT partNumber": (200, {"ETag": '"x"'}, b""),
        "PUT uploadId": (200, {"ETag": '"x"'}, b""),
        "POST uploadId": (200, {}, ERROR % b"InternalError"),
        "DELETE": (204, {}, b""),
    }
    with pytest.raises(StorageAway, match="InternalError"):
        storage.put("large", io.BytesIO(os.urandom(MANY)))
    assert "DELETE uploadId" in service.asked


@pytest.mark.parametrize(
    ("status", "body"), [(503, ERROR % b"SlowDown"), (502, b"<html>Bad gateway</html>"), (503, b"")]
)
def test_an_overloaded_service_is_a_temporary_error(
    storage: S3Storage, service: Service, status: int, body: bytes
) -> None:
    service.answers = {"GET": (status, {}, body)}
    with pytest.raises(StorageAway):
        storage.open("a")


def test_a_refusal_is_a_permanent_error(storage: S3Storage, service: Service) -> None:
    service.answers = {"GET": (403, {}, ERROR % b"AccessDenied")}
    with pytest.raises(StorageError) as refused:
        storage.open("a")
    assert not isinstance(refused.value, StorageAway)
