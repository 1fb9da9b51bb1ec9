"""The queue before the collector: bounded, counted, and never in the way of a caller."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from portal.common.monitoring import metrics
from portal.common.tracing import span_queue
from portal.common.tracing.context import SpanContext
from portal.common.tracing.span_queue import SpanQueue
from portal.common.tracing.spans import Span
from tests.waiting import until

SPAN = Span("work", SpanContext("a" * 32, "b" * 16), "", 1, 2)


class Answers:
    """A collector that gives these answers in turn, and the last of them from then on."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers = list(answers)
        self.batches: list[Sequence[Span]] = []

    def __call__(self, spans: Sequence[Span]) -> bool:
        self.batches.append(spans)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class NeverAnswers:
    """A collector that holds each call until the test releases it."""

    def __init__(self) -> None:
        self.called, self.release = threading.Event(), threading.Event()

    def __call__(self, spans: Sequence[Span]) -> bool:
        self.called.set()
        return self.release.wait(60)


Open = Callable[..., SpanQueue]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Return a function that opens a queue, which ends with the test."""
    queues: list[SpanQueue] = []

    def make(export: Callable[[Sequence[Span]], bool], capacity: int = 100) -> SpanQueue:
        queues.append(SpanQueue(export, capacity=capacity, pause=0.0))
        return queues[-1]

    yield make
    for queue in queues:
        queue.stop(10)


def dropped(reason: str) -> float:
    return float(metrics.SPANS_DROPPED.labels(reason)._value.get())


def test_a_span_reaches_the_collector(opened: Open) -> None:
    collector = Answers(True)
    opened(collector).put(SPAN)
    until("the span was sent", lambda: collector.batches == [[SPAN]])


def test_spans_are_sent_in_batches(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_queue, "BATCH", 2)
    collector = NeverAnswers()
    queue = opened(collector)
    queue.put(SPAN)
    collector.called.wait(60)
    sizes: list[int] = []
    queue._export = lambda spans: not sizes.append(len(spans))
    for _ in range(5):
        queue.put(SPAN)
    collector.release.set()
    until("all were sent", lambda: sum(sizes) == 5)
    assert sizes == [2, 2, 1]


@pytest.mark.invariant("A collector of traces that never answers delays no request and no job.")
def test_a_collector_that_never_answers_holds_no_caller_and_a_bounded_number_of_spans(opened: Open) -> None:
    collector, before = NeverAnswers(), dropped("queue")
    queue = opened(collector, capacity=10)
    queue.put(SPAN)
    assert collector.called.wait(60)
    for _ in range(1000):
        queue.put(SPAN)
    assert len(queue._waiting) == 10
    assert dropped("queue") == before + 990
    collector.release.set()


def test_the_end_of_the_process_does_not_wait_for_a_collector_that_never_answers(opened: Open) -> None:
    collector = NeverAnswers()
    queue = opened(collector)
    queue.put(SPAN)
    assert collector.called.wait(60)
    queue.stop(0.01)
    assert queue._thread.is_alive()
    collector.release.set()


def test_the_end_of_the_process_sends_what_waits() -> None:
    collector = Answers(True)
    queue = SpanQueue(collector, pause=60.0)
    queue.put(SPAN)
    queue.stop(10)
    assert collector.batches == [[SPAN]]


@pytest.mark.parametrize("answer", [False, OSError("connection refused")], ids=["refuses", "raises"])
def test_spans_that_the_collector_does_not_accept_are_counted(opened: Open, answer: bool | Exception) -> None:
    before = dropped("collector")
    opened(Answers(answer)).put(SPAN)
    until("the span was dropped", lambda: dropped("collector") == before + 1)


def test_accepted_spans_are_counted(opened: Open) -> None:
    before = metrics.SPANS_EXPORTED._value.get()
    opened(Answers(True)).put(SPAN)
    until("the span was counted", lambda: metrics.SPANS_EXPORTED._value.get() == before + 1)


def test_an_outage_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, span_queue.__name__)
    collector = Answers(False, OSError("refused"), False, True)
    queue = SpanQueue(collector, pause=0.0)
    for number in range(1, 6):
        queue.put(SPAN)
        until("it was tried", lambda number=number: len(collector.batches) == number)  # type: ignore[misc]
    queue.stop(10)
    words = [record.getMessage().split(";")[0].rsplit(" ", 2)[-1] for record in caplog.records]
    assert words == ["available", "again."]
