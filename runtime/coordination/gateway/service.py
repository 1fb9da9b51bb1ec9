"""The gateway's side of etcd's gRPC API: checks each message and passes it on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message
from pyetcd import etcdrpc

from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.gateway import authorization, limits
from runtime.coordination.gateway.authorization import Scope
from runtime.coordination.gateway.lease_clock import LeaseClock
from runtime.coordination.gateway.lease_ending import LeaseEnding
from runtime.coordination.gateway.lease_ids import LeaseIds
from runtime.coordination.gateway.limits import Limits, Tables, Usage
from runtime.coordination.gateway.sessions import Sessions
from runtime.coordination.gateway.upstream import Upstream

Code = grpc.StatusCode

# etcd's own limit is 1.5 MiB. Its text makes the client report the size.
MOST_REQUEST_BYTES = 1536 * 1024
MOST_SIGN_IN_BYTES = 4096
TOO_LARGE = "etcdserver: request is too large"
# etcd's text: the client signs in again.
INVALID_TOKEN = "etcdserver: invalid auth token"  # noqa: S105
# The same answer for each sign-in that fails.
_BAD_PASSWORD = "etcdserver: authentication failed, invalid user ID or password"  # noqa: S105
_LEASE_EXISTS = "lease already exists"
_UNREACHABLE = "coordination gateway: etcd is not available"
_IDS_TO_TRY = 5
_MESSAGE_SECONDS = 5.0
_CALL_SECONDS = 10.0
_STREAM_SECONDS = 3600.0
# etcd computes a slow hash for each sign-in.
_SIGN_INS_AT_ONCE = 16
# Longer than an attempt goes on without coordination (REGATTA_OUTAGE_SECONDS), by a lease's usual time.
HELD_SECONDS = 130
_CALLS_AT_ONCE = 32  # of one account: each may hold a large answer

_PAGE_KEYS = 100  # of up to 1.5 MiB each

_AUTHENTICATE = "/etcdserverpb.Auth/Authenticate"
_RANGE = "/etcdserverpb.KV/Range"
_WATCH = "/etcdserverpb.Watch/Watch"
_LEASE_GRANT = "/etcdserverpb.Lease/LeaseGrant"
_LEASE_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
_KEEP_ALIVE = "/etcdserverpb.Lease/LeaseKeepAlive"
_CALLS: dict[str, type[Message]] = {
    _RANGE: etcdrpc.RangeRequest,
    "/etcdserverpb.KV/Put": etcdrpc.PutRequest,
    "/etcdserverpb.KV/DeleteRange": etcdrpc.DeleteRangeRequest,
    "/etcdserverpb.KV/Txn": etcdrpc.TxnRequest,
    _LEASE_GRANT: etcdrpc.LeaseGrantRequest,
    _LEASE_REVOKE: etcdrpc.LeaseRevokeRequest,
}
_STREAMS: dict[str, type[Message]] = {_WATCH: etcdrpc.WatchRequest, _KEEP_ALIVE: etcdrpc.LeaseKeepAliveRequest}


class Refused(Exception):
    """Refusal of a request. The code and the text are the answer."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(frozen=True)
class _Caller:
    """Account that sends a call, with what it may use."""

    scope: Scope
    usage: Usage
    metadata: tuple[tuple[str, str], ...]
    slots: asyncio.Semaphore


