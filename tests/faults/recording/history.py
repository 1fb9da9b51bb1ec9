"""The recorded events of processes, for later checks: an append-only file of JSON lines for each process.

Times are of the machine's monotonic clock, so that the files of one machine can be compared. A line is one system call:
a killed process leaves complete lines, and what it has not recorded it has not sent to others either.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Environment of the processes: the history's directory, their name, the proxy they connect through, where they crash.
HISTORY, SOURCE = "REGATTA_FAULTS_HISTORY", "REGATTA_FAULTS_WHO"
PROXY, CRASH_AT = "REGATTA_FAULTS_PROXY", "REGATTA_FAULTS_CRASH_AT"
# A file beside the histories: no more faults follow, and the work may be done quickly.
ENOUGH = "enough"


@dataclass(frozen=True)
class Event:
    """One event: when, in which start of which process (``trainer-0.2``), of what kind, and its facts."""

    at: float
    source: str
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, fact: str) -> Any:
        return self.facts[fact]


class Recorder:
    """Appends to the history of one process. Any thread may call."""

    def __init__(self, directory: Path, source: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(directory / f"{source}.jsonl", flags, 0o644)
        self._lock = threading.Lock()

    def note(self, kind: str, **facts: Any) -> None:
        with self._lock:
            line = json.dumps({"at": time.monotonic(), "kind": kind, **facts}, separators=(",", ":"))
            os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


class Reader:
    """All histories of a directory, while they are written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}  # how many bytes of each file
        self._events: list[Event] = []

    def events(self) -> list[Event]:
        """What has been written so far, in order of time."""
        for file in self._directory.glob("*.jsonl"):
            self._events += self._fresh(file)
        self._events.sort(key=lambda event: event.at)
        return self._events

    def _fresh(self, file: Path) -> Iterator[Event]:
        with file.open("rb") as lines:
            lines.seek(self._read.get(file, 0))
            whole, _newline, _rest = lines.read().rpartition(b"\n")
        if whole:
            self._read[file] = self._read.get(file, 0) + len(whole) + 1
        for line in whole.splitlines():
            facts = json.loads(line)
            yield Event(facts.pop("at"), file.stem, facts.pop("kind"), facts)


def of_kind(events: Iterable[Event], *kinds: str) -> list[Event]:
    return [event for event in events if event.kind in kinds]
