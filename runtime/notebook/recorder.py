"""Follows the output of one kernel: records it, then passes it on to the connections of clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from runtime.notebook.cell_outputs import Operation
from runtime.notebook.cell_record import SHOWN
from runtime.notebook.kernel_messages import OUTPUT_TYPES, Received, display_id, output_of
from runtime.notebook.output_log import OutputLog

# Outputs of a full cell that need not be decoded.
_LEFT_OUT = frozenset({"stream", "display_data", "execute_result"})


class Client(Protocol):
    """Connection of a client to the kernel."""

    @property
    def client_session(self) -> str:
        """Identifier that the client's requests carry."""
        ...

    def send(self, message: Received) -> None:
        """Send a message of the kernel."""

    def send_note(self, text: str, parent: Mapping[str, Any]) -> None:
        """Send a line as if the kernel had written it to its error stream."""


@dataclass
class _Execution:
    log: OutputLog
    cell: str
    # A clear_output(wait=True) that takes effect with the next output.
    clear_next: bool = False


class KernelRecorder:
    """Records one kernel. ``followed`` has the sessions of pages that read outputs from the log."""

    def __init__(self, followed: set[str], ended: Callable[[OutputLog], None]) -> None:
        self._followed = followed
        self._ended = ended
        self._clients: list[Client] = []
        self._executions: dict[str, _Execution] = {}
        self._capturing: dict[str, str] = {}
        self._sent: dict[str, int] = {}

    @property
    def running(self) -> bool:
        """Whether an execution of a cell has not ended."""
        return any(not record.ended for record in self._records())

    def attach(self, client: Client) -> None:
        """Send what the kernel publishes from now on."""
        self._clients.append(client)

    def detach(self, client: Client) -> None:
        if client in self._clients:
            self._clients.remove(client)

    def request(self, log: OutputLog, cell: str, header: Mapping[str, Any], source: str) -> None:
        """Record that a client asks the kernel to execute a cell. Outputs of the cell belong to this request now."""
        for name, former in list(self._executions.items()):
            if former.cell == cell and former.log is log:
                del self._executions[name]
        execution, session = header["msg_id"], header["session"]
        self._executions[execution] = _Execution(log, cell)
        direct = session not in self._followed
        begin = {"op": "queued", "cell": cell, "execution": execution, "session": session, "direct": direct}
        log.append({**begin, "source": source})

    def receive(self, message: Received) -> None:
        """Record a message, and then pass it on."""
        self._follow_captures(message)
        execution = self._executions.get(message.execution)
        if execution is not None and message.execution not in self._capturing.values():
            self._record(execution, message)
        else:
            execution = None
        output = message.type in OUTPUT_TYPES
        for client in list(self._clients):
            if output and execution is not None and client.client_session in self._followed:
                if self._direct(execution) and client.client_session == message.parent.get("session"):
                    self._send_limited(client, message)
            elif output:
                self._send_limited(client, message)
            else:
                client.send(message)

    def end_all(self) -> None:
        """End all executions: the kernel has ended or was restarted."""
        logs = {id(one.log): one.log for one in self._executions.values()}
        for log in logs.values():
            log.end_all(self._executions)
            self._ended(log)
        self._executions.clear()
        self._capturing.clear()
        self._sent.clear()

    def _records(self) -> list[Any]:
        found = (one.log.records.get(one.cell) for one in self._executions.values())
        return [record for record in found if record is not None]

    def _direct(self, execution: _Execution) -> bool:
        record = execution.log.records.get(execution.cell)
        return record is not None and record.direct

    def _record(self, execution: _Execution, message: Received) -> None:
        log, kind = execution.log, message.type
        record = log.records.get(execution.cell)
        if record is None or record.execution != message.execution:
            return
        about: Operation = {"cell": execution.cell, "execution": message.execution}
        if kind in _LEFT_OUT and record.stored.full and not execution.clear_next:
            record.stored.leave_out(message.size)
            record.shown.leave_out(message.size)
        elif kind in OUTPUT_TYPES:
            self._record_output(execution, about, kind, message.content())
        elif kind == "execute_input":
            log.append({**about, "op": "count", "count": message.content()["execution_count"]})
        elif kind == "status" and message.content()["execution_state"] == "idle":
            log.append({**about, "op": "end"})
            self._ended(log)

    def _record_output(self, execution: _Execution, about: Operation, kind: str, content: dict[str, Any]) -> None:
        log = execution.log
        if kind == "clear_output":
            if content.get("wait"):
                execution.clear_next = True
            else:
                log.append({**about, "op": "clear"})
        elif kind == "update_display_data":
            _update(log, display_id(content), output_of(kind, content))
        else:
            if execution.clear_next:
                execution.clear_next = False
                log.append({**about, "op": "clear"})
            operation = {**about, "op": "append", "output": output_of(kind, content)}
            if (display := display_id(content)) is not None:
                operation["display"] = display
                _update(log, display, output_of(kind, content))
            log.append(operation)

    def _send_limited(self, client: Client, message: Received) -> None:
        """Send an output, up to the limit of one execution: what a slow client has not read is kept in memory."""
        sent = self._sent.get(message.execution, 0)
        if sent > SHOWN and message.type != "error":
            return
        client.send(message)
        self._sent[message.execution] = sent + message.size
        if sent <= SHOWN < sent + message.size:
            client.send_note("The output is longer than 2 MB. What follows is left out.", message.parent)
        while len(self._sent) > 1000:
            del self._sent[next(iter(self._sent))]

    def _follow_captures(self, message: Received) -> None:
        """Note the executions whose output an Output widget shows: it is no output of the cell then."""
        if message.type not in ("comm_open", "comm_msg") or b"msg_id" not in message.parts[3]:
            return
        content = message.content()
        state = content.get("data", {}).get("state", {})
        if not isinstance(state, dict) or "msg_id" not in state:
            return
        if state["msg_id"]:
            self._capturing[content["comm_id"]] = state["msg_id"]
        else:
            self._capturing.pop(content["comm_id"], None)


def _update(log: OutputLog, display: str | None, output: dict[str, Any]) -> None:
    """Replace all outputs that show a display."""
    for record in list(log.records.values()):
        for index in record.displays.get(display or "", []):
            about = {"cell": record.cell, "execution": record.execution}
            log.append({**about, "op": "set", "index": index, "output": {**output, "output_type": "display_data"}})