class Gateway(grpc.GenericRpcHandler):
    """Handler of all calls. A method that it does not list is answered with UNIMPLEMENTED."""

    def __init__(
        self,
        site: EtcdAddress,
        upstream: Upstream,
        leases: LeaseIds,
        bounds: Limits | None = None,
        held_seconds: int = HELD_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``held_seconds``: how long etcd keeps a lease at least, while nobody can keep it alive."""
        self._site = site
        self._held_seconds = held_seconds
        self._upstream = upstream
        self._leases = leases
        self._clock = clock
        self._sessions = Sessions()
        self._lease_clock = LeaseClock()
        self.lease_ending = LeaseEnding(self._lease_clock, self._sessions, upstream, clock)
        self._tables = Tables(bounds or Limits())
        self._signing_in = asyncio.Semaphore(_SIGN_INS_AT_ONCE)
        self._slots = limits.Recent(lambda now: asyncio.Semaphore(_CALLS_AT_ONCE))

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call. A call that is refused here is answered before its message is read."""
        method = handler_call_details.method
        if method == _AUTHENTICATE:
            return grpc.stream_unary_rpc_method_handler(self._authenticate)
        if method not in _CALLS and method not in _STREAMS:
            return None
        now = self._clock()
        metadata = dict(handler_call_details.invocation_metadata)
        token = str(metadata.get("token", ""))
        scope = self._sessions.scope(token, now)
        if scope is None:
            return _refuse_watch() if method == _WATCH else _refuse(Code.UNAUTHENTICATED, INVALID_TOKEN)
        usage = self._tables.usage(scope.account, now)
        why = usage.call(now)
        if why:
            return _refuse(Code.RESOURCE_EXHAUSTED, why)
        passed = (("token", token), *((("hasleader", "true"),) if "hasleader" in metadata else ()))
        caller = _Caller(scope, usage, passed, self._slots.get(scope.account, now))
        return self._stream_handler(method, caller) if method in _STREAMS else self._call_handler(method, caller)

    # --- Sign-in ---
    async def _authenticate(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        with _refusals() as refused:
            return await self._sign_in(await _only(requests), context)
        return await _abort(context, refused[0])

    async def _sign_in(self, raw: bytes, context: Any) -> bytes:
        if len(raw) > MOST_SIGN_IN_BYTES:
            raise Refused(Code.RESOURCE_EXHAUSTED, TOO_LARGE)
        request = _parsed(etcdrpc.AuthenticateRequest, raw)
        scope = authorization.scope_of(request.name, self._site, self._leases)
        if scope is None:
            raise Refused(Code.INVALID_ARGUMENT, _BAD_PASSWORD)
        host = context.peer().rpartition(":")[0]
        why = self._tables.sign_in(scope.account, host, self._clock())
        if why:
            raise Refused(Code.RESOURCE_EXHAUSTED, why)
        try:
            async with self._signing_in:
                answer = await self._pass_on(_AUTHENTICATE, request, (), context)
        except Refused as refused:
            if refused.code is Code.INVALID_ARGUMENT:
                self._tables.sign_in_failed(scope.account, host, self._clock())
                raise Refused(Code.INVALID_ARGUMENT, _BAD_PASSWORD) from None
            raise
        self._sessions.add(str(_parsed(etcdrpc.AuthenticateResponse, answer).token), scope, self._clock())
        return answer

    # --- Calls with one request ---
    def _call_handler(self, method: str, caller: _Caller) -> Any:
        async def handle(requests: AsyncIterator[bytes], context: Any) -> bytes:
            with _refusals() as refused:
                return await self._call(method, caller, await _only(requests), context)
            return await _abort(context, refused[0])

        return grpc.stream_unary_rpc_method_handler(handle)

    async def _call(self, method: str, caller: _Caller, raw: bytes, context: Any) -> bytes:
        request: Any = self._checked(_CALLS[method], raw, caller)
        why = caller.usage.write(authorization.writes(request), len(raw), self._clock())
        if why:
            raise Refused(Code.RESOURCE_EXHAUSTED, why)
        async with caller.slots:
            if method == _LEASE_GRANT:
                return await self._grant(request, caller, context)
            if authorization.puts(request):
                await self._check_stored(caller, context)
            answer = await self._pass_on(method, request, caller.metadata, context)
        caller.usage.read(len(answer))
        if method == _LEASE_REVOKE:
            caller.usage.lease_lives(request.ID, 0, self._clock())
            self._lease_clock.gone(request.ID)
        return answer

    async def _check_stored(self, caller: _Caller, context: Any) -> None:
        """Refuse a put if the account stores too much. The bytes are counted now and then."""
        if caller.usage.must_count():
            caller.usage.counted(await self._stored(caller, context))
        why = caller.usage.put()
        if why:
            raise Refused(Code.RESOURCE_EXHAUSTED, why)

    async def _stored(self, caller: _Caller, context: Any) -> int:
        """Return the bytes of the account's keys and values, up to the page that exceeds the limit."""
        stored, key = 0, caller.scope.begin
        while stored <= self._tables.limits.stored_bytes:
            request = etcdrpc.RangeRequest(key=key, range_end=caller.scope.end, limit=_PAGE_KEYS)
            page = _parsed(etcdrpc.RangeResponse, await self._pass_on(_RANGE, request, caller.metadata, context))
            stored += sum(len(entry.key) + len(entry.value) for entry in page.kvs)
            if not page.more:
                break
            key = page.kvs[-1].key + b"\0"
        return stored

    async def _grant(self, request: Any, caller: _Caller, context: Any) -> bytes:
        """Grant a lease whose id names the account and its time to live. An id that is in use is replaced.

        etcd keeps it longer, and the gateway ends it (``lease_clock``).
        """
        seconds = request.TTL
        why = caller.usage.grant(seconds, self._clock())
        if why:
            raise Refused(Code.RESOURCE_EXHAUSTED, why)
        request.TTL = max(seconds, self._held_seconds)
        for left in reversed(range(_IDS_TO_TRY)):
            request.ID = self._leases.choose(caller.scope.account, max(0, seconds))
            try:
                raw = await self._pass_on(_LEASE_GRANT, request, caller.metadata, context)
            except Refused as refused:
                if not left or _LEASE_EXISTS not in refused.text:
                    raise
            else:
                return self._lease_lives(_parsed(etcdrpc.LeaseGrantResponse, raw), caller)
        raise AssertionError("the last try returns or raises")

    def _lease_lives(self, answer: Any, caller: _Caller) -> bytes:
        """Note what etcd says of a lease, and return the answer for its holder: with the time to live it asked for."""
        now = self._clock()
        caller.usage.lease_lives(answer.ID, answer.TTL, now)
        seconds = self._leases.seconds(answer.ID, caller.scope.account)
        if answer.TTL <= 0:
            self._lease_clock.gone(answer.ID)
        elif seconds is not None:
            self._lease_clock.kept(answer.ID, caller.scope.account, seconds, now)
            answer.TTL = seconds
        return bytes(answer.SerializeToString())

    async def _pass_on(self, method: str, request: Any, metadata: Any, context: Any) -> bytes:
        channel = self._upstream.channel
        try:
            call = channel.unary_unary(method)
            answer: bytes = await call(
                request.SerializeToString(), timeout=_seconds(context, _CALL_SECONDS), metadata=metadata
            )
        except grpc.aio.AioRpcError as error:
            raise self._failed(channel, error) from None
        return answer

    # --- Streams ---
    def _stream_handler(self, method: str, caller: _Caller) -> Any:
        async def handle(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            with _refusals() as refused:
                async with contextlib.aclosing(self._stream(method, caller, requests, context)) as answers:
                    async for answer in answers:
                        yield answer
                return
            await _abort(context, refused[0])

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _stream(
        self, method: str, caller: _Caller, requests: AsyncIterator[bytes], context: Any
    ) -> AsyncGenerator[bytes, None]:
        why = caller.usage.open_stream()
        if why:
            raise Refused(Code.RESOURCE_EXHAUSTED, why)
        channel = self._upstream.channel
        call = channel.stream_stream(method)(timeout=_seconds(context, _STREAM_SECONDS), metadata=caller.metadata)
        sending = asyncio.create_task(self._send(method, caller, requests, call))
        try:
            async for answer in call:
                caller.usage.read(len(answer))
                if method == _KEEP_ALIVE:
                    yield self._lease_lives(_parsed(etcdrpc.LeaseKeepAliveResponse, answer), caller)
                else:
                    yield answer
        except grpc.aio.AioRpcError as error:
            raise _refusal_of(sending) or self._failed(channel, error) from None
        except asyncio.CancelledError:
            refused = _refusal_of(sending)
            if refused is None:
                raise
            raise refused from None
        finally:
            caller.usage.close_stream()
            call.cancel()
            sending.cancel()

    async def _send(self, method: str, caller: _Caller, requests: AsyncIterator[bytes], call: Any) -> None:
        """Pass the caller's messages on. A refusal ends the whole stream."""
        created = 0
        try:
            async for raw in requests:
                request: Any = self._checked(_STREAMS[method], raw, caller)
                created += method == _WATCH and request.HasField("create_request")
                why = limits.TOO_MANY_WATCHES if created > self._tables.limits.watches_per_stream else ""
                why = why or caller.usage.call(self._clock())
                if why:
                    raise Refused(Code.RESOURCE_EXHAUSTED, why)
                await call.write(request.SerializeToString())
            await call.done_writing()
        except Refused:
            call.cancel()
            raise
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # etcd has ended the stream: the reader of its answers gets the reason

    # --- Common ---
    def _checked(self, kind: type[Message], raw: bytes, caller: _Caller) -> Message:
        if len(raw) > MOST_REQUEST_BYTES:
            raise Refused(Code.INVALID_ARGUMENT, TOO_LARGE)
        request = _parsed(kind, raw)
        why = authorization.refusal(request, caller.scope)
        if why:
            raise Refused(Code.PERMISSION_DENIED, f"etcdserver: permission denied: {why}")
        return request

    def _failed(self, channel: Any, error: Any) -> Refused:
        """Return etcd's error as the answer. It does not show the addresses of etcd's servers."""
        self._upstream.failed(channel, error.code())
        if error.code() is Code.UNAVAILABLE:  # not for a deadline, which any caller can choose
            self._lease_clock.disturbed(self._clock())
        hidden = error.code() is Code.UNAVAILABLE and not str(error.details()).startswith("etcdserver:")
        return Refused(error.code(), _UNREACHABLE if hidden else str(error.details()))


async def _only(requests: AsyncIterator[bytes]) -> bytes:
    """Return the message of a call with one. A caller that sends none does not hold its place for long."""
    with contextlib.suppress(TimeoutError, StopAsyncIteration):
        async with asyncio.timeout(_MESSAGE_SECONDS):
            return await anext(aiter(requests))
    raise Refused(Code.DEADLINE_EXCEEDED, "coordination gateway: the call has no message")


def _parsed(kind: type[Message], raw: bytes) -> Any:
    """Parse a message, without fields that are not known here: nothing is passed on unchecked."""
    try:
        message = kind.FromString(raw)
    except DecodeError:
        raise Refused(Code.INVALID_ARGUMENT, "coordination gateway: the message cannot be parsed") from None
    message.DiscardUnknownFields()  # type: ignore[attr-defined,unused-ignore]
    return message


@contextlib.contextmanager
def _refusals() -> Iterator[list[Refused]]:
    """Collect the refusal that ends the block."""
    refused: list[Refused] = []
    try:
        yield refused
    except Refused as error:
        refused.append(error)


def _refusal_of(sending: asyncio.Task[None]) -> Refused | None:
    error = sending.exception() if sending.done() and not sending.cancelled() else None
    return error if isinstance(error, Refused) else None


async def _abort(context: Any, refused: Refused) -> NoReturn:
    await context.abort(refused.code, refused.text)
    raise AssertionError("abort raises")


def _refuse(code: grpc.StatusCode, text: str) -> Any:
    """Return a handler that refuses the call and reads none of its messages."""

    async def handle(requests: Any, context: Any) -> None:
        await context.abort(code, text)

    return grpc.stream_unary_rpc_method_handler(handle)


def _refuse_watch() -> Any:
    """Return a handler that ends a watch as etcd does for a token that it does not know."""

    async def handle(requests: Any, context: Any) -> AsyncIterator[bytes]:
        yield etcdrpc.WatchResponse(watch_id=-1, created=True, canceled=True).SerializeToString()

    return grpc.stream_stream_rpc_method_handler(handle)


def _seconds(context: Any, most: float) -> float:
    left = context.time_remaining()
    return most if left is None else max(0.0, min(float(left), most))
