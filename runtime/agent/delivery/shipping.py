"""Sender of the agent's entries to the portal: in batches, with retries until they are accepted, on one thread."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from runtime import contract
from runtime.agent import line_splitter
from runtime.agent.delivery import artifacts
from runtime.agent.delivery.artifacts import Found
from runtime.agent.delivery.backoff import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, Backoff
from runtime.agent.delivery.ingest_client import (
    Answer,
    Failed,
    Gap,
    Ingest,
    Missing,
    Persistence,
    Refused,
    Taken,
    whole,
)
from runtime.agent.delivery.spool import EVENTS, LOGS, METRICS, Batch, Spool
from runtime.errors import TEMPORARY
from runtime.messages import training as messages

# Name of the list in the request body of each kind.
_LISTS = {METRICS: "points", EVENTS: "events", LOGS: "lines"}

# How long something between agent and portal, such as a proxy with a limit, may refuse a file before it is left out.
BLOCKED_SECONDS = 60.0
_BLOCKS = (403, 413, 414, 415, 431)
# Statuses by which the portal refuses an entry. Other refusals of a batch are temporary.
_UNFIT = (400, 413, 422)
_LONGEST_LINE = 4000
_SHOWN = 200  # bytes shown of an entry that is left out


class Sender:
    """The agent's only sender to the portal. ``report``, ``line`` and ``append`` never wait for the portal."""

    def __init__(
        self,
        ingest: Ingest,
        replica: str,
        start_number: int,
        directory: Path,
        on_replaced: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the sender. ``on_replaced`` is called, on the sender's thread, when the attempt is over for the
        portal.

        ``clock`` measures how long an answer has persisted.
        """
        self._clock = clock
        self._ingest = ingest
        self._replica = replica
        self._start_number = start_number
        self._state = threading.Condition()
        self._backoff = Backoff(self._state, on_replaced, clock)
        before = _numbered_before(directory)
        self._numbered = before is not None
        # Earlier starts that share no spool with this one may still send: the portal refuses them by this number.
        self._fence = {"start_number": start_number} if before != {} else {}
        self._spools = {
            kind: Spool(directory / f"{kind}.spool", self._wake, int((before or {}).get(kind, 0))) for kind in _LISTS
        }
        self._reports: deque[Mapping[str, Any]] = deque()
        self._reported: list[Mapping[str, Any]] = []  # accepted reports
        self._epoch: str | None = None  # contract.EPOCH of the last answer
        self._repeats = False  # the accepted reports are to be sent again
        self._pace = 0.0  # age of batches that the last answer named
        self._last_heartbeat = time.monotonic()
        self._woken = False
        self._finishing = False
        self._complained: set[str] = set()
        self._unreadable: dict[str, float] = {}  # kinds whose spool cannot be read, with the time of the next try
        self._missed: set[str] = set()  # kinds for which that has been reported
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # --- Called from any thread --------------------------------------------------------------------------------------
    def append(self, kind: str, entries: list[str]) -> None:
        """Number and store entries of one kind. They are sent with the next batch."""
        self._spools[kind].append(entries)

    def line(self, text: str) -> None:
        """Add a log line of the platform's own. If it cannot be stored, it goes to the agent's own output."""
        try:
            self.append(LOGS, line_splitter.line_entries(time.time(), line_splitter.AGENT, [text[:_LONGEST_LINE]]))
        except OSError as error:
            sys.stderr.write(f"{text[:_LONGEST_LINE]} (not in the log: {error.strerror})\n")

    def report(self, phase: str, **facts: Any) -> None:
        """Report the replica's state. Reports are sent before everything else, in order."""
        with self._state:
            self._reports.append(self._report(phase, facts))
        self._wake()

    def _report(self, phase: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"replica": self._replica, "start_number": self._start_number, "phase": phase, **facts}

    def give_up_at(self, deadline: float) -> None:
        """Give up at this time (monotonic). What is left stays in the spool."""
        self._backoff.give_up_at(deadline)
        self._wake()

    def finish(self, files: Path, last_report: Mapping[str, Any] | None) -> bool:
        """Send everything, then the files, then the last report if there is one, and wait for it.

        Returns False if the sender gave up.
        """
        with self._state:
            self._finishing = True
        self._wake()
        self._thread.join()
        delivered = self._flush() and self._send_files(files) and self._flush()
        if delivered and last_report is not None:
            delivered = self._send_report(last_report)
        self._ingest.close()
        return delivered and not self._unreadable

    # --- The sender's thread -----------------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._backoff.over():
            self._sleep(self._until_due())
            if self._finishing:
                return
            self._send_due()

    def _queue_again(self) -> None:
        """Queue the accepted reports again if the portal's database was restored since."""
        if self._repeats:
            self._repeats = False
            with self._state:
                self._reports.extendleft(reversed(self._reported))
            self._reported.clear()

    def _until_due(self) -> float:
        """Return the seconds until something should be sent."""
        now = time.monotonic()
        if self._reports or self._repeats or not self._numbered:
            return 0.0
        waits = [wait for kind in self._spools if (wait := self._due(kind, now)) is not None]
        return min([*waits, max(0.0, self._heartbeat_due() - now)])

    def _heartbeat_due(self) -> float:
        quiet = self._backoff.last_call + max(contract.HEARTBEAT_SECONDS, self._pace)
        return min(quiet, self._last_heartbeat + contract.HEARTBEAT_LIMIT_SECONDS)

    def _due(self, kind: str, now: float) -> float | None:
        """Return the seconds until a batch of the kind should be sent, or None when nothing is queued."""
        wait = self._spools[kind].due(now, self._pace)
        return None if wait is None else max(wait, self._unreadable.get(kind, now) - now)

    def _send_due(self) -> None:
        self._queue_again()
        while self._reports:
            if not self._send_report(self._reports[0]):
                return
            self._reported.append(self._reports.popleft())
        if not self._numbered and not self._begin():
            return
        now = time.monotonic()
        for kind, spool in self._spools.items():
            if self._due(kind, now) == 0.0 and not self._send_kept(kind, spool):
                return
        if now >= self._heartbeat_due():
            self._call("heartbeat", {"replica": self._replica})
            self._last_heartbeat = time.monotonic()

    def _begin(self) -> bool:
        """Request the numbers of the entries of earlier starts. Until they are known, entries wait in the spools.

        Returns False if the portal did not answer. Entries numbered without them would be taken for earlier ones.
        """
        body = json.dumps({"replica": self._replica, **self._fence}).encode()
        answer = self._backoff.settled(_numbers(self._ingest.post_json("begin", body)))
        if isinstance(answer, Taken):
            for kind, spool in self._spools.items():
                spool.number_after(int(answer.body[kind]))
            self._numbered = True
        elif isinstance(answer, Refused):
            self._backoff.pause()
        return self._numbered

    def _send_kept(self, kind: str, spool: Spool) -> bool:
        """Send a batch. A spool that cannot be read delays neither the other kinds nor the heartbeats."""
        try:
            sent = self._send_batch(kind, spool)
        except OSError as error:
            self._unreadable[kind] = time.monotonic() + LAST_RETRY_SECONDS
            self._miss(kind, error)
            return True
        self._unreadable.pop(kind, None)
        return sent

    def _miss(self, kind: str, error: OSError) -> None:
        """Report once, in the log and on the timeline, that entries of the kind may be missing."""
        if kind in self._missed:
            return
        self._missed.add(kind)
        why = messages.SPOOL_UNREADABLE(kind=kind, error=error.strerror)
        sys.stderr.write(f"{why}\n")
        self.line(why)
        with contextlib.suppress(OSError):  # the log has it, or the agent's own output
            self.append(EVENTS, [line_splitter.event_entry(time.time(), "warning", why)])

    def _send_batch(self, kind: str, spool: Spool) -> bool:
        batch = spool.batch()
        if not batch.entries:  # an earlier start of the replica left them out
            spool.taken(batch.after)
            return True
        head = json.dumps({"replica": self._replica, "first": batch.first, **_gone(spool), **self._fence})[:-1]
        body = b"".join((head.encode(), f', "{_LISTS[kind]}": ['.encode(), b",".join(batch.entries), b"]}"))
        answer = self._settled(_acknowledged(self._ingest.post_json(kind, body)))
        if isinstance(answer, Taken):
            spool.taken(batch.after)
            if (last := int(answer.body["last"])) > batch.after.number:
                spool.go_to(last)
        elif isinstance(answer, Gap):
            spool.go_to(answer.last)
        elif isinstance(answer, Refused) and answer.status in _UNFIT:
            self._leave_out(kind, spool, batch, answer)
        elif isinstance(answer, Refused):
            self._backoff.pause()
        return not self._backoff.over() and isinstance(answer, Taken | Gap | Refused)

    def _leave_out(self, kind: str, spool: Spool, batch: Batch, refused: Refused) -> None:
        """Leave out the entries that the portal names, or find the refused one by sending smaller batches."""
        places = sorted(_named(refused.fields, _LISTS[kind], len(batch.entries)))
        if not places and len(batch.entries) > 1:
            spool.send_at_most(len(batch.entries) // 2)
            return
        for place in places or [0]:
            shown = batch.entries[place][:_SHOWN].decode("utf-8", "replace")
            sys.stderr.write(f"An entry of {kind} is left out, {refused.why}: {shown}\n")
        spool.leave_out(batch, places or [0])
        if kind not in self._complained:
            self._complained.add(kind)
            self.line(f"an entry of {kind} was not taken by the portal and is left out: {refused.why}")

    def _send_report(self, body: Mapping[str, Any]) -> bool:
        """Send a report. Returns False if the sender gave up. A refusal is written to the agent's own output."""

        def send() -> Answer:
            answer = self._call("report", body)
            if isinstance(answer, Refused):
                sys.stderr.write(f"The portal refused a report: {answer.why}\n")
            return answer

        return self._backoff.until_taken(send)

    def _send_files(self, directory: Path) -> bool:
        selection = artifacts.select(directory)
        for message in selection.left_out:
            self.line(message)
        return all(self._send_file(found) for found in selection.files)

    def _send_file(self, found: Found) -> bool:
        """Send a file. Returns True if it was accepted, or refused for good, which the log reports."""
        blocked = Persistence(BLOCKED_SECONDS, self._clock)
        short = Persistence(BLOCKED_SECONDS, self._clock)
        while not self._backoff.over():
            try:
                return self._send_whole(found, blocked)
            except OSError as error:
                if error.errno not in TEMPORARY or short.persists():
                    self.line(f"{found.name} could not be read and is not kept: {error.strerror}")
                    return True
                self._backoff.pause()
        return False

    def _send_whole(self, found: Found, blocked: Persistence) -> bool:
        with artifacts.opened(found) as file:
            digest = artifacts.sha256(file)
            return self._backoff.until_taken(lambda: self._post_file(digest, file, found, blocked))

    def _post_file(self, digest: str, file: BinaryIO, found: Found, blocked: Persistence) -> Answer:
        file.seek(0)
        call = artifacts.call(self._replica, found, digest, self._fence)
        answer = self._ingest.post_file(call, file, os.fstat(file.fileno()).st_size)
        answer = self._backoff.settled(_stored(answer, digest))
        if not (isinstance(answer, Failed) and answer.status in _BLOCKS):
            blocked.reset()
        elif blocked.persists():
            answer = Refused(
                answer.status, f"what stands between this replica and the portal refuses it: {answer.why}", {}
            )
        if isinstance(answer, Refused):
            self.line(f"{found.name} is not kept: {answer.why}")
        return answer

    def _flush(self) -> bool:
        """Send everything that is queued. Returns False if the sender gave up."""
        self._queue_again()
        while self._reports:
            if not self._send_report(self._reports[0]):
                return False
            self._reported.append(self._reports.popleft())
        while not self._numbered:
            if self._backoff.over():
                return False
            self._begin()
        for kind, spool in self._spools.items():
            self._unreadable.pop(kind, None)  # one more try
            while spool.due(0.0) is not None and kind not in self._unreadable:
                self._send_kept(kind, spool)
                if self._backoff.over():
                    return False
        return not self._backoff.over()

    def _call(self, call: str, body: Mapping[str, Any]) -> Answer:
        return self._settled(self._ingest.post_json(call, json.dumps({**body, **self._fence}).encode()))

    def _settled(self, answer: Answer) -> Answer:
        """Handle what follows from any answer. After a restoration of the portal's database, repeat all reports. Send
        batches at the age that an overloaded portal names."""
        answer = self._backoff.settled(answer)
        if isinstance(answer, Taken | Gap):
            if self._epoch not in (None, answer.epoch):
                self._repeats = True
            self._epoch = answer.epoch
        if isinstance(answer, Taken):
            self._pace = answer.pace
        return answer

    def _sleep(self, seconds: float) -> None:
        """Wait for the seconds, or until there is something new to send."""
        with self._state:
            if seconds > 0 and not self._woken and not self._finishing:
                self._state.wait(seconds)
            self._woken = False

    def _wake(self) -> None:
        with self._state:
            self._woken = True
            self._state.notify_all()


def _gone(spool: Spool) -> Mapping[str, int]:
    """Return the field with the number of the last entry that no spool has any more; none for the usual 0."""
    return {"gone": spool.before} if spool.before else {}


def report_alone(ingest: Ingest, report: Mapping[str, Any], seconds: float) -> bool:
    """Send the last report without a spool, with retries for ``seconds``. Return whether the portal accepted it."""
    give_up, pause = time.monotonic() + seconds, FIRST_RETRY_SECONDS
    body = json.dumps(report).encode()
    try:
        while isinstance(answer := ingest.post_json("report", body), Failed | Missing):
            if time.monotonic() + pause > give_up:
                return False
            time.sleep(pause)
            pause = min(LAST_RETRY_SECONDS, pause * 2)
        return isinstance(answer, Taken)
    finally:
        ingest.close()


def _acknowledged(answer: Answer) -> Answer:
    """Return the answer to a batch. An answer without the last accepted number does not come from the portal."""
    if isinstance(answer, Taken) and whole(answer.body.get("last")) is None:
        return Failed(0, "the answer does not say what was taken")
    return answer


def _numbers(answer: Answer) -> Answer:
    """Return the answer to ``begin``. An answer without all three numbers does not come from the portal."""
    if isinstance(answer, Taken) and any(whole(answer.body.get(kind)) is None for kind in _LISTS):
        return Failed(0, "the answer does not say what was taken of earlier starts")
    return answer


def _stored(answer: Answer, digest: str) -> Answer:
    """Return the answer to a file. An answer without its digest does not come from the portal, whatever its status."""
    if isinstance(answer, Taken) and answer.body.get("sha256") != digest:
        return Failed(0, "the answer does not name the file that was sent")
    return answer


def _named(fields: Mapping[str, Any], entries: str, count: int) -> set[int]:
    """Return the places in a batch that a refusal names, as in ``points.17.1``."""
    found = (re.match(rf"{entries}\.([0-9]{{1,9}})(?:\.|$)", field) for field in fields)
    return {int(match[1]) for match in found if match and int(match[1]) < count}


def _numbered_before(directory: Path) -> Mapping[str, int] | None:
    """Return how many entries of each kind earlier starts have numbered in spools that are gone.

    Empty if the spools of earlier starts are here. None if the portal has not been able to say.
    """
    try:
        numbers: Mapping[str, int] | None = json.loads((directory / contract.NUMBERS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return numbers
