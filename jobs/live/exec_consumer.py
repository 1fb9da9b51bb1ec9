"""The websocket of terminals and commands: ``/ws/v1/exec?job=&replica=&session=&after=&columns=&rows=&command=&ack=``.

It relays frames between a person and the agent of a replica (``runtime.agent.terminal.handlers``): text frames are JSON
objects, binary frames are input and output. A terminal begins at once. With ``command=1`` the first message is
``{"command": [...]}``. With ``ack=1`` the portal sends at most UNACKNOWLEDGED bytes more than were acknowledged with
``{"op": "ack", "bytes"}``: a browser cannot slow its socket down. The portal adds ``{"t": "ready", "replica",
"recorded"}``, ``{"t": "hb"}`` every 15 s, and ``{"t": "error", "code", "detail"}`` before it closes a refused socket.

The shell belongs to the agent: a closed socket, or the end of this process, does not end it. A client returns with
``session`` and the position after its last output in ``after``, through any web process.

Codes of the close are those of ``jobs.live.consumers``, and 1000: the program has ended, 4400: the request was refused,
4410: the right to it was lost, 4411: the connection to the replica was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Awaitable
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from django.utils import translation

from jobs.control.connection import AsyncControlConnection, connect_async
from jobs.control.errors import ControlError
from jobs.live import consumers
from jobs.live.authentication import Credentials, credentials, language, same_origin
from jobs.live.consumers import NOT_SIGNED_IN, TOO_MANY, TOO_SLOW, WRONG_ORIGIN, code_after
from jobs.messages import terminals as messages
from jobs.streams.tailer import in_thread, tailer
from jobs.terminals import access, journal, requests
from jobs.terminals.journal import Visit
from jobs.terminals.recorder import Recorder
from portal.common.errors import Forbidden, RegattaError, ValidationFailed
from portal.common.messages import localized
from portal.common.monitoring import log_context
from rbac.audit.context import AuditContext, address_of
from rbac.models import User
from rbac.socket_revocation import account_topic
from runtime.control import frames
from runtime.control.frames import Frame, Kind
from runtime.errors import WireError

ENDED, REFUSED, RIGHT_LOST, REPLICA_LOST = 1000, 4400, 4410, 4411
REASONS = {
    **consumers.REASONS,
    ENDED: "The program has ended.",
    REFUSED: "The terminal cannot be opened.",
    RIGHT_LOST: "You may not use this terminal any more.",
    REPLICA_LOST: "The connection to the replica was lost.",
}

HEARTBEAT_SECONDS = 15.0
# A right that is lost without a notice ends the socket after this time.
RECHECK_SECONDS = 4.0
AFTER_RING_SECONDS = 0.5
SEND_SECONDS = 20.0
# How long the agent may not accept input: a program that does not read must not fill this process.
INPUT_SECONDS = 30.0
SOCKETS_PER_USER = 20
UNACKNOWLEDGED = 1024 * 1024

# Open sockets of each user in this process.
_open_sockets: Counter[int] = Counter()


class ExecConsumer(AsyncWebsocketConsumer):
    """A socket. It reads the agent's next frame after the previous one was sent: a slow reader slows the program."""

    async def connect(self) -> None:
        self._user: User | None = None
        self._visit: Visit | None = None
        self._agent: AsyncControlConnection | None = None
        self._recorder: Recorder | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._sending = asyncio.Lock()
        self._begun_at = time.monotonic()
        self._shown = self._acknowledged = 0
        self._acknowledgement = asyncio.Event()
        self._exit_code: int | None = None
        self._running = False
        await self.accept()
        self._credentials = credentials(self.scope)
        # Applies only to this socket's tasks, which inherit its context.
        translation.activate(language(self.scope))
        refused = await self._guarded(self._admit(self._credentials))
        if refused is None:
            refused = await self._guarded(self._open())
        if refused is not None:
            await self._end(refused)

    # --- Opening -----------------------------------------------------------------------------------------------------
    async def _admit(self, shown: Credentials) -> int | None:
        """Admit the caller, or return the code that refuses it."""
        if not shown.token and not same_origin(self.scope):
            return WRONG_ORIGIN
        user = await in_thread(shown.user)
        if user is None:
            return NOT_SIGNED_IN
        if _open_sockets[user.pk] >= SOCKETS_PER_USER:
            return TOO_MANY
        _open_sockets[user.pk] += 1
        self._user = user
        log_context.note(user=user.pk)
        return None

    async def _open(self) -> int | None:
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
        await self._send({"t": "ready", "replica": target.replica, "recorded": self._recorder is not None})
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
        if self._agent is None:
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
        try:
            while await self._show(await self._agent.receive()):
                pass
        except (ControlError, WireError):
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
            return await self._send_raw(frame.payload)
        document = frame.document()
        kind = document.get("t") or ("error" if document.get("ok") is False else "")
        if kind == "exit":
            self._exit_code = document.get("code")
        if document.get("ok") is False:
            document = {"t": "error", "code": document.get("code"), "detail": document.get("message")}
        present = await self._send(document)
        if kind in ("exit", "error"):
            await self._end(ENDED if kind == "exit" else REFUSED)
            return False
        return present

    async def _send(self, document: dict[str, Any]) -> bool:
        return await self._send_raw(json.dumps(document, ensure_ascii=False))

    async def _send_raw(self, content: str | bytes) -> bool:
        """Send one frame. Waits while the connection's buffer is full, and closes the socket after SEND_SECONDS.

        Return False if the socket has no reader any more. That is no error: ``disconnect`` follows.
        """
        try:
            async with self._sending, asyncio.timeout(SEND_SECONDS):
                if isinstance(content, str):
                    await self.send(text_data=content)
                else:
                    await self.send(bytes_data=content)
        except TimeoutError:  # before OSError, of which it is one
            await self._end(TOO_SLOW)
            return False
        except OSError:
            return False
        return True

    async def _complain(self, error: RegattaError | ControlError) -> None:
        code = error.code if isinstance(error, RegattaError) else getattr(error, "code", "unreachable")
        detail = error.detail if isinstance(error, RegattaError) else str(error)
        await self._send({"t": "error", "code": code, "detail": localized(detail)})

    async def _end(self, code: int) -> None:
        """Close the socket, if the reader has not left already: the server then raises OSError, as ASGI requires."""
        with contextlib.suppress(OSError):
            await self.close(code=code, reason=REASONS[code])

    # --- While it is open --------------------------------------------------------------------------------------------
    async def _beat(self) -> None:
        """Send a heartbeat, so that proxies keep the connection."""
        while await self._send({"t": "hb"}):
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _guard(self) -> None:
        """Check, at a sign-out or a change of role and every few seconds, whether the caller may still use it."""
        assert self._user is not None  # noqa: S101  starts after the caller is admitted
        with tailer().doorbell.subscribe(account_topic(self._user.pk)) as bell:
            rung = False
            while True:
                # A sign-out rings just before its session is removed: a second check follows soon after a ring.
                rung = await bell.wait(AFTER_RING_SECONDS if rung else RECHECK_SECONDS)
                code = await self._guarded(self._recheck())
                if code is not None:
                    await self._end(code)
                    return

    async def _guarded(self, check: Awaitable[int | None]) -> int | None:
        """Return the code of the check, or the code of the error that it raises, as without a database."""
        try:
            return await check
        except Exception as error:  # noqa: BLE001  any internal error
            return code_after(error, "The caller of a terminal could not be checked.")

    async def _recheck(self) -> int | None:
        """Return a code if the socket must close."""
        user = await in_thread(self._credentials.user)
        if user is None:
            return NOT_SIGNED_IN
        try:
            await in_thread(access.may_exec, user, self._query.job)
        except RegattaError as error:
            await self._complain(error)
            return RIGHT_LOST
        return None

    async def disconnect(self, code: int) -> None:
        for task in self._tasks:
            task.cancel()
        if self._user is not None:
            _open_sockets[self._user.pk] -= 1
            if not _open_sockets[self._user.pk]:
                del _open_sockets[self._user.pk]
            self._user = None
        agent, self._agent = self._agent, None
        if agent is not None:
            await agent.close()
        if self._recorder is not None:
            await self._recorder.close()
        visit, self._visit = self._visit, None
        if visit is not None:
            seconds = time.monotonic() - self._begun_at
            await in_thread(journal.closed, visit, seconds, self._shown, self._exit_code)
