"""Base of the websockets to a running replica: heartbeats, errors, and the right to run programs there."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from jobs.control.errors import ControlError
from jobs.live.person_socket import CLOSE_SECONDS, PersonSocket
from jobs.streams.tailer import in_thread
from jobs.terminals import access
from portal.common.errors import RegattaError
from portal.common.messages import localized
from rbac.models import User

RIGHT_LOST = 4410
HEARTBEAT_SECONDS = 15.0


class ReplicaSocket(PersonSocket):
    """A socket whose account may run programs in replicas of the job while it is open."""

    def job_id(self) -> str:
        """Return the id of the job."""
        raise NotImplementedError

    async def recheck(self, user: User) -> int | None:
        """Return a code if the socket must close."""
        try:
            await in_thread(access.may_exec, user, self.job_id())
        except RegattaError as error:
            self.severed = True
            await self.abandon()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._complain(error)
            return RIGHT_LOST
        return None

    async def _complain(self, error: RegattaError | ControlError) -> None:
        code = error.code if isinstance(error, RegattaError) else getattr(error, "code", "unreachable")
        detail = error.detail if isinstance(error, RegattaError) else str(error)
        await self._show_message({"t": "error", "code": code, "detail": localized(detail)})

    async def _show_message(self, document: dict[str, Any]) -> bool:
        return await self._send(json.dumps(document, ensure_ascii=False))

    async def _beat(self) -> None:
        """Send a heartbeat, so that proxies keep the connection."""
        while await self._show_message({"t": "hb"}):
            await asyncio.sleep(HEARTBEAT_SECONDS)
