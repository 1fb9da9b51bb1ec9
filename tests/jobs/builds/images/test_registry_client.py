"""Client of a registry: a proxy that answers in its place, and interrupted connections."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jobs.builds.images.registry_client import OCI_MANIFEST, Registry, RegistryError

CONTENT = b"layer" * 100
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
# By repository: status, content type, body, and the announced length.
ANSWERS = {
    "page": (200, "text/html; charset=utf-8", b"<html>sign in</html>", None),
    "reloading": (404, "text/html", b"<html>default backend - 404</html>", None),
    "none": (404, "application/json", b'{"errors": [{"code": "NAME_UNKNOWN"}]}', None),
    "empty": (200, OCI_MANIFEST, b"", None),
    "half": (200, OCI_MANIFEST, b'{"layers": [', None),
    "cut": (200, "application/octet-stream", CONTENT[:200], len(CONTENT)),
    "other": (200, "application/octet-stream", CONTENT[::-1], None),
    "whole": (200, "application/octet-stream", CONTENT, None),
    "away": (503, "text/plain", b"", None),
    "busy": (429, "application/json", b"{}", None),
    "strict": (403, "application/json", b'{"details": "no"}', None),
}
# Repositories that require a token, with the repository path that serves it.
GUARDED = {f"guarded-{realm}": realm for realm in ("away", "busy", "strict")}


class Proxy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        repository = self.path.split("/")[2].partition("?")[0]
        realm = GUARDED.get(repository)
        status, kind, body, length = ANSWERS[repository] if realm is None else (401, "application/json", b"{}", None)
        self.send_response(status)
        if realm is not None:
            address = f"http://{self.headers['Host']}/v2/{realm}"
            self.send_header("WWW-Authenticate", f'Bearer realm="{address}",service="registry"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Registry(f"127.0.0.1:{server.server_address[1]}", insecure=True, seconds=5.0)
        server.shutdown()


@pytest.mark.invariant("A proxy's answer never counts as an answer of the image registry.")
@pytest.mark.parametrize("repository", ["page", "reloading"])
def test_a_page_of_a_proxy_says_nothing_of_what_the_registry_has(registry: Registry, repository: str) -> None:
    for operation in (registry.has_manifest, registry.has_blob, registry.manifest):
        with pytest.raises(RegistryError):
            operation(repository, DIGEST)


def test_a_404_of_the_registry_itself_means_absent(registry: Registry) -> None:
    assert not registry.has_manifest("none", "1")
    assert not registry.has_blob("none", DIGEST)
    assert registry.manifest("none", "1") is None


@pytest.mark.parametrize("repository", ["empty", "half"])
def test_an_incomplete_manifest_is_refused(registry: Registry, repository: str) -> None:
    with pytest.raises(RegistryError, match="its answer is no manifest"):
        registry.manifest(repository, "1")


@pytest.mark.parametrize("repository", ["cut", "other"])
def test_an_incomplete_blob_is_refused(registry: Registry, repository: str) -> None:
    with pytest.raises(RegistryError, match="a download broke off"):
        registry.read_blob(repository, DIGEST, io.BytesIO())


def test_a_complete_blob_is_accepted(registry: Registry) -> None:
    into = io.BytesIO()
    registry.read_blob("whole", DIGEST, into)
    assert into.getvalue() == CONTENT


@pytest.mark.parametrize(("repository", "status"), [("guarded-away", 503), ("guarded-busy", 429)])
def test_an_unavailable_token_server_is_no_refusal(registry: Registry, repository: str, status: int) -> None:
    with pytest.raises(RegistryError) as raised:
        registry.has_manifest(repository, "1")
    assert raised.value.status == status


def test_without_a_token_the_registry_refuses(registry: Registry) -> None:
    with pytest.raises(RegistryError) as raised:
        registry.has_manifest("guarded-strict", "1")
    assert raised.value.status == 401
