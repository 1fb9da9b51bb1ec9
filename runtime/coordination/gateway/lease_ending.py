"""Ends leases in etcd whose holders have not kept them alive (``lease_clock``)."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import grpc
from pyetcd import etcdrpc

from runtime.coordination.gateway.lease_clock import LeaseClock, Watched
from runtime.coordination.gateway.sessions import Sessions
from runtime.coordination.gateway.upstream import Upstream

_TIME_TO_LIVE = "/etcdserverpb.Lease/LeaseTimeToLive"
_REVOKE = "/etcdserverpb.Lease/LeaseRevoke"
_EVERY_SECONDS = 0.5
# A process that did not run for so long has not passed on keepalives.
_STALL_SECONDS = 3.0
_CALL_SECONDS = 5.0
# After an answer that took so long, keepalives of the holders may be as late.
_SLOW_SECONDS = 1.0
_AT_ONCE = 16
_UNAVAILABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class LeaseEnding:
    """Looks for overdue leases. It uses the latest token of the lease's account: the gateway has no account."""

    def __init__(
        self, leases: LeaseClock, sessions: Sessions, upstream: Upstream, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._leases = leases
        self._sessions = sessions
        self._upstream = upstream
        self._clock = clock

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        last = self._clock()
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            now = self._clock()
            if now - last > _STALL_SECONDS:
                self._leases.disturbed(now)
            last = now
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001  without this task, lost replicas are noticed after minutes
                sys.stderr.write(f"Overdue leases were not ended: {error!r}\n")
            # Answers that took long were not a stall of this process.
            last = self._clock()

    async def look(self) -> None:
        """End the leases that are overdue now."""
        overdue = self._leases.overdue(self._clock())
        for first in range(0, len(overdue), _AT_ONCE):
            await asyncio.gather(*map(self._check, overdue[first : first + _AT_ONCE]))

    async def _check(self, watched: Watched) -> None:
        now = self._clock()
        token = self._sessions.token(watched.account, now)
        if token is None:
            # After a restart of etcd no token is valid. A living replica of the attempt brings a new one; without any,
            # etcd ends the lease.
            self._postpone(watched)
            return
        request = etcdrpc.LeaseTimeToLiveRequest(ID=watched.lease)
        answer = await self._call(_TIME_TO_LIVE, request, etcdrpc.LeaseTimeToLiveResponse, token, watched)
        if answer is None:
            return
        if answer.TTL <= 0:
            self._leases.gone(watched.lease)
        elif self._leases.must_end(watched.lease, answer.grantedTTL, answer.TTL, self._clock()):
            await self._end(watched, token)

    async def _end(self, watched: Watched, token: str) -> None:
        request = etcdrpc.LeaseRevokeRequest(ID=watched.lease)
        if await self._call(_REVOKE, request, etcdrpc.LeaseRevokeResponse, token, watched) is not None:
            self._leases.gone(watched.lease)

    async def _call(self, method: str, request: Any, kind: Any, token: str, watched: Watched) -> Any:
        """Return etcd's answer, or None after an error."""
        channel, asked = self._upstream.channel, self._clock()
        try:
            raw = await channel.unary_unary(method)(
                request.SerializeToString(), timeout=_CALL_SECONDS, metadata=(("token", token),)
            )
        except grpc.aio.AioRpcError as error:
            self._upstream.failed(channel, error.code())
            if error.code() in _UNAVAILABLE:
                self._leases.disturbed(self._clock())
            elif error.code() is grpc.StatusCode.NOT_FOUND:
                self._leases.gone(watched.lease)
            else:
                sys.stderr.write(f"Lease {watched.lease:x} of {watched.account} was not ended: {error.details()}\n")
                self._postpone(watched)
            return None
        if self._clock() - asked > _SLOW_SECONDS:
            self._leases.disturbed(self._clock())
        return kind.FromString(raw)

    def _postpone(self, watched: Watched) -> None:
        self._leases.kept(watched.lease, watched.account, watched.seconds, self._clock())
