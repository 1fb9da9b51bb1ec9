"""Storage of what a process prints and reports."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from runtime.agent import process_output
from runtime.agent.delivery.spool import EVENTS, LOGS, METRICS
from runtime.agent.line_splitter import STDERR, STDOUT
from runtime.agent.process_output import ProcessOutput
from runtime.messages import training as training_messages


class Storage:
    """Stores entries in memory, or raises OSError when it is full."""

    def __init__(self) -> None:
        self.stored: dict[str, list[list[object]]] = {LOGS: [], METRICS: [], EVENTS: []}
        self.remarks: list[str] = []
        self.full = False

    def append(self, kind: str, entries: list[str]) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.stored[kind] += map(json.loads, entries)

    def line(self, text: str) -> None:
        self.remarks.append(text)


@pytest.fixture
def storage() -> Storage:
    return Storage()


def output_to(storage: Storage, unkept: list[str] | None = None, **options: object) -> ProcessOutput:
    options = {"work": Path("/work"), "log_cap": 1 << 20, "cost_lines": False, **options}
    reasons = [] if unkept is None else unkept
    return ProcessOutput(storage, lambda address, release: None, reasons.append, **options)


def test_lines_are_stored_with_time_and_stream(storage):
    output_to(storage).lines(5.0, STDERR, ["a", "b"])
    assert storage.stored[LOGS] == [[5.0, STDERR, "a"], [5.0, STDERR, "b"]]


def test_entries_that_cannot_be_stored_are_reported_with_the_reason(storage):
    unkept: list[str] = []
    output = output_to(storage, unkept)
    storage.full = True
    output.lines(5.0, STDOUT, ["a"])
    output.event("note", "text")
    assert unkept == ["what it printed could not be kept: No space left on device"] * 2


class TestCostsInTheOutput:
    def test_they_become_points(self, storage):
        output_to(storage, cost_lines=True).lines(5.0, STDOUT, ["Pass 0, Batch 100, Cost 12.35"])
        assert len(storage.stored[METRICS]) == 1

    def test_they_count_on_standard_output_only(self, storage):
        output_to(storage, cost_lines=True).lines(5.0, STDERR, ["Pass 0, Batch 100, Cost 12.35"])
        assert storage.stored[METRICS] == []

    def test_they_are_not_read_unless_asked_for(self, storage):
        output_to(storage).lines(5.0, STDOUT, ["Pass 0, Batch 100, Cost 12.35"])
        assert storage.stored[METRICS] == []

    def test_they_are_not_read_once_the_process_reports_points(self, storage):
        output = output_to(storage, cost_lines=True)
        output.metrics(['[5.0, 1, "cost", 12.35]'])
        output.lines(6.0, STDOUT, ["Pass 0, Batch 100, Cost 12.35"])
        assert storage.stored[METRICS] == [[5.0, 1, "cost", 12.35]]


def test_entries_beyond_the_limit_are_dropped_with_one_line_in_the_log(storage, monkeypatch):
    monkeypatch.setitem(process_output.MAX_ENTRIES, EVENTS, 2)
    output = output_to(storage)
    for number in range(5):
        output.event("note", str(number))
    assert [text for _at, _kind, text in storage.stored[EVENTS]] == ["0", "1"]
    assert storage.remarks == ["only the first 2 events of a replica are kept"]


def test_an_error_in_standard_error_that_the_process_also_reports_keeps_its_code(storage):
    message = training_messages.INIT_CALLED_TWICE()
    printed = [
        "Traceback (most recent call last):",
        '  File "train.py", line 3',
        f"runtime.errors.UsageError: {message}",
    ]
    output = output_to(storage)
    output.lines(5.0, STDERR, printed)
    output.failure(message)
    error = output.traceback.error.params["error"]
    assert error.params["text"].code == message.code


def test_only_the_first_message_that_is_not_understood_is_reported(storage):
    output = output_to(storage)
    output.misunderstood("unknown message")
    output.misunderstood("another")
    assert storage.remarks == ["a message of the process was not understood and is not kept: unknown message"]
