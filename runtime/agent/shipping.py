"""Sends what the agent has kept to the portal: in batches, again until it is taken, on one thread."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runtime import contract
from runtime.agent import artifacts, output
from runtime.agent.artifacts import Found
from runtime.agent.ingest import Answer, Failed, Gap, Ingest, Replaced, Taken
from runtime.agent.spool import EVENTS, LOGS, METRICS, Spool

# The name of the list in the body of each kind.
_LISTS = {METRICS: "points", EVENTS: "events", LOGS: "lines"}

FIRST_RETRY_SECONDS = 0.1
LAST_RETRY_SECONDS = 2.0
# A file refused with one of these will not be taken the next time either.
_REFUSED_FOR_GOOD = (400, 403, 409, 413, 415, 422)


class Sender:
    """The agent's one voice towards the portal. ``say``, ``line`` and ``append`` never wait for it."""

    def __init__(
        self, ingest: Ingest, replica: str, life: int, directory: Path, on_replaced: Callable[[str], None]
    ) -> None:
        """``on_replaced`` is called, on the sender's thread, when the attempt is over for the portal."""
        self._ingest = ingest
        self._replica = replica
        self._life = life
        self._on_replaced = on_replaced
        self._state = threading.Condition()
        before = _numbered_before(directory)
        self._spools = {
            kind: Spool(directory / f"{kind}.spool", self._wake, int(before.get(kind, 0))) for kind in _LISTS
        }
        self._reports: deque[Mapping[str, Any]] = deque()
        self._heartbeat = time.monotonic()
        self._retry = FIRST_RETRY_SECONDS
        self._woken = False
        self._finishing = False
        self._give_up_at: float | None = None
        self._replaced = False
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # --- From any thread ---------------------------------------------------------------------------------------------
    def append(self, kind: str, entries: list[str]) -> None:
        """Keep and number entries of one kind; they go with the next batch."""
        self._spools[kind].append(entries)

    def line(self, text: str) -> None:
        """A log line of the platform's own."""
        self.append(LOGS, output.line_entries(time.time(), output.SYSTEM, [text]))

    def report(self, phase: str, **facts: Any) -> None:
        """Say how the replica is; reports go before all else, in order."""
        with self._state:
            self._reports.append(self._report(phase, facts))
        self._wake()

    def _report(self, phase: str, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"replica": self._replica, "life": self._life, "phase": phase, **facts}

    def give_up_at(self, deadline: float) -> None:
        """Try no longer than this (monotonic). What is left stays in the spool."""
        with self._state:
            self._give_up_at = deadline
        self._wake()

    def finish(self, files: Path, last_report: Mapping[str, Any] | None) -> bool:
        """Send everything, then the files, then the last report if there is one; wait for it. False when it was given
        up."""
        with self._state:
            self._finishing = True
        self._wake()
        self._thread.join()
        delivered = self._flush() and self._send_files(files) and self._flush()
        if delivered and last_report is not None:
            delivered = self._send_report(last_report)
        self._ingest.close()
        return delivered

    # --- The sender's thread -----------------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._over():
            self._sleep(self._until_due())
            if self._finishing:
                return
            self._send_due()

    def _over(self) -> bool:
        late = self._give_up_at is not None and time.monotonic() >= self._give_up_at
        return self._replaced or late

    def _until_due(self) -> float:
        """Seconds until something should be sent."""
        now = time.monotonic()
        if self._reports:
            return 0.0
        waits = [wait for spool in self._spools.values() if (wait := spool.due(now)) is not None]
        return min([*waits, max(0.0, self._heartbeat + contract.HEARTBEAT_SECONDS - now)])

    def _send_due(self) -> None:
        while self._reports:
            if not self._send_report(self._reports[0]):
                return
            self._reports.popleft()
        now = time.monotonic()
        for kind, spool in self._spools.items():
            if spool.due(now) == 0.0 and not self._send_batch(kind, spool):
                return
        if now >= self._heartbeat + contract.HEARTBEAT_SECONDS:
            self._call("heartbeat", {"replica": self._replica})

    def _send_batch(self, kind: str, spool: Spool) -> bool:
        batch = spool.batch()
        head = json.dumps({"replica": self._replica, "first": batch.first})[:-1]
        body = b"".join((head.encode(), f', "{_LISTS[kind]}": ['.encode(), b",".join(batch.entries), b"]}"))
        answer = self._settled(self._ingest.post_json(kind, body))
        if isinstance(answer, Taken):
            spool.taken(batch.after)
            if (last := int(answer.body.get("last", 0))) > batch.after.number:
                spool.go_to(last)
        elif isinstance(answer, Gap):
            spool.go_to(answer.last)
        return not self._over() and not isinstance(answer, Failed)

    def _send_report(self, body: Mapping[str, Any]) -> bool:
        return self._until_taken(lambda: self._call("report", body))

    def _send_files(self, directory: Path) -> bool:
        selection = artifacts.select(directory)
        for sentence in selection.left_out:
            self.line(sentence)
        return all(self._send_file(found) for found in selection.files)

    def _send_file(self, found: Found) -> bool:
        """True when it was taken, or refused for good, which is said in the log."""
        try:
            with artifacts.opened(found) as file:
                call = artifacts.call(self._replica, found, artifacts.sha256(file))
                return self._until_taken(lambda: self._post_file(call, file, found), refusals=_REFUSED_FOR_GOOD)
        except OSError as error:
            self.line(f"{found.name} could not be read and is not kept: {error.strerror}")
            return True

    def _post_file(self, call: str, file: Any, found: Found) -> Answer:
        file.seek(0)
        answer = self._settled(self._ingest.post_file(call, file, found.size))
        if isinstance(answer, Failed) and answer.status in _REFUSED_FOR_GOOD:
            self.line(f"{found.name} is not kept: {answer.why}")
        return answer

    def _flush(self) -> bool:
        """Send all that waits. False when it was given up."""
        while self._reports:
            if not self._send_report(self._reports.popleft()):
                return False
        for kind, spool in self._spools.items():
            while spool.due(0.0) is not None:
                self._send_batch(kind, spool)
                if self._over():
                    return False
        return not self._over()

    def _until_taken(self, attempt: Callable[[], Answer], refusals: tuple[int, ...] = ()) -> bool:
        while not self._over():
            answer = attempt()
            if isinstance(answer, Taken) or (isinstance(answer, Failed) and answer.status in refusals):
                return True
        return False

    def _call(self, call: str, body: Mapping[str, Any]) -> Answer:
        return self._settled(self._ingest.post_json(call, json.dumps(body).encode()))

    def _settled(self, answer: Answer) -> Answer:
        """Draw the consequences that are the same for every call: back off, or hear that the attempt is over."""
        if isinstance(answer, Failed):
            self._back_off()
        elif isinstance(answer, Replaced):
            self._replaced = True
            self._on_replaced(answer.why)
        else:
            self._retry = FIRST_RETRY_SECONDS
            # Any call tells the portal that the agent lives.
            self._heartbeat = time.monotonic()
        return answer

    def _back_off(self) -> None:
        until = time.monotonic() + self._retry
        self._retry = min(LAST_RETRY_SECONDS, self._retry * 2)
        with self._state:
            while not self._over() and (left := until - time.monotonic()) > 0:
                limit = left if self._give_up_at is None else min(left, self._give_up_at - time.monotonic())
                self._state.wait(max(0.0, limit))

    def _sleep(self, seconds: float) -> None:
        """Until then, or until something new asks to be looked at."""
        with self._state:
            if seconds > 0 and not self._woken and not self._finishing:
                self._state.wait(seconds)
            self._woken = False

    def _wake(self) -> None:
        with self._state:
            self._woken = True
            self._state.notify_all()


def _numbered_before(directory: Path) -> Mapping[str, int]:
    """How many entries of each kind lives had numbered whose spools are gone."""
    try:
        numbers: Mapping[str, int] = json.loads((directory / contract.NUMBERS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return numbers
