"""An image registry, by its own interface (the OCI distribution specification). Standard library alone: this is used
inside the cluster too.

Credentials are those of a Docker configuration file (``{"auths": {host: {"auth": base64 of user:password}}}``), the
same that buildah and Kubernetes take.
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
_PIECE = 1024**2
_PAGE = "text/html"
# Between two attempts at a registry that is away, and how long images are given to be fetched and pushed meanwhile.
AWAY_SECONDS, PATIENCE_SECONDS = 2.0, 120.0
Answer = TypeVar("Answer")
_TINY = 4 * 1024**2  # bytes of the largest manifest that is read


class RegistryError(Exception):
    """The registry did not do what it was asked for. ``status``: HTTP's; 0: nobody answered."""

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
    """``ask``, again and again while the registry does not answer or answers that it cannot now, for ``seconds`` at
    most. ``say`` is given each error that is waited out. ``ask`` must be safe to repeat. Raises RegistryError."""
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
    """A manifest or an index, as it came. ``body`` is what its digest is of."""

    media_type: str
    body: bytes

    @property
    def content(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


@dataclass(frozen=True)
class Credentials:
    """Of one host; both empty: none."""

    user: str = ""
    password: str = ""

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    @classmethod
    def read(cls, file: Path | None, host: str) -> Credentials:
        """Those of a Docker configuration file. Raises ValueError where it is none."""
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
    """One registry. ``insecure``: HTTP in the clear; ``seconds``: how long it may be silent. Every call may
    raise RegistryError."""

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
        self._signed: dict[str, str] = {}  # what to sign in with, by repository
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
                while piece := answer.read(_PIECE):
                    digest_here.update(piece)
                    into.write(piece)
            except (OSError, HTTPException) as broken:
                raise RegistryError(self.host, 0, f"a download broke off ({broken})") from broken
        if f"sha256:{digest_here.hexdigest()}" != digest:  # a connection that is cut ends like one that is whole
            raise RegistryError(self.host, 0, f"a download broke off (it is not {digest})")

    def mount_blob(self, repository: str, digest: str, source: str) -> bool:
        """Have a blob that another of its repositories has, without sending it. False: it has to be sent."""
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

    # --- One question ---
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
        """The answer, whatever it is; asks again once where it is told how to sign in."""
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
            # Not sent on to where a registry keeps its blobs: that signs in its own way.
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
        """The header to sign in with, from what the registry asks for; empty where that is not known."""
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic":
            return self._credentials.basic if self._credentials.user else ""
        parameters = dict(_PARAMETER.findall(rest))
        if kind.lower() != "bearer" or "realm" not in parameters:
            return ""
        scopes = [f"repository:{repository}:pull,push"] + ([f"repository:{also}:pull"] if also else [])
        query = [("scope", scope) for scope in scopes]
        query += [("service", parameters["service"])] if "service" in parameters else []
        request = urllib.request.Request(f"{parameters['realm']}?{urlencode(query)}")  # noqa: S310  the registry's own word
        if self._credentials.user:
            request.add_unredirected_header("Authorization", self._credentials.basic)
        try:
            with self._opened(request) as answer:
                if answer.status == TOO_MANY or answer.status >= _BROKEN:
                    # Not a refusal of the credentials, as the registry's 401 would be taken for.
                    raise RegistryError(self.host, answer.status, "give a token to sign in with")
                token = json.loads(answer.read(_TINY))
                return f"Bearer {token.get('token') or token['access_token']}"
        except (urllib.error.URLError, OSError, HTTPException) as broken:
            raise RegistryError(self.host, 0, f"its tokens are not to be had ({broken})") from broken
        except (ValueError, KeyError, AttributeError):
            return ""

    def _expect(self, answer: HTTPResponse, what: str, *statuses: int) -> None:
        """A page for people is an answer of a proxy in the registry's place, whatever its status."""
        if answer.status in statuses and not _is_page(answer):
            return
        raise RegistryError(self.host, answer.status, what)

    def _read(self, answer: HTTPResponse) -> bytes:
        """A manifest as it came: a JSON object."""
        try:
            body = answer.read(_TINY)
            if isinstance(json.loads(body), dict):
                return body
            why = "no JSON object"
        except (OSError, HTTPException, ValueError) as broken:
            why = str(broken)
        raise RegistryError(self.host, 0, f"its answer is no manifest ({why})")


def _lacks(answer: HTTPResponse) -> bool:
    """Whether the registry itself says that it has no such thing."""
    return answer.status == 404 and not _is_page(answer)


def _is_page(answer: HTTPResponse) -> bool:
    return answer.headers.get("Content-Type", "").startswith(_PAGE)


# What Docker's own registry is called, and where it is.
_HOSTS = {"docker.io": "registry-1.docker.io"}
TOO_MANY, _BROKEN = 429, 500
_PARAMETER = re.compile(r'([a-z]+)="([^"]*)"')


class _NoErrors(urllib.request.HTTPErrorProcessor):
    """Answers of 400 and more are answers, not exceptions; redirections are still followed."""

    def http_response(self, request: urllib.request.Request, response: Any) -> Any:
        if response.status in (301, 302, 303, 307, 308):
            return super().http_response(request, response)
        return response

    https_response = http_response


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
