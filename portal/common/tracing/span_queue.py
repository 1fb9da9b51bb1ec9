"""Bounded queue of finished spans, and the thread that exports them. No caller waits for the collector."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from portal.common.monitoring import metrics
from portal.common.tracing.spans import Span

_log = logging.getLogger(__name__)

CAPACITY = 4096  # spans that wait
BATCH = 512  # spans of one call of the collector
PAUSE_SECONDS = 1.0  # from the first span to the export

Export = Callable[[Sequence[Span]], bool]


class SpanQueue:
    """``export`` is called in the thread of this queue and returns whether the collector has the spans.

    Spans that the queue has no place for, or that the collector does not accept, are dropped and counted. An outage is
    logged when it begins and when it ends.
    """

    def __init__(self, export: Export, *, capacity: int = CAPACITY, pause: float = PAUSE_SECONDS) -> None:
        self._export, self._capacity, self._pause = export, capacity, pause
        self._waiting: deque[Span] = deque()
        self._filled, self._stopping = threading.Event(), threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def put(self, span: Span) -> None:
        """Export the span soon, or drop it when ``capacity`` others wait. Never blocks."""
        if len(self._waiting) >= self._capacity:
            metrics.SPANS_DROPPED.labels("queue").inc()
            return
        self._waiting.append(span)
        if not self._filled.is_set():
            self._filled.set()

    def stop(self, seconds: float) -> None:
        """Export what waits, for at most so long, and end."""
        self._stopping.set()
        self._filled.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while True:
            self._filled.wait()
            self._stopping.wait(self._pause)
            self._filled.clear()
            while self._waiting:
                self._send([self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))])
            if self._stopping.is_set():
                return

    def _send(self, spans: Sequence[Span]) -> None:
        accepted, why = False, "it did not accept the spans"
        try:
            accepted = self._export(spans)
        except Exception as error:  # noqa: BLE001  collectors fail in many ways, and recover
            why = str(error)
        counter = metrics.SPANS_EXPORTED if accepted else metrics.SPANS_DROPPED.labels("collector")
        counter.inc(len(spans))
        if accepted and self._failed:
            _log.warning("The collector of REGATTA_OTLP_ENDPOINT accepts spans again.")
        if not accepted and not self._failed:
            _log.warning("The collector of REGATTA_OTLP_ENDPOINT is not available; spans are dropped: %s.", why)
        self._failed = not accepted
