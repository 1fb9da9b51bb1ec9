"""Recorder of one kernel: what it records, and which client gets what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runtime.notebook import kernel_messages
from runtime.notebook.kernel_messages import Received
from runtime.notebook.output_log import OutputLog
from runtime.notebook.recorder import KernelRecorder


class _Client:
    def __init__(self, session: str) -> None:
        self.client_session = session
        self.received: list[str] = []
        self.notes: list[str] = []

    def send(self, message: Received) -> None:
        self.received.append(message.type)

    def send_note(self, text: str, parent: Mapping[str, Any]) -> None:
        self.notes.append(text)


class _Kernel:
    """Makes the frames of a kernel for a recorder."""

    def __init__(self, log: OutputLog) -> None:
        self.log = log
        self.followed: set[str] = set()
        self.saved: list[OutputLog] = []
        self.recorder = KernelRecorder(self.followed, self.saved.append)

    def request(self, execution: str = "e", cell: str = "c", session: str = "s") -> None:
        self.recorder.request(self.log, cell, {"msg_id": execution, "session": session}, "code")

    def publish(self, kind: str, execution: str = "e", session: str = "s", **content: Any) -> None:
        parts = [{"msg_type": kind}, {"msg_id": execution, "session": session}, {}, content]
        frames = [b"topic", b"<IDS|MSG>", b"signature", *(json.dumps(part).encode() for part in parts)]
        self.recorder.receive(kernel_messages.parse(frames))

    def prints(self, text: str, execution: str = "e") -> None:
        self.publish("stream", execution, name="stdout", text=text)

    def outputs(self, cell: str = "c") -> list[Any]:
        return self.log.records[cell].stored.outputs()


@pytest.fixture
def kernel(tmp_path: Path) -> _Kernel:
    return _Kernel(OutputLog("a.ipynb", tmp_path / "log"))


def _display(text: str) -> dict[str, Any]:
    return {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": "d"}}


def test_outputs_belong_to_the_cell_of_the_request(kernel: _Kernel) -> None:
    kernel.request("e1", "c1")
    kernel.request("e2", "c2")
    kernel.prints("one", "e1")
    kernel.prints("two", "e2")
    assert [kernel.outputs(cell)[0]["text"] for cell in ("c1", "c2")] == ["one", "two"]


def test_a_cell_ends_when_the_kernel_is_idle_and_the_file_is_saved(kernel: _Kernel) -> None:
    kernel.request()
    kernel.publish("execute_input", execution_count=3)
    assert kernel.recorder.running
    kernel.publish("status", execution_state="idle")
    assert not kernel.recorder.running
    assert (kernel.log.records["c"].count, kernel.saved) == (3, [kernel.log])


def test_outputs_of_a_replaced_execution_are_left_out(kernel: _Kernel) -> None:
    kernel.request("e1")
    kernel.request("e2")
    kernel.prints("late", "e1")
    assert kernel.outputs() == []


def test_output_is_cleared_at_once_or_with_the_next_output(kernel: _Kernel) -> None:
    kernel.request()
    kernel.prints("one")
    kernel.publish("clear_output", wait=True)
    assert kernel.outputs()[0]["text"] == "one"
    kernel.prints("two")
    assert kernel.outputs()[0]["text"] == "two"
    kernel.publish("clear_output", wait=False)
    assert kernel.outputs() == []


def test_a_display_is_updated_wherever_it_is_shown(kernel: _Kernel) -> None:
    kernel.request("e1", "c1")
    kernel.prints("before", "e1")
    kernel.publish("display_data", "e1", **_display("old"))
    kernel.request("e2", "c2")
    kernel.publish("update_display_data", "e2", **_display("new"))
    assert kernel.outputs("c1")[1]["data"] == {"text/plain": "new"}
    assert kernel.outputs("c2") == []


def test_the_end_of_the_kernel_ends_what_runs(kernel: _Kernel) -> None:
    kernel.request()
    kernel.prints("one")
    kernel.recorder.end_all()
    assert kernel.log.records["c"].ended
    assert kernel.outputs()[0]["text"] == "one"


def test_a_page_that_follows_gets_outputs_from_the_log_alone(kernel: _Kernel) -> None:
    page, other = _Client("s"), _Client("console")
    kernel.followed.add("s")
    kernel.recorder.attach(page)
    kernel.recorder.attach(other)
    kernel.request()
    kernel.prints("one")
    kernel.publish("status", execution_state="idle")
    assert (page.received, other.received) == (["status"], ["stream", "status"])


def test_a_request_before_the_page_follows_is_answered_by_the_kernel(kernel: _Kernel) -> None:
    page = _Client("s")
    kernel.recorder.attach(page)
    kernel.request()
    kernel.followed.add("s")
    kernel.prints("one")
    assert page.received == ["stream"]
    assert kernel.log.records["c"].direct


def test_a_client_gets_a_limited_amount_and_a_message(kernel: _Kernel) -> None:
    client = _Client("console")
    kernel.recorder.attach(client)
    for _ in range(5):
        kernel.prints("x" * 1_000_000, "unknown")
    assert (client.received, len(client.notes)) == (["stream"] * 2, 1)


def test_what_an_output_widget_shows_is_no_output_of_the_cell(kernel: _Kernel) -> None:
    page = _Client("s")
    kernel.followed.add("s")
    kernel.recorder.attach(page)
    kernel.request()
    kernel.publish("comm_msg", comm_id="w", data={"method": "update", "state": {"msg_id": "e"}})
    kernel.prints("in the widget")
    kernel.publish("comm_msg", comm_id="w", data={"method": "update", "state": {"msg_id": ""}})
    kernel.prints("below the cell")
    assert [one["text"] for one in kernel.outputs()] == ["below the cell"]
    assert page.received == ["comm_msg", "stream", "comm_msg"]


def test_a_million_outputs_beyond_the_limit_are_counted_without_being_decoded(kernel: _Kernel) -> None:
    kernel.request()
    kernel.prints("x" * 11_000_000)
    parts = [b'{"msg_type": "stream"}', b'{"msg_id": "e"}', b"{}", b"not even JSON"]
    kernel.recorder.receive(kernel_messages.parse([b"<IDS|MSG>", b"", *parts]))
    kernel.publish("status", execution_state="idle")
    assert kernel.outputs()[1]["data"]["text/plain"].endswith("1 MB were left out.")
