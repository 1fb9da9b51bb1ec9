"""The websocket of terminals and commands: ``/ws/v1/exec?job=&replica=&session=&after=&columns=&rows=&command=&ack=``.

It relays frames between a person and the agent of a replica (``runtime.agent.terminal.handlers``): text frames are JSON
objects, binary frames are input and output. A terminal begins at once. With ``command=1`` the first message is
``{"command": [...]}``. With ``ack=1`` the portal sends at most UNACKNOWLEDGED bytes more than were acknowledged with
``{"op": "ack", "bytes"}``: a browser cannot slow its socket down. The portal adds ``{"t": "ready", "replica",
"recorded"}``, ``{"t": "hb"}`` every 15 s, and ``{"t": "error", "code", "detail"}`` before it closes a refused socket.

The shell belongs to the agent: a closed socket, or the end of this process, does not end it. A client returns with
``session`` and the position after its last output in ``after``, through any web process.

Codes of the close are those of ``jobs.live.closes``, and 1000: the program has ended, 4400: the request was refused,
4410: the right to it was lost, 4411: the connection to the replica was lost.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

from jobs.control.connection import AsyncControlConnection, connect_async
from jobs.control.errors import ControlError
from jobs.live import closes
from jobs.live.closes import code_after
from jobs.live.replica_socket import RIGHT_LOST, ReplicaSocket
from jobs.messages import terminals as messages
from jobs.streams.tailer import in_thread
from jobs.terminals import access, journal, requests
from jobs.terminals.journal import Visit
from jobs.terminals.recorder import Recorder
from portal.common.errors import Forbidden, RegattaError, ValidationFailed
from rbac.audit.context import AuditContext, address_of
from runtime.control import frames
from runtime.control.frames import Frame, Kind
from runtime.errors import WireError

ENDED, REFUSED, REPLICA_LOST = 1000, 4400, 4411
REASONS = {
    **closes.REASONS,
    ENDED: "The program has ended.",
    REFUSED: "The terminal cannot be opened.",
    RIGHT_LOST: "You may not use this terminal any more.",
    REPLICA_LOST: "The connection to the replica was lost.",
}

# A right that is lost without a notice ends the socket after this time.
RECHECK_SECONDS = 4.0
AFTER_RING_SECONDS = 0.5
# How long the agent may not accept input: a program that does not read must not fill this process.
INPUT_SECONDS = 30.0
UNACKNOWLEDGED = 1024 * 1024

# Open sockets of each user in this process.
_open_sockets: Counter[int] = Counter()


class ExecConsumer(ReplicaSocket):
    """A socket. It reads the agent's next frame after the previous one was sent: a slow reader slows the program."""

    recheck_seconds, after_ring_seconds = RECHECK_SECONDS, AFTER_RING_SECONDS
    reasons, open_sockets = REASONS, _open_sockets

    def job_id(self) -> str:
        return self._query.job

    def prepare(self) -> None:
        self._visit: Visit | None = None
        self._agent: AsyncControlConnection | None = None
        self._recorder: Recorder | None = None
        self._begun_at = time.monotonic()
        self._shown = self._acknowledged = 0
        self._acknowledgement = asyncio.Event()
        self._exit_code: int | None = None
        self._running = False

    # --- Opening -----------------------------------------------------------------------------------------------------
    async def open(self) -> int | None:
        """Connect to the agent, or return the code that refuses the request."""
        assert self._user is not None  # noqa: S101  the caller is admitted
        try:
            self._query = requests.query_of(self.scope["query_string"])
            if await in_thread(self._credentials.is_impersonated):
                raise Forbidden(messages.IMPERSONATED())
            target = await in_thread(access.target_for, self._user, self._query.job, self._query.replica)
            self._agent = await connect_async(target.ref, target.replica)
        except (RegattaError, ControlError) as error:
            await self._complain(error)
            return REFUSED
        client = self.scope.get("client") or ("", 0)
        context = AuditContext(address=address_of(client[0]), request_id="", impersonator=None)
        self._visit = Visit(self._user, target, self._query.command, context)
        await in_thread(journal.opened, self._visit)
        if target.recorded and not self._query.command:
            self._recorder = Recorder(target, self._user.username, self._query.columns, self._query.rows)
        await self._show_message({"t": "ready", "replica": target.replica, "recorded": self._recorder is not None})
        self._tasks = [asyncio.create_task(work) for work in (self._beat(), self._guard())]
        if not self._query.command:
            query = self._query
            await self._begin(
                "terminal", session=query.session, after=query.after, columns=query.columns, rows=query.rows
            )
        return None

    async def _begin(self, call: str, **parameters: Any) -> None:
        assert self._agent is not None  # noqa: S101  connected before
        await self._agent.begin(call, **parameters)
        self._running = True
        self._tasks.append(asyncio.create_task(self._relay()))

    # --- From the person ---------------------------------------------------------------------------------------------
    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._agent is None or self.severed:
            return
        try:
            await self._pass_on(text_data, bytes_data)
        except (RegattaError, ControlError) as error:
            await self._complain(error)
            await self._end(REFUSED if isinstance(error, RegattaError) else REPLICA_LOST)
        except Exception as error:  # noqa: BLE001  any internal error
            # If raised further, it would end this consumer without ``disconnect``: its tasks and its place would stay.
            await self._end(code_after(error, "A message of a terminal could not be passed on."))

    async def _pass_on(self, text: str | None, data: bytes | None) -> None:
        assert self._agent is not None  # noqa: S101  checked by the caller
        if not self._running:
            await self._begin("exec", **requests.command_of(text))
        elif data is not None:
            if len(data) > requests.MOST_BYTES:
                raise ValidationFailed({"input": [f"Send at most {requests.MOST_BYTES:,} bytes at once."]})
            await self._agent.send(Frame(Kind.BYTES, data), INPUT_SECONDS)
        elif text is not None:
            operation = requests.operation_of(text)
            if operation["op"] == "ack":
                self._acknowledge(operation["bytes"])
                return
            if self._recorder is not None and operation["op"] == "resize":
                self._recorder.resize(operation["columns"], operation["rows"])
            await self._agent.send(frames.of_document(operation), INPUT_SECONDS)

    def _acknowledge(self, count: Any) -> None:
        if type(count) is int and count > 0:
            self._acknowledged = min(self._acknowledged + count, self._shown)
            self._acknowledgement.set()

    # --- To the person -----------------------------------------------------------------------------------------------
    async def _relay(self) -> None:
        """Send the agent's frames until the program or the connection has ended."""
        assert self._agent is not None  # noqa: S101  connected before
        assert self._visit is not None  # noqa: S101  likewise
        agent = self._agent
        try:
            while await self._show(await agent.receive()) and not self.severed:
                pass
        except (ControlError, WireError):
            if self.severed:
                return
            await self._complain(ControlError(messages.REPLICA_CONNECTION_LOST(name=self._visit.target.replica)))
            await self._end(REPLICA_LOST)
        except Exception as error:  # noqa: BLE001  any internal error
            await self._end(code_after(error, "A terminal has failed."))

    async def _show(self, frame: Frame) -> bool:
        """Send one frame. Return whether more follow."""
        if frame.kind is Kind.BYTES:
            while self._query.acknowledges and self._shown - self._acknowledged > UNACKNOWLEDGED:
                self._acknowledgement.clear()
                await self._acknowledgement.wait()
            self._shown += len(frame.payload)
            if self._recorder is not None:
                await self._recorder.output(frame.payload)
            return await self._send(frame.payload)
        document = frame.document()
        kind = document.get("t") or ("error" if document.get("ok") is False else "")
        if kind == "exit":
            self._exit_code = document.get("code")
        if document.get("ok") is False:
            document = {"t": "error", "code": document.get("code"), "detail": document.get("message")}
        present = await self._show_message(document)
        if kind in ("exit", "error"):
            await self._end(ENDED if kind == "exit" else REFUSED)
            return False
        return present

    # --- The end -----------------------------------------------------------------------------------------------------
    async def disconnect(self, code: int) -> None:
        self._leave()
        await self.abandon()
        if self._recorder is not None:
            await self._recorder.close()
        visit, self._visit = self._visit, None
        if visit is not None:
            seconds = time.monotonic() - self._begun_at
            await in_thread(journal.closed, visit, seconds, self._shown, self._exit_code)

    async def abandon(self) -> None:
        """Close the connection to the agent; a terminal goes on there."""
        agent, self._agent = self._agent, None
        if agent is not None:
            await agent.close()
