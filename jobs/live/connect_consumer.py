"""The websocket to a port in a running replica: ``/ws/v1/connect?job=&replica=&port=``.

Binary frames are the bytes of one connection, in both directions. ``{"op": "end"}`` ends the direction to the server.
The portal sends ``{"t": "ready", "replica"}`` first, ``{"t": "end"}`` at the end of the other direction,
``{"t": "hb"}`` every 15 s, and ``{"t": "error", "code", "detail"}`` before it closes a refused socket.

Codes of the close are those of ``jobs.live.exec_consumer``; 1000: both directions have ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from jobs.control.errors import ControlError
from jobs.control.streams import AsyncStream, address_of, open_stream
from jobs.live.closes import code_after
from jobs.live.exec_consumer import ENDED, REASONS, REFUSED, REPLICA_LOST
from jobs.live.replica_socket import ReplicaSocket
from jobs.messages import terminals as messages
from jobs.streams.tailer import in_thread
from jobs.terminals import access, journal, requests
from portal.common.errors import Forbidden, RegattaError, ValidationFailed
from rbac.audit.context import AuditContext
from rbac.audit.context import address_of as address_of_client

RECHECK_SECONDS, AFTER_RING_SECONDS = 4.0, 0.5

# Open sockets of each user in this process.
_open_sockets: Counter[int] = Counter()


class ConnectConsumer(ReplicaSocket):
    """A socket. It reads the next bytes of the server after the previous ones were sent, and the other way round."""

    sockets_per_user = 64  # a page that is opened through it takes several
    recheck_seconds, after_ring_seconds = RECHECK_SECONDS, AFTER_RING_SECONDS
    reasons, open_sockets = {**REASONS, ENDED: "The connection has ended."}, _open_sockets

    def job_id(self) -> str:
        return self._query.job

    def prepare(self) -> None:
        self._stream: AsyncStream | None = None
        self._ends = 0

    async def open(self) -> int | None:
        """Connect to the port, or return the code that refuses the request."""
        assert self._user is not None  # noqa: S101  the caller is admitted
        try:
            self._query = requests.port_query_of(self.scope["query_string"])
            if await in_thread(self._credentials.is_impersonated):
                raise Forbidden(messages.IMPERSONATED())
            target = await in_thread(access.target_for, self._user, self._query.job, self._query.replica)
            self._stream = await open_stream(target.ref, target.replica, address_of(port=self._query.port))
        except (RegattaError, ControlError) as error:
            await self._complain(error)
            return REFUSED
        client = self.scope.get("client") or ("", 0)
        context = AuditContext(address=address_of_client(client[0]), request_id="", impersonator=None)
        await in_thread(journal.connected, self._user, target, self._query.port, context)
        await self._show_message({"t": "ready", "replica": target.replica})
        self._tasks = [asyncio.create_task(work) for work in (self._beat(), self._guard(), self._relay(self._stream))]
        return None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        stream = self._stream
        if stream is None or self.severed:
            return
        try:
            if bytes_data is not None:
                await stream.write(bytes_data)
            elif requests.operation_of(text_data or "")["op"] == "end":
                await stream.end()
                await self._end_direction()
            else:
                raise ValidationFailed({"op": ["Must be end."]})
        except (RegattaError, ControlError) as error:
            await self._complain(error)
            await self._end(REFUSED if isinstance(error, RegattaError) else REPLICA_LOST)
        except Exception as error:  # noqa: BLE001  any internal error
            await self._end(code_after(error, "Bytes for a replica could not be passed on."))

    async def _relay(self, stream: AsyncStream) -> None:
        """Send the server's bytes until their end."""
        try:
            while data := await stream.read():
                if self.severed or not await self._send(data):
                    return
            await self._show_message({"t": "end"})
            await self._end_direction()
        except ControlError as error:
            if not self.severed:
                await self._complain(error)
                await self._end(REPLICA_LOST)
        except Exception as error:  # noqa: BLE001  any internal error
            await self._end(code_after(error, "A connection to a replica has failed."))

    async def _end_direction(self) -> None:
        self._ends += 1
        if self._ends == 2:
            await self._end(ENDED)

    async def disconnect(self, code: int) -> None:
        self._leave()
        await self.abandon()

    async def abandon(self) -> None:
        """Close the stream to the port."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()
