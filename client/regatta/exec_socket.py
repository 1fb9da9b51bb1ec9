"""The websockets to a replica: of a terminal or command (``/ws/v1/exec``), and of a port (``/ws/v1/connect``)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.sync.client import connect

from regatta import version
from regatta.errors import Missing, NotSignedIn, PortalError, Refused, Unreachable

# Most bytes of input in one frame.
INPUT_BYTES = 32 * 1024
_OPEN_SECONDS = 20.0
_NOT_SIGNED_IN, _ENDED = 4401, 1000
# Codes of a close after which the same terminal can be opened again.
_RECONNECTED = frozenset({1001, 1006, 1011, 1012, 1013, 4409, 4411})
_BY_CODE: Mapping[str, type[PortalError]] = {"not_found": Missing}


class ConnectionLost(Unreachable):
    """The connection was lost; the shell goes on, and the caller may connect again."""


class ExecSocket:
    """A connection. One thread receives while another sends."""

    path = "/ws/v1/exec"

    def __init__(self, server: str, token: str, **query: str | int) -> None:
        """Connect. Raises Unreachable."""
        parts = urlsplit(server)
        scheme = "wss" if parts.scheme == "https" else "ws"
        address = f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{self.path}?{urlencode(query)}"
        try:
            self._link = connect(
                address,
                additional_headers={"Authorization": f"Bearer {token}"},
                user_agent_header=f"regatta/{version.VERSION}",
                open_timeout=_OPEN_SECONDS,
                max_size=None,
                compression=None,
            )
        except (OSError, InvalidHandshake, InvalidURI) as error:
            raise ConnectionLost(f"{server} cannot be reached: {error}.") from None

    def frames(self) -> Iterator[dict[str, Any] | bytes]:
        """Yield messages and output until the program has ended.

        Raises ConnectionLost, and other PortalErrors when the portal refuses.
        """
        refusal: PortalError | None = None
        try:
            for frame in self._link:
                if isinstance(frame, bytes):
                    yield frame
                    continue
                message = json.loads(frame)
                if message["t"] == "error":
                    kind = _BY_CODE.get(message["code"], Refused)
                    refusal = kind(message["detail"], code=message["code"])
                else:
                    yield message
        except ConnectionClosed:
            pass
        code, reason = self._link.close_code or 1006, self._link.close_reason or ""
        if code == _NOT_SIGNED_IN:
            raise NotSignedIn("Your token is not valid any more. Run `regatta login`.")
        if code in _RECONNECTED:
            raise ConnectionLost(refusal.detail if refusal else reason or "The connection was lost.")
        if code != _ENDED:
            raise refusal or Refused(reason or "The portal closed the connection.")

    def enter(self, data: bytes) -> None:
        """Send input. Input to a closed connection is dropped."""
        with contextlib.suppress(ConnectionClosed):
            for start in range(0, len(data), INPUT_BYTES):
                self._link.send(data[start : start + INPUT_BYTES])

    def tell(self, **message: Any) -> None:
        """Send a message."""
        with contextlib.suppress(ConnectionClosed):
            self._link.send(json.dumps(message))

    def close(self) -> None:
        self._link.close()


class PortSocket(ExecSocket):
    """A connection to a port in a replica."""

    path = "/ws/v1/connect"
