"""Client of an image registry (the OCI distribution specification). Standard library only: it runs in build pods too.

Credentials come from a Docker configuration file (``{"auths": {host: {"auth": base64 of user:password}}}``), the format
that buildah and Kubernetes use.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
INDEXES = frozenset({OCI_INDEX, DOCKER_INDEX})
_ACCEPTED = ", ".join((OCI_MANIFEST, DOCKER_MANIFEST, OCI_INDEX, DOCKER_INDEX))
_SECONDS = 60.0
_CHUNK = 1024**2
_PAGE = "text/html"
# Seconds between two calls of a registry that is unavailable, and seconds for which transfers are retried.
AWAY_SECONDS, PATIENCE_SECONDS = 2.0, 120.0
Answer = TypeVar("Answer")
_MANIFEST_LIMIT = 4 * 1024**2  # size limit of manifests, in bytes


class RegistryError(Exception):
    """Raised when a request of the registry fails. ``status``: the HTTP status; 0: no answer."""

    def __init__(self, host: str, status: int, what: str) -> None:
        super().__init__(_message(host, status, what))
        self.status = status


def _message(host: str, status: int, what: str) -> str:
    if status in (401, 403):
        return f"The image registry {host} refuses to {what}: its credentials do not allow it ({status})."
    if status == 0:
        return f"The image registry {host} cannot be reached: {what}."
    return f"The image registry {host} could not {what} (it answered {status})."


def wait_for_registry(operation: Callable[[], Answer], seconds: float, log: Callable[[str], object]) -> Answer:
    """Call ``operation``, and retry while the registry is unavailable, for at most ``seconds``.

    Unavailable are no answer, 429, and 5xx. ``log`` gets each error that is retried. ``operation`` must be idempotent.
    Raises RegistryError.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return operation()
        except RegistryError as error:
            final = 0 < error.status < 500 and error.status != TOO_MANY
            if final or time.monotonic() + AWAY_SECONDS > deadline:
                raise
            log(f"{error} Trying again.")
            time.sleep(AWAY_SECONDS)


@dataclass(frozen=True)
class Manifest:
    """A manifest or an index as received. Its digest is that of ``body``."""

    media_type: str
    body: bytes

    @property
    def content(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


@dataclass(frozen=True)
class Credentials:
    """Credentials of one host; both empty: none."""

    user: str = ""
    password: str = ""

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    @classmethod
    def read(cls, file: Path | None, host: str) -> Credentials:
        """Read the host's credentials from a Docker configuration file. Raises ValueError if it is none."""
        if file is None:
            return cls()
        try:
            auths = json.loads(file.read_text(encoding="utf-8"))["auths"]
            found = auths.get(host) or (auths.get("https://index.docker.io/v1/") if host == "docker.io" else None)
            if found is None:
                return cls()
            user, _, password = base64.b64decode(found["auth"]).decode().partition(":")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} is no Docker configuration file with auths: {error}") from None
        return cls(user, password)


