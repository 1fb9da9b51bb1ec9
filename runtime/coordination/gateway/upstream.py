"""Connections of the gateway to the servers of etcd."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from runtime.coordination.etcd_address import EtcdAddress

_MIB = 1024 * 1024
# Size of an answer of etcd. It bounds what one listing may take of the gateway's memory.
MOST_ANSWER_BYTES = 16 * _MIB
_ELSEWHERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Only the agent can decide whether a write may be repeated.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MOST_ANSWER_BYTES),
    ("grpc.max_send_message_length", 4 * _MIB),
)


class Upstream:
    """Opens calls on the server that answered last and, after a failure, on the next one."""

    def __init__(self, address: EtcdAddress) -> None:
        """Open the connections. Raises OSError if the file of certificates cannot be read."""
        certificates = Path(address.ca).read_bytes() if address.ca else None
        self._channels = [_channel(server, certificates) for server in address.servers]
        self._current = 0

    @property
    def channel(self) -> Any:
        return self._channels[self._current]

    def failed(self, channel: Any, code: grpc.StatusCode) -> None:
        """Use the next server from now on, if the error says that this one is to blame."""
        if code in _ELSEWHERE and channel is self.channel:
            self._current = (self._current + 1) % len(self._channels)

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


def _channel(server: str, certificates: bytes | None) -> Any:
    options: Sequence[tuple[str, int]] = _OPTIONS
    if certificates is None:
        return grpc.aio.insecure_channel(server, options=options)
    return grpc.aio.secure_channel(server, grpc.ssl_channel_credentials(certificates), options=options)
