"""JSON client of the API server: the official client's connections and authentication, without its models.

The models are ten times slower to decode. ``KubeApi`` is the interface and ``ApiServer`` the real implementation; tests
have others that simulate failures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import urllib3
from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException

from jobs.operator.model.names import Object

# Content types by method. APPLY is a PATCH with server-side apply: the client owns the fields that it sends, no others.
_WRITTEN = {"PATCH": "application/merge-patch+json", "APPLY": "application/apply-patch+yaml"}
_SERVER_ERROR = 500
_CONNECT_SECONDS, _ANSWER_SECONDS = 10.0, 30.0
_WATCH_SLACK = 15.0  # seconds to wait for data after the server should have ended the watch
_IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class NoCluster(Exception):
    """There is no configuration of a cluster."""


class Refusal(Exception):
    """The API server refused a request, or did not answer.

    ``status``: the HTTP status; 0: no usable answer. ``reason``: a reason code of Kubernetes. ``retry_after``: the
    seconds of the header Retry-After.
    """

    def __init__(self, status: int, reason: str = "", message: str = "", retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message or reason
        self.retry_after = retry_after


GONE, CONFLICT, MISSING, FORBIDDEN = 410, 409, 404, 403


class KubeApi(Protocol):
    """Requests of the controller to an API server. Every call may raise Refusal."""

    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]: ...

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
        """Yield events (``type``, ``object``) until the server ends the watch, after ``seconds`` at the latest."""


class StreamingApi(KubeApi, Protocol):
    """Requests of the portal to an API server."""

    def stream(self, path: str, query: Mapping[str, str], silence: float) -> Iterator[bytes]:
        """Yield a response that is not JSON in pieces, such as a pod's log.

        Ends with the response, or when no data has arrived for ``silence`` seconds.
        """


class ApiServer:
    """Client of a real API server."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def call(
        self, method: str, path: str, body: Object | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        response = self._open(method, path, body, query, (_CONNECT_SECONDS, _ANSWER_SECONDS))
        try:
            answer = _object(response.data or b"")
        except (ValueError, TypeError, urllib3.exceptions.HTTPError) as broken:
            raise Refusal(0, "BadAnswer", f"The API server's answer cannot be read: {broken}") from broken
        if response.status >= 400:
            raise _refusal(response, answer)
        return answer

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        """Return a response that is not JSON, such as a pod's log."""
        response = self._open("GET", path, None, query, (_CONNECT_SECONDS, _ANSWER_SECONDS))
        try:
            body = bytes(response.data or b"")
        except urllib3.exceptions.HTTPError as broken:
            raise Refusal(0, "BadAnswer", f"The API server's answer cannot be read: {broken}") from broken
        if response.status >= 400:
            raise _refusal(response, _json(body))
        return body.decode(errors="replace")

    def watch(self, path: str, query: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
        parameters = {**query, "watch": "true", "timeoutSeconds": str(int(seconds))}
        response = self._open("GET", path, None, parameters, (_CONNECT_SECONDS, seconds + _WATCH_SLACK))
        try:
            if response.status >= 400:
                raise _refusal(response, _json(response.data))
            for line in _lines(response):
                yield json.loads(line)
        except (ValueError, urllib3.exceptions.HTTPError) as broken:
            raise Refusal(0, "BrokenWatch", str(broken)) from broken
        finally:
            response.close()

    def stream(self, path: str, query: Mapping[str, str], silence: float) -> Iterator[bytes]:
        response = self._open("GET", path, None, query, (_CONNECT_SECONDS, silence))
        try:
            if response.status >= 400:
                raise _refusal(response, _json(response.data))
            yield from response.stream(amt=None, decode_content=False)
        except urllib3.exceptions.ReadTimeoutError:
            return
        except urllib3.exceptions.HTTPError as broken:
            raise Refusal(0, "BrokenStream", str(broken)) from broken
        finally:
            response.close()

    def _open(
        self,
        method: str,
        path: str,
        body: Object | None,
        query: Mapping[str, str] | None,
        seconds: tuple[float, float],
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "Content-Type": _WRITTEN.get(method, "application/json")}
        method = "PATCH" if method == "APPLY" else method
        # Adds the authentication; tokens of service accounts are read again when they change.
        method, url, headers, _, _ = self._client.param_serialize(
            method, path, query_params=list((query or {}).items()), header_params=headers, auth_settings=["BearerToken"]
        )
        try:
            send = self._client.rest_client.request
            answer = send(method, url, headers=headers, body=body, _request_timeout=seconds)  # type: ignore[no-untyped-call]
        except (ApiException, urllib3.exceptions.HTTPError) as broken:
            raise Refusal(0, "Unreachable", f"The API server cannot be reached: {broken}") from broken
        response: urllib3.BaseHTTPResponse = answer.response
        return response


def connect(kubeconfig: str | None, connections: int) -> ApiServer:
    """Return the API server of ``kubeconfig``, else of the cluster of this process, else of the user's configuration.

    ``connections``: the size of the connection pool.

    Raises:
        NoCluster: there is no such configuration.
    """
    settings = Configuration()
    try:
        if kubeconfig is None and _IN_CLUSTER.exists():
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(config_file=kubeconfig, client_configuration=settings)  # type: ignore[no-untyped-call]
    except config.ConfigException as problem:
        raise NoCluster(str(problem)) from problem
    settings.connection_pool_maxsize = connections
    settings.retries = False  # the caller decides about retries
    return ApiServer(ApiClient(settings))


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(amt=None, decode_content=False):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from filter(None, lines)


def _refusal(response: urllib3.BaseHTTPResponse, answer: Mapping[str, Any]) -> Refusal:
    """Return the refusal of a response.

    Only the API server answers with an object of kind Status: a proxy's 404 does not mean that an object is missing.
    """
    header = response.headers.get("Retry-After", "")
    pause = float(header) if header.isdecimal() else None
    if response.status < _SERVER_ERROR and answer.get("kind") != "Status":
        return Refusal(0, "BadAnswer", f"What answered {response.status} was not the API server.", pause)
    return Refusal(response.status, str(answer.get("reason", "")), str(answer.get("message", "")), pause)


def _json(text: bytes) -> dict[str, Any]:
    try:
        return _object(text)
    except (ValueError, TypeError):
        return {}


def _object(text: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ValueError, TypeError."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise TypeError("no JSON object")
    return found
