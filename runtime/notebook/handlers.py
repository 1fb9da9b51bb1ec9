"""Routes of our own below ``regatta/``: activity, and the outputs that a page follows."""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from runtime.notebook.contents import RecordedContents
from runtime.notebook.kernels import NotebookKernels
from runtime.notebook.output_log import OutputLog

# A terminal counts as busy for this long after input or output.
_TERMINAL_BUSY = timedelta(seconds=30)
# Seconds that operations are gathered for one frame to a page.
_GATHER = 0.03


class ActivityHandler(APIHandler):
    """``GET regatta/activity``: whether something runs, and when something last happened."""

    _track_activity = False

    @web.authenticated
    async def get(self) -> None:
        kernels, contents = cast(NotebookKernels, self.kernel_manager), cast(RecordedContents, self.contents_manager)
        terminals: list[Any] = list(self.terminal_manager.terminals.values())
        now = datetime.now(UTC)
        times = [kernels.last_kernel_activity, contents.last_saved]
        times += [terminal.last_activity for terminal in terminals]
        busy = any(now - terminal.last_activity < _TERMINAL_BUSY for terminal in terminals)
        busy = busy or any(one["execution_state"] == "busy" for one in kernels.list_kernels())
        busy = busy or any(recorder.running for recorder in kernels.recorders.values())
        answer = {"busy": busy, "last_activity": max(times).isoformat(), "kernels": len(kernels.list_kernel_ids())}
        self.finish(json.dumps({**answer, "terminals": len(terminals)}))


class OutputsHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """``regatta/outputs``: a page follows notebooks.

    The page sends ``{"follow": key, "path": path, "log": identity, "after": cursor, "session": session}`` to begin
    and ``{"leave": key}`` to end. It receives ``{"key", "log", "cursor", "operations": [...]}``.
    """

    def initialize(self, followed: set[str]) -> None:
        self._followed = followed
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def set_default_headers(self) -> None:
        """Set none: this is no page."""

    @ws_authenticated
    async def get(self) -> None:
        await super().get()

    def on_message(self, message: str | bytes) -> None:
        match json.loads(message):
            case {"follow": str(key), "path": str(path), "log": str(log), "after": int(after), "session": str(session)}:
                if session:
                    self._followed.add(session)
                self._leave(key)
                follow = self._follow(key, cast(RecordedContents, self.contents_manager).logs.get(path), log, after)
                self._tasks[key] = asyncio.get_running_loop().create_task(follow)
            case {"leave": str(key)}:
                self._leave(key)

    def on_close(self) -> None:
        for key in list(self._tasks):
            self._leave(key)

    def _leave(self, key: str) -> None:
        if (task := self._tasks.pop(key, None)) is not None:
            task.cancel()

    async def _follow(self, key: str, log: OutputLog, identity: str, after: int) -> None:
        with contextlib.suppress(WebSocketClosedError):
            while True:
                cursor, operations = log.read(identity, after)
                behind = cursor != log.cursor
                if cursor != after or identity != log.identity:
                    identity, after = log.identity, cursor
                    head = json.dumps({"key": key, "log": identity, "cursor": cursor})
                    # Waits while the page reads slower than the kernel writes.
                    await self.write_message(f'{head[:-1]}, "operations": [{",".join(operations)}]}}')
                if log.cursor == after:
                    await log.changed()
                if not behind:
                    await asyncio.sleep(_GATHER)
