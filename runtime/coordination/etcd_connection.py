"""Connection of one process to etcd: choice of the server, token, deadlines, and messages for its errors.

The messages and stubs are pyetcd's. Its client is not used: it drops the server's message when a call fails, drops the
revision of a transaction, and does not sign in again when its token is forgotten, as after every restart of etcd.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

import grpc
from pyetcd import etcdrpc

from runtime.coordination.base import (
    AccessDenied,
    CoordinationError,
    LeaseLost,
    StoreFull,
    StoreUnavailable,
    TooLarge,
)
from runtime.coordination.etcd_address import EtcdAddress
from runtime.errors import TEMPORARY
from runtime.messages import training as messages

CALL_SECONDS = 5.0

Method = Callable[["_Server"], Callable[..., Any]]
RANGE: Method = attrgetter("kv.Range")
TXN: Method = attrgetter("kv.Txn")
DELETE_RANGE: Method = attrgetter("kv.DeleteRange")
COMPACT: Method = attrgetter("kv.Compact")
ALARM: Method = attrgetter("maintenance.Alarm")
STATUS: Method = attrgetter("maintenance.Status")
LEASE_GRANT: Method = attrgetter("lease.LeaseGrant")
LEASE_REVOKE: Method = attrgetter("lease.LeaseRevoke")
KEEP_ALIVE: Method = attrgetter("keep_alive")
AUTH_ENABLE: Method = attrgetter("auth.AuthEnable")
USER_ADD: Method = attrgetter("auth.UserAdd")
USER_LIST: Method = attrgetter("auth.UserList")
USER_CHANGE_PASSWORD: Method = attrgetter("auth.UserChangePassword")
USER_DELETE: Method = attrgetter("auth.UserDelete")
USER_GRANT_ROLE: Method = attrgetter("auth.UserGrantRole")
ROLE_ADD: Method = attrgetter("auth.RoleAdd")
ROLE_LIST: Method = attrgetter("auth.RoleList")
ROLE_DELETE: Method = attrgetter("auth.RoleDelete")
ROLE_GRANT_PERMISSION: Method = attrgetter("auth.RoleGrantPermission")

_OPTIONS = (
    # Otherwise a forked child would find its parent's connection in the pool that all channels of a process share.
    ("grpc.use_local_subchannel_pool", 1),
    # A server that disappeared silently is detected within 15 s, also on an idle stream.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A server that returns is found before a lease can expire. The default pause grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Only the caller can decide whether a write may be repeated.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),
)
# A server that is cut off from the others then reports it at once instead of waiting.
_HAS_LEADER = ("hasleader", "true")

_GIVE_ACCOUNT = messages.ETCD_CORRECT_ACCOUNT()
# Exceptions and messages, by a part of the server's error text.
_MESSAGES: Sequence[tuple[str, type[CoordinationError], str]] = (
    ("requested lease not found", LeaseLost, messages.ETCD_LEASE_GONE()),
    (
        "database space exceeded",
        StoreFull,
        messages.ETCD_FULL(),
    ),
    ("request is too large", TooLarge, messages.ETCD_REQUEST_TOO_LARGE()),
    ("message larger than max", TooLarge, messages.ETCD_REQUEST_TOO_LARGE()),
    ("too many operations", TooLarge, messages.ETCD_TRANSACTION_TOO_LARGE()),
    ("invalid user ID or password", AccessDenied, f"etcd does not take this user and password. {_GIVE_ACCOUNT}"),
    ("user name is empty", AccessDenied, f"etcd wants a user and a password. {_GIVE_ACCOUNT}"),
    ("permission denied", AccessDenied, f"This user of etcd may not do that. {_GIVE_ACCOUNT}"),
    (
        "authentication is not enabled",
        AccessDenied,
        messages.ETCD_AUTHENTICATION_OFF(),
    ),
)
# The token is unknown (etcd was restarted, or it is five minutes old) or from before a change of the accounts. The call
# had no effect; with a new token it will succeed.
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old")
_TOKEN_PAUSE_SECONDS = 0.05
_REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)
# The client's error text at a deadline, and that of a server that detected it first.
_DEADLINE_TEXTS = ("Deadline Exceeded", "context deadline exceeded")
_ELSEWHERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Refused(CoordinationError):
    """etcd refused the request; its text is the message."""


class _Server:
    """One server of the cluster, with its stubs."""

    def __init__(self, name: str, ca: str) -> None:
        self.name = name
        self.channel = _channel(name, ca)
        self.kv = etcdrpc.KVStub(self.channel)
        self.lease = etcdrpc.LeaseStub(self.channel)
        self.auth = etcdrpc.AuthStub(self.channel)
        self.watch = etcdrpc.WatchStub(self.channel)
        self.maintenance = etcdrpc.MaintenanceStub(self.channel)

    def keep_alive(self, request: Any, **options: Any) -> Any:
        """Send one keepalive over a stream of its own."""
        stream = self.lease.LeaseKeepAlive(iter([request]), **options)
        try:
            answer = next(stream, None)
        finally:
            stream.cancel()
        if answer is None:
            raise StoreUnavailable(messages.ETCD_KEEPALIVE_ENDED(address=self.name))
        return answer


class Connection:
    """Sends requests to the server that answered last and, after a failure, to the next one.

    Any thread may call. Not for use across a fork.
    """

    def __init__(self, address: EtcdAddress, call_seconds: float = CALL_SECONDS) -> None:
        self._address = address
        self._servers = [_Server(name, address.ca) for name in address.servers]
        self._current = 0
        self._call_seconds = call_seconds
        self._token = ""
        self._signing_in = threading.Lock()
        self._closed = False

    def call(self, method: Method, request: Any, seconds: float | None = None) -> Any:
        """Return the answer, within ``seconds``. Raises a CoordinationError of the class that ``_MESSAGES`` lists."""
        give_up = time.monotonic() + (self._call_seconds if seconds is None else seconds)
        server = self._servers[self._current]
        with self._translated_errors(server):
            for pause in itertools.chain((0.0,), itertools.repeat(_TOKEN_PAUSE_SECONDS)):
                try:
                    return self._request(server, method, request, give_up)
                except grpc.RpcError as error:
                    if not _mentions(error, _STALE_TOKEN) or time.monotonic() + pause >= give_up:
                        raise
                # The portal opens and closes the accounts of other attempts: the next token may be old as well.
                self._token = ""
                time.sleep(pause)
        raise AssertionError("the tries do not end")

    def watch(self, create: Any, seconds: float) -> WatchStream:
        """Open a stream that ends by itself after ``seconds``."""
        server = self._servers[self._current]
        with self._translated_errors(server):
            return WatchStream(self, server, create, seconds, self._metadata(server, self._call_seconds))

    def failed(self, server: _Server, error: grpc.RpcError) -> CoordinationError:
        """Return the exception for an error. If the server is to blame, the next call uses another one."""
        if error.code() in _ELSEWHERE and server is self._servers[self._current]:
            self._current = (self._current + 1) % len(self._servers)
        for text, kind, message in _MESSAGES:
            if _mentions(error, (text,)):
                return kind(message)
        if error.code() in _REFUSALS and not _mentions(error, _STALE_TOKEN):
            return Refused(f"etcd at {server.name} refused a request: {error.details()}.")
        return StoreUnavailable(messages.ETCD_NOT_RESPONDING(address=server.name, why=error.details()))

    def close(self) -> None:
        """Close the connection. Calls from now on raise StoreUnavailable."""
        self._closed = True
        for server in self._servers:
            server.channel.close()

    @contextmanager
    def _translated_errors(self, server: _Server) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise self.failed(server, error) from error
        except ValueError as error:  # raised by gRPC when a channel is closed
            if not self._closed:
                raise
            raise StoreUnavailable(messages.ETCD_CONNECTION_CLOSED()) from error

    def _request(self, server: _Server, method: Method, request: Any, give_up: float) -> Any:
        metadata = self._metadata(server, give_up - time.monotonic())
        return method(server)(request, timeout=max(0.0, give_up - time.monotonic()), metadata=metadata)

    def _metadata(self, server: _Server, seconds: float) -> tuple[tuple[str, str], ...]:
        if not self._address.user:
            return (_HAS_LEADER,)
        with self._signing_in:
            if not self._token:
                account = etcdrpc.AuthenticateRequest(name=self._address.user, password=self._address.password)
                self._token = str(server.auth.Authenticate(account, timeout=max(0.0, seconds)).token)
            return (_HAS_LEADER, ("token", self._token))


class WatchStream:
    """Answers to one watch. Iterating ends at the deadline; raises a CoordinationError if the stream breaks."""

    def __init__(
        self, connection: Connection, server: _Server, create: Any, seconds: float, metadata: Sequence[tuple[str, str]]
    ) -> None:
        self._connection = connection
        self._server = server
        self._ended = threading.Event()
        self._call = server.watch.Watch(self._requests(create), timeout=seconds, metadata=metadata)

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            if not (self._ended.is_set() or _mentions(error, _DEADLINE_TEXTS)):
                raise self._connection.failed(self._server, error) from error
        finally:
            self.close()

    def close(self) -> None:
        self._ended.set()
        self._call.cancel()

    def _requests(self, create: Any) -> Iterator[Any]:
        yield etcdrpc.WatchRequest(create_request=create)
        self._ended.wait()


def _channel(name: str, ca: str) -> Any:
    if not ca:
        return grpc.insecure_channel(name, options=_OPTIONS)
    try:
        certificates = Path(ca).read_bytes()
    except OSError as error:
        kind = StoreUnavailable if error.errno in TEMPORARY else CoordinationError
        raise kind(messages.ETCD_CERTIFICATES_UNREADABLE(path=ca, error=error.strerror)) from error
    return grpc.secure_channel(name, grpc.ssl_channel_credentials(certificates), options=_OPTIONS)


def _mentions(error: grpc.RpcError, texts: Sequence[str]) -> bool:
    details = str(error.details())
    return any(part in details for part in texts)
