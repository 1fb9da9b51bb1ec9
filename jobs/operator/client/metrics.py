"""Prometheus metrics of the controller."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Metrics in a registry of their own, so that two controllers in one process count separately."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.passes = self._counter("passes", "Passes over a job, by result.", "result")
        self.pass_seconds = self._histogram("pass_seconds", "Length of a pass.")
        self.waited_seconds = self._histogram("waited_seconds", "From an event until a pass over its job begins.")
        self.actions = self._counter("actions", "What was done, by verb, kind and result.", "verb", "kind", "result")
        self.restarts = self._counter("restarts", "Failures that were answered by a new start.")
        self.ended = self._counter("ended", "Jobs that have ended, by phase and reason.", "phase", "reason")
        self.lists = self._counter("lists", "How often a kind was listed whole.", "kind")
        self.watch_failures = self._counter("watch_failures", "Watches that broke, by reason.", "kind", "reason")
        self.objects = self._gauge("objects", "Objects that are known.", "kind")
        self.jobs = self._gauge("jobs", "Jobs by phase.", "phase")
        self.waiting = self._gauge("waiting", "Jobs that wait for a pass.")
        self.silence = self._gauge("silence_seconds", "Since when the API server has said nothing of a kind.", "kind")
        self.leads = self._gauge("leads", "1 in the controller that acts.")

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"paddlejob_{name}", about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(f"paddlejob_{name}", about, labels, registry=self.registry)

    def _histogram(self, name: str, about: str) -> Histogram:
        return Histogram(f"paddlejob_{name}", about, registry=self.registry, buckets=_SECONDS)
