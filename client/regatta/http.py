"""HTTP requests to the portal: safe retries, and a typed error with a message for every failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from regatta import version
from regatta.errors import Missing, NotSignedIn, PortalError, QuotaExceeded, Refused, ServerFailed, Unreachable

TRIES = 6  # attempts per request, including the first
BACKOFF_SECONDS = 0.25  # before the second attempt; doubles
LONGEST_WAIT = 30.0  # limit for Retry-After

_BULK_SECONDS = 300.0  # for a request that carries megabytes over a slow connection
_RETRIED = frozenset({429, 500, 502, 503, 504})
# Statuses that proxies return too, with a page.
_OF_ACCESS = frozenset({401, 403, 407})
# The portal's own code takes precedence over the status.
_BY_CODE: Mapping[str, type[PortalError]] = {"quota_exceeded": QuotaExceeded}
_BY_STATUS: Mapping[int, type[PortalError]] = {401: NotSignedIn, 404: Missing}


class Http:
    """Connection pool to one portal. ``sleep`` waits between attempts."""

    def __init__(
        self,
        server: str,
        token: str = "",
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.server = server.rstrip("/")
        self._sleep = sleep
        headers = {"Accept": "application/json", "User-Agent": f"regatta/{version.VERSION}"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            self._client = httpx.Client(base_url=self.server, headers=headers, transport=transport, timeout=30.0)
        except (httpx.InvalidURL, ValueError) as error:
            raise Unreachable(f"{server!r} is not a valid portal address: {error}.") from None

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **query: Any) -> Any:
        """Return the body of the response. Query parameters that are None are omitted."""
        return self._json("GET", path, params={key: value for key, value in query.items() if value is not None})

    def pages(self, path: str, **query: Any) -> Iterator[Any]:
        """Yield the items of a list. Its pages are fetched on demand."""
        cursor: str | None = None
        while True:
            page = self.get(path, cursor=cursor, **query)
            yield from page["results"]
            cursor = page["next"]
            if not cursor:
                return

    def post(
        self,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **query: Any,
    ) -> Any:
        """Return the body of the response. Retried like other requests: the portal accepts every such call twice.

        ``timeout``: seconds for a call that takes longer than others.
        """
        patience = {} if timeout is None else {"timeout": timeout}
        return self._json("POST", path, json=body, headers=headers, params=query, **patience)

    def put(self, path: str, body: Any) -> Any:
        return self._json("PUT", path, json=body)

    def patch(self, path: str, body: Any) -> Any:
        return self._json("PATCH", path, json=body)

    def delete(self, path: str) -> None:
        response = self._answered("DELETE", path)
        if response.is_error:
            raise error_of(response)
        if response.status_code != httpx.codes.NO_CONTENT:  # the portal sends this status, or JSON
            self._body(response, path)

    def put_bytes(self, path: str, content: Iterable[bytes], length: int, headers: Mapping[str, str]) -> Any:
        """Send ``length`` raw bytes in pieces. Retried, because the path identifies the content.

        ``content`` is iterated again for each attempt.
        """
        headers = {**headers, "Content-Length": str(length)}
        return self._json("PUT", path, content=content, headers=headers, timeout=_BULK_SECONDS)

    @contextmanager
    def stream(self, path: str, *, start: int = 0, **query: Any) -> Iterator[httpx.Response]:
        """Yield a response whose body is read in pieces; with ``start``, from that byte on (the status is then 206)."""
        # Positions refer to the content itself: a compressed response could not be resumed.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        asked = {key: value for key, value in query.items() if value is not None}
        try:
            with self._client.stream("GET", path, headers=headers, params=asked) as response:
                version.check(response.headers)
                if response.is_error:
                    response.read()
                    raise error_of(response)
                if not response.is_success:
                    raise Unreachable(f"{self.server} is not a Regatta portal: {path} is redirected.")
                yield response
        except httpx.HTTPError as error:
            raise _unreachable(self.server, error) from error

    def _json(self, method: str, path: str, **arguments: Any) -> Any:
        response = self._answered(method, path, **arguments)
        version.check(response.headers)
        if response.is_error:
            raise error_of(response)
        return self._body(response, path)

    def _body(self, response: httpx.Response, path: str) -> Any:
        """Return the body of a successful response. Raises Unreachable if it is not the portal's.

        Examples are a redirection to a sign-in page, another page, or, when a missing key is read, the JSON of another
        server.
        """
        try:
            if response.is_success:
                body = response.json()
                return _Body(body) if isinstance(body, dict) else body
        except (ValueError, RecursionError):
            pass
        raise Unreachable(f"{self.server} is not a Regatta portal: {path} did not return JSON.")

    def _answered(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Return the first response that needs no retry, or the last one."""
        for attempt in range(TRIES):
            last = attempt == TRIES - 1
            try:
                response = self._client.request(method, path, **arguments)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                if last or not isinstance(error, httpx.TransportError) or isinstance(error, httpx.UnsupportedProtocol):
                    raise _unreachable(self.server, error) from error
                self._sleep(BACKOFF_SECONDS * 2**attempt)
                continue
            if last or not (response.status_code in _RETRIED or _is_of_a_proxy(response)):
                return response
            self._sleep(_wait_of(response, BACKOFF_SECONDS * 2**attempt))
        raise AssertionError("unreachable: the last try returns or raises")


class _Body(dict[str, Any]):
    """JSON object of a response."""

    def __missing__(self, key: str) -> Any:
        raise Unreachable(f"The answer is not of a Regatta portal: it has no {key!r}. Check the address of the portal.")


def error_of(response: httpx.Response) -> PortalError:
    """Return the typed error of an error response."""
    body = _problem(response)
    code, status = str(body.get("code", "")), response.status_code
    if _is_of_a_proxy(response) or (status in _OF_ACCESS and not _is_json(response)):
        return Unreachable(
            f"Status {status} did not come from the portal, but from a server in between.", status=status
        )
    detail = str(body.get("detail") or body.get("title") or f"The portal returned {status} {response.reason_phrase}.")
    fallback = ServerFailed if status in _RETRIED or status >= 500 else Refused
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, fallback)
    return kind(detail, code=code, status=status, body=body)


def _is_of_a_proxy(response: httpx.Response) -> bool:
    """Return whether a 404 comes from a proxy or another server: a route is being reloaded, for example.

    The portal itself sends JSON.
    """
    return response.status_code == httpx.codes.NOT_FOUND and not _is_json(response)


def _is_json(response: httpx.Response) -> bool:
    return "json" in response.headers.get("Content-Type", "")


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _unreachable(server: str, error: Exception) -> Unreachable:
    return Unreachable(f"The portal at {server} cannot be reached: {str(error) or type(error).__name__}.")


def _wait_of(response: httpx.Response, otherwise: float) -> float:
    """Return the seconds to wait: Retry-After as a number or a date, within limits."""
    raw = response.headers.get("Retry-After", "")
    try:
        wanted = float(raw)
    except ValueError:
        wanted = _seconds_until(raw) or otherwise
    return min(max(wanted, 0.0), LONGEST_WAIT)


def _seconds_until(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (TypeError, ValueError):
        return None