class Registry:
    """One registry. ``insecure``: HTTP without TLS; ``seconds``: timeout of a call. Methods raise RegistryError."""

    def __init__(
        self,
        host: str,
        *,
        insecure: bool = False,
        credentials: Credentials | None = None,
        seconds: float = _SECONDS,
    ) -> None:
        self._seconds = seconds
        self.host = host
        self._base = f"{'http' if insecure else 'https'}://{_HOSTS.get(host, host)}"
        self._credentials = credentials or Credentials()
        self._signed: dict[str, str] = {}  # the Authorization header, by repository
        self._open = urllib.request.build_opener(_NoErrors()).open

    # --- Manifests ---
    def manifest(self, repository: str, reference: str) -> Manifest | None:
        answer = self._call(
            "GET", f"/v2/{repository}/manifests/{quote(reference)}", repository, headers={"Accept": _ACCEPTED}
        )
        with answer:
            if _lacks(answer):
                return None
            self._expect(answer, f"give the manifest of {repository}:{reference}", 200)
            body = self._read(answer)
        return Manifest(answer.headers.get("Content-Type", OCI_MANIFEST).partition(";")[0], body)

    def has_manifest(self, repository: str, reference: str) -> bool:
        answer = self._call(
            "HEAD", f"/v2/{repository}/manifests/{quote(reference)}", repository, headers={"Accept": _ACCEPTED}
        )
        with answer:
            if _lacks(answer):
                return False
            self._expect(answer, f"tell whether it has {repository}:{reference}", 200)
        return True

    def put_manifest(self, repository: str, tag: str, manifest: Manifest) -> None:
        path = f"/v2/{repository}/manifests/{quote(tag)}"
        headers = {"Content-Type": manifest.media_type}
        with self._call("PUT", path, repository, body=manifest.body, headers=headers) as answer:
            self._expect(answer, f"keep the manifest of {repository}:{tag}", 201, 202)

    # --- Blobs ---
    def has_blob(self, repository: str, digest: str) -> bool:
        with self._call("HEAD", f"/v2/{repository}/blobs/{digest}", repository) as answer:
            if _lacks(answer):
                return False
            self._expect(answer, f"tell whether it has {digest}", 200)
        return True

    def read_blob(self, repository: str, digest: str, into: BinaryIO) -> None:
        with self._call("GET", f"/v2/{repository}/blobs/{digest}", repository) as answer:
            self._expect(answer, f"give {digest}", 200)
            digest_here = hashlib.sha256()
            try:
                while chunk := answer.read(_CHUNK):
                    digest_here.update(chunk)
                    into.write(chunk)
            except (OSError, HTTPException) as broken:
                raise RegistryError(self.host, 0, f"a download broke off ({broken})") from broken
        if f"sha256:{digest_here.hexdigest()}" != digest:  # a connection that is cut ends like a complete one
            raise RegistryError(self.host, 0, f"a download broke off (it is not {digest})")

    def mount_blob(self, repository: str, digest: str, source: str) -> bool:
        """Mount a blob of another repository of the registry without sending it. False: it has to be sent."""
        query = urlencode({"mount": digest, "from": source})
        with self._call("POST", f"/v2/{repository}/blobs/uploads/?{query}", repository, also=source) as answer:
            return bool(answer.status == 201)

    def put_blob(self, repository: str, digest: str, content: bytes | Path) -> None:
        if self.has_blob(repository, digest):
            return
        with self._call("POST", f"/v2/{repository}/blobs/uploads/", repository, body=b"") as answer:
            self._expect(answer, f"take an upload for {repository}", 202)
            place = urljoin(self._base, answer.headers["Location"])
        where = place + ("&" if "?" in place else "?") + urlencode({"digest": digest})
        headers = {"Content-Type": "application/octet-stream"}
        with self._call("PUT", where, repository, body=content, headers=headers) as answer:
            self._expect(answer, f"keep {digest}", 201)

    # --- Requests ---
    def _call(
        self,
        method: str,
        path: str,
        repository: str,
        *,
        body: bytes | Path | None = None,
        headers: Mapping[str, str] | None = None,
        also: str = "",
    ) -> HTTPResponse:
        """Return the answer with any status; after a 401 with a challenge, sign in and repeat the request once."""
        answer = self._send(method, path, repository, body, headers)
        if answer.status != 401:
            return answer
        signed = self._sign_in(answer.headers.get("WWW-Authenticate", ""), repository, also)
        if not signed:
            return answer
        answer.close()
        self._signed[repository] = signed
        return self._send(method, path, repository, body, headers)

    def _send(
        self, method: str, path: str, repository: str, body: bytes | Path | None, headers: Mapping[str, str] | None
    ) -> HTTPResponse:
        url = urljoin(self._base, path)
        request = urllib.request.Request(url, method=method, headers=dict(headers or {}))  # noqa: S310
        if repository in self._signed and urlsplit(url).netloc == urlsplit(self._base).netloc:
            # Not sent to redirect targets, where a registry stores its blobs: they have their own authentication.
            request.add_unredirected_header("Authorization", self._signed[repository])
        try:
            if isinstance(body, Path):
                request.add_header("Content-Length", str(body.stat().st_size))
                with body.open("rb") as file:
                    request.data = file
                    return self._opened(request)
            request.data = body
            return self._opened(request)
        except (urllib.error.URLError, OSError, HTTPException) as broken:
            raise RegistryError(self.host, 0, str(getattr(broken, "reason", broken))) from broken

    def _opened(self, request: urllib.request.Request) -> HTTPResponse:
        answer: HTTPResponse = self._open(request, timeout=self._seconds)
        return answer

    def _sign_in(self, challenge: str, repository: str, also: str) -> str:
        """Return the Authorization header for a challenge of the registry; empty for an unknown challenge."""
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic":
            return self._credentials.basic if self._credentials.user else ""
        parameters = dict(_PARAMETER.findall(rest))
        if kind.lower() != "bearer" or "realm" not in parameters:
            return ""
        scopes = [f"repository:{repository}:pull,push"] + ([f"repository:{also}:pull"] if also else [])
        query = [("scope", scope) for scope in scopes]
        query += [("service", parameters["service"])] if "service" in parameters else []
        request = urllib.request.Request(f"{parameters['realm']}?{urlencode(query)}")  # noqa: S310  from the registry
        if self._credentials.user:
            request.add_unredirected_header("Authorization", self._credentials.basic)
        try:
            with self._opened(request) as answer:
                if answer.status == TOO_MANY or answer.status >= _BROKEN:
                    # Raised here, because the registry's 401 would read as a refusal of the credentials.
                    raise RegistryError(self.host, answer.status, "give a token to sign in with")
                token = json.loads(answer.read(_MANIFEST_LIMIT))
                return f"Bearer {token.get('token') or token['access_token']}"
        except (urllib.error.URLError, OSError, HTTPException) as broken:
            raise RegistryError(self.host, 0, f"its tokens are not to be had ({broken})") from broken
        except (ValueError, KeyError, AttributeError):
            return ""

    def _expect(self, answer: HTTPResponse, what: str, *statuses: int) -> None:
        """Raise RegistryError for other statuses, and for an HTML page: that is a proxy's answer with any status."""
        if answer.status in statuses and not _is_page(answer):
            return
        raise RegistryError(self.host, answer.status, what)

    def _read(self, answer: HTTPResponse) -> bytes:
        """Read a manifest as received; it must be a JSON object. Raises RegistryError."""
        try:
            body = answer.read(_MANIFEST_LIMIT)
            if isinstance(json.loads(body), dict):
                return body
            why = "no JSON object"
        except (OSError, HTTPException, ValueError) as broken:
            why = str(broken)
        raise RegistryError(self.host, 0, f"its answer is no manifest ({why})")


def _lacks(answer: HTTPResponse) -> bool:
    """Return whether the registry itself, not a proxy, answers that the object does not exist."""
    return answer.status == 404 and not _is_page(answer)


def _is_page(answer: HTTPResponse) -> bool:
    return answer.headers.get("Content-Type", "").startswith(_PAGE)


# The API host of Docker's own registry.
_HOSTS = {"docker.io": "registry-1.docker.io"}
TOO_MANY, _BROKEN = 429, 500
_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"')


class _NoErrors(urllib.request.HTTPErrorProcessor):
    """Returns answers with status 400 and above instead of raising; redirects are followed."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        if response.status in (301, 302, 303, 307, 308):
            return super().http_response(request, response)
        return response

    https_response = http_response


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
