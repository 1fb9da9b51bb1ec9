"""What the process prints and reports, stored as numbered entries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from runtime.agent import line_splitter
from runtime.agent.delivery.spool import EVENTS, LOGS, METRICS
from runtime.agent.exit_status import TracebackReader
from runtime.log_lines import Cap
from runtime.metric_parser import CostReader

if TYPE_CHECKING:  # it loads an HTTP client
    from runtime.agent.delivery.shipping import Sender

# Maximum number of entries of one replica per attempt. Its output has a cap of its own.
MAX_ENTRIES = {METRICS: 10_000_000, EVENTS: 10_000}


class ProcessOutput:
    """Receiver of the lines, points, events and errors of the process.

    Every entry within the limits is stored, or ``unkept`` is called with the reason. Costs that the process prints
    become points only until it reports points itself. ``hello`` is called with address and release of the process,
    ``paused`` with its answers to requests to stop between two steps.
    ``lines`` runs on the thread of the pipes, the messages on that of the link.
    """

    def __init__(
        self,
        sender: Sender,
        hello: Callable[[str, str], None],
        unkept: Callable[[str], None],
        paused: Callable[[bool, int | None], None] = lambda _stopped, _version: None,
        *,
        work: Path,
        log_cap: int,
        cost_lines: bool,
    ) -> None:
        """``log_cap`` is in bytes. With ``cost_lines``, costs in the output become points."""
        self.traceback = TracebackReader(str(work))
        self._hello = hello
        self._unkept = unkept
        self._paused = paused
        self._sender = sender
        self._cap = Cap(log_cap)
        self._misunderstood = False
        # None: no points are read from the output.
        self._costs = CostReader() if cost_lines else None
        self._entry_counts = dict.fromkeys(MAX_ENTRIES, 0)

    def lines(self, at: float, stream: str, lines: list[str]) -> None:
        """Store lines that the process printed at the unix time ``at``."""
        if stream == line_splitter.STDERR:
            self.traceback.feed(lines)
        kept, remarks = self._cap.admit(lines)
        entries = line_splitter.line_entries(at, stream, kept) + line_splitter.line_entries(
            at, line_splitter.AGENT, remarks
        )
        self._keep(LOGS, entries)
        costs = self._costs
        if costs and stream == line_splitter.STDOUT:
            points = [point for line in kept for point in costs.entries(at, line)]
            self._keep(METRICS, self._within(METRICS, points))

    def close(self) -> None:
        """Add the closing lines of the cap to the log."""
        for remark in self._cap.closing_lines():
            self._sender.line(remark)

    # --- Messages from the process -----------------------------------------------------------------------------------
    def hello(self, address: str, release: str) -> None:
        self._hello(address, release)

    def metrics(self, entries: list[str]) -> None:
        # A process that reports costs may print them too: they count once.
        self._costs = None
        self._keep(METRICS, self._within(METRICS, entries))

    def failure(self, text: str) -> None:
        self.traceback.reported = text

    def paused(self, stopped: bool, version: int | None) -> None:
        self._paused(stopped, version)

    def event(self, kind: str, text: str) -> None:
        self._keep(EVENTS, self._within(EVENTS, [line_splitter.event_entry(time.time(), kind, text)]))

    def misunderstood(self, why: str) -> None:
        if not self._misunderstood:
            self._misunderstood = True
            self._sender.line(f"a message of the process was not understood and is not kept: {why}")

    def _within(self, kind: str, entries: list[str]) -> list[str]:
        """Return the entries within the limit. At the first one beyond it, the log gets a message."""
        remaining = MAX_ENTRIES[kind] - self._entry_counts[kind]
        self._entry_counts[kind] += len(entries)
        if 0 <= remaining < len(entries):
            self._sender.line(f"only the first {MAX_ENTRIES[kind]:,} {kind} of a replica are kept")
        return entries[: max(0, remaining)]

    def _keep(self, kind: str, entries: list[str]) -> None:
        """Number and store entries. If they cannot be stored, stop the process rather than lose its output."""
        try:
            self._sender.append(kind, entries)
        except OSError as error:
            self._unkept(f"what it printed could not be kept: {error.strerror}")
