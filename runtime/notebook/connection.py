"""WebSocket of a client to a kernel. Its outputs come from the recorder, after they are stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_client.jsonutil import json_default
from jupyter_server.services.kernels.connection.base import (
    deserialize_binary_message,
    deserialize_msg_from_ws_v1,
    serialize_binary_message,
    serialize_msg_to_ws_v1,
)
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from tornado.websocket import WebSocketClosedError

from runtime.notebook.kernel_messages import Received
from runtime.notebook.output_log import OutputLog
from runtime.notebook.recorder import KernelRecorder

_RAW = "v1.kernel.websocket.jupyter.org"


class RecordedConnection(ZMQChannelsWebsocketConnection):
    """A client's connection, as the recorder sees it."""

    # Finds the log of the notebook that has a cell and uses a kernel: set by the application.
    find_log: Callable[[str, str], OutputLog | None]

    @property
    def client_session(self) -> str:
        return str(self.session.session)

    @property
    def _recorder(self) -> KernelRecorder | None:
        recorder: KernelRecorder | None = self.multi_kernel_manager.recorders.get(self.kernel_id)
        return recorder

    def connect(self) -> Any:
        """Connect to the kernel; what it publishes comes from the recorder."""
        connected = super().connect()

        def attach(_: Any) -> None:
            iopub = self.channels.get("iopub")
            if iopub is not None and not iopub.closed():
                iopub.socket.unsubscribe(b"")
            if self.channels and self._recorder is not None:
                self._recorder.attach(self)

        if connected is not None:
            connected.add_done_callback(attach)
        return connected

    def disconnect(self) -> None:  # type: ignore[override]
        """Close the connection. The recorder goes on."""
        if self._recorder is not None:
            self._recorder.detach(self)
        super().disconnect()

    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Note requests to execute a cell, and pass every message to the kernel."""
        if self.channels:
            self._note_request(incoming_msg)
        super().handle_incoming_message(incoming_msg)

    def handle_outgoing_message(self, stream: Any, outgoing_msg: list[Any]) -> None:
        """Pass on replies; what the kernel publishes comes from the recorder."""
        if getattr(stream, "channel", None) != "iopub":
            super().handle_outgoing_message(stream, outgoing_msg)

    def send(self, message: Received) -> None:
        """Send a message that the kernel has published."""
        if self.subprotocol == _RAW:
            self._write(serialize_msg_to_ws_v1(message.parts, "iopub"), binary=True)
            return
        header, parent, metadata, content = (json.loads(part) for part in message.parts[:4])
        about = {"msg_id": header["msg_id"], "msg_type": header["msg_type"], "channel": "iopub"}
        body = {"header": header, "parent_header": parent, "metadata": metadata, "content": content, **about}
        if len(message.parts) > 4:
            self._write(serialize_binary_message({**body, "buffers": message.parts[4:]}), binary=True)
        else:
            self._write(json.dumps({**body, "buffers": []}, default=json_default))

    def send_note(self, text: str, parent: Mapping[str, Any]) -> None:
        """Send a line as if the kernel had written it to its error stream."""
        self.write_stderr(text, dict(parent))

    def _write(self, data: str | bytes, binary: bool = False) -> None:
        try:
            self.write_message(data, binary=binary)
        except WebSocketClosedError:
            self.log.debug("The client of kernel %s has gone.", self.kernel_id)

    def _note_request(self, frame: str | bytes) -> None:
        channel, message = _request(frame, self.subprotocol)
        header, metadata = message["header"], message["metadata"]
        cell = metadata.get("cellId")
        recorder = self._recorder
        if channel != "shell" or header.get("msg_type") != "execute_request" or not cell or recorder is None:
            return
        log = type(self).find_log(self.kernel_id, cell)
        if log is not None:
            recorder.request(log, cell, header, message["content"]["code"])


def _request(frame: str | bytes, protocol: str | None) -> tuple[str, dict[str, Any]]:
    """Return channel and message of a frame from a client."""
    if protocol == _RAW:
        channel, parts = deserialize_msg_from_ws_v1(frame)
        names = ("header", "parent_header", "metadata", "content")
        return channel, {name: json.loads(part) for name, part in zip(names, parts, strict=False)}
    message = deserialize_binary_message(frame) if isinstance(frame, bytes) else json.loads(frame)
    return message.get("channel") or "shell", message
