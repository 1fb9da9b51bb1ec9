"""The Prometheus metrics of the portal: name, help text, labels and processes of each, in one table.

``docs/metrics.md`` is generated from ``TABLE`` (``scripts/metrics_reference.py``). The values of every label come from
the code or are mapped to ``OTHER``: a request, a user or a job cannot add time series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"


class Process(StrEnum):
    """A process of the portal that serves metrics."""

    WEB = "web"
    WORKER = "worker"
    SWEEP = "sweep"


@dataclass(frozen=True)
class Definition:
    """A metric of the table. ``name`` is the name in queries without a histogram's suffixes."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    processes: tuple[Process, ...]
    metric: MetricWrapperBase


# The client adds a time series with the time of creation to each counter and histogram; no query uses it.
disable_created_metrics()  # type: ignore[no-untyped-call]

TABLE: list[Definition] = []

_ALL = (Process.WEB, Process.WORKER, Process.SWEEP)
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LAG_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_PASS_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_BUILD_SECONDS = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0)

Made = TypeVar("Made", bound=MetricWrapperBase)


def _add(name: str, about: str, labels: tuple[str, ...], processes: tuple[Process, ...], metric: Made) -> Made:
    TABLE.append(Definition(name, type(metric).__name__.lower(), about, labels, processes, metric))
    return metric


def _counter(name: str, about: str, *labels: str, of: tuple[Process, ...]) -> Counter:
    name = f"regatta_{name}"
    return _add(name, about, labels, of, Counter(name, about, labels, registry=None))


def _gauge(name: str, about: str, *labels: str, of: tuple[Process, ...]) -> Gauge:
    name = f"regatta_{name}"
    return _add(name, about, labels, of, Gauge(name, about, labels, registry=None))


def _histogram(
    name: str, about: str, *labels: str, of: tuple[Process, ...], buckets: tuple[float, ...] = _REQUEST_SECONDS
) -> Histogram:
    name = f"regatta_{name}"
    return _add(name, about, labels, of, Histogram(name, about, labels, registry=None, buckets=buckets))


# --- Every process ---------------------------------------------------------------------------------------------------
INFO = _gauge("info", "1; the labels name the version and the process.", "version", "process", of=_ALL)
HEARTBEAT_AGE = _gauge(
    "heartbeat_age_seconds", "Time since the last heartbeat; /healthz is 503 beyond a limit.", of=_ALL
)
DATABASE_ERRORS = _counter("database_errors_total", "Failed database statements by class of error.", "error", of=_ALL)
DATABASE_UNAVAILABLE = _counter(
    "database_unavailable_total", "Operations that found the database full, locked or away.", of=_ALL
)
DATABASE_CONNECTIONS = _gauge(
    "database_connections", "Connections of the pool to PostgreSQL: `open`, and of these `used`.", "state", of=_ALL
)
DATABASE_POOL_FULL = _counter(
    "database_pool_full_total", "Requests and tasks that got no connection of the pool in time.", of=_ALL
)
DATA_FREE_BYTES = _gauge("data_free_bytes", "Free bytes of the file system of REGATTA_DATA_DIR.", of=_ALL)
DATA_SIZE_BYTES = _gauge("data_size_bytes", "Size of the file system of REGATTA_DATA_DIR.", of=_ALL)
DOORBELL_FAILURES = _counter(
    "doorbell_failures_total", "Notifications of readers that could not be sent; readers poll.", of=_ALL
)

SPANS_EXPORTED = _counter("spans_exported_total", "Spans of traces that the collector has accepted.", of=_ALL)
SPANS_DROPPED = _counter(
    "spans_dropped_total",
    "Spans that were dropped; `queue`: too many waited, `collector`: it did not accept them.",
    "reason",
    of=_ALL,
)

# --- Web -------------------------------------------------------------------------------------------------------------
_WEB = (Process.WEB,)
REQUESTS = _counter(
    "http_requests_total",
    "Requests by name of the route, method and class of the status; `aborted`: the client left before a response.",
    *("route", "method", "status"),
    of=_WEB,
)
REQUEST_SECONDS = _histogram(
    "http_request_seconds", "Time from a request to the end of its response.", "route", "method", of=_WEB
)
REQUESTS_IN_PROGRESS = _gauge("http_requests_in_progress", "Requests whose response has not ended.", of=_WEB)
REFUSED_REQUESTS = _counter(
    "refused_requests_total", "Requests that were refused, by code of the problem.", "reason", of=_WEB
)
WEBSOCKETS_OPEN = _gauge("websockets_open", "Open websockets.", of=_WEB)
WEBSOCKET_CLOSES = _counter(
    "websocket_closes_total", "Closed websockets by the portal's code; `client`: the client closed.", "code", of=_WEB
)
INGEST_LINES = _counter("ingest_lines_total", "Lines of output that agents have sent.", of=_WEB)
INGEST_POINTS = _counter("ingest_points_total", "Metric points that agents have sent.", of=_WEB)
INGEST_BATCH_SECONDS = _gauge(
    "ingest_batch_seconds",
    "Age at which agents are asked to send batches: 0.2 unless the process is overloaded.",
    of=_WEB,
)
INGEST_BYTES = _counter("ingest_bytes_total", "Bytes of bodies that agents have sent, by kind.", "kind", of=_WEB)
STREAM_LAG = _histogram(
    "stream_lag_seconds",
    "Time from the commit of entries to their delivery to the readers of this process.",
    of=_WEB,
    buckets=_LAG_SECONDS,
)
STREAM_FALLBACKS = _counter(
    "stream_fallbacks_total", "Reads by poll that found entries without a notification.", of=_WEB
)

# --- Sweep -----------------------------------------------------------------------------------------------------------
_SWEEP = (Process.SWEEP,)
JOBS = _gauge("jobs", "Jobs that have not ended, by state.", "state", of=_SWEEP)
OLDEST_QUEUED = _gauge("oldest_queued_job_age_seconds", "How long the oldest job in QUEUED has waited.", of=_SWEEP)
UNSEALED_BLOCKS = _gauge("stream_unsealed_blocks", "Blocks of streams that were not merged yet.", of=_SWEEP)
STATISTICS_AGE = _gauge(
    "statistics_age_seconds", "Time since the jobs and blocks of these gauges were counted.", of=_SWEEP
)
SWEEP_AGE = _gauge(
    "sweep_age_seconds",
    "Time since the last pass of this process ended. Of several sweeps one makes passes: take the least.",
    of=_SWEEP,
)
SWEEP_SECONDS = _histogram("sweep_pass_seconds", "Duration of a pass.", of=_SWEEP, buckets=_PASS_SECONDS)
SWEEP_TASK_SECONDS = _counter("sweep_task_seconds_total", "Time spent in each periodic task.", "task", of=_SWEEP)
SWEEP_JOBS = _counter("sweep_jobs_total", "Jobs that the sweep looked at.", of=_SWEEP)
SWEEP_ERRORS = _counter(
    "sweep_errors_total", "Failures of periodic tasks; `job`: of one job, `pass`: of a whole pass.", "task", of=_SWEEP
)
EMAILS = _counter("emails_total", "Tries to send an e-mail: sent, failed, given_up.", "result", of=_SWEEP)

# --- Worker ----------------------------------------------------------------------------------------------------------
_WORKER = (Process.WORKER,)
TASKS = _counter("tasks_total", "Celery tasks by name and result.", "task", "result", of=_WORKER)
TASK_SECONDS = _histogram("task_seconds", "Duration of a Celery task.", "task", of=_WORKER)
TASKS_RUNNING = _gauge("tasks_running", "Celery tasks that run.", of=_WORKER)

# --- Whatever process moves a job on ---------------------------------------------------------------------------------
JOB_TRANSITIONS = _counter("job_transitions_total", "Changes of jobs' states, by new state.", "state", of=_ALL)
JOBS_ENDED = _counter("jobs_ended_total", "Jobs that ended, by state and reason.", "state", "reason", of=_ALL)
BUILD_SECONDS = _histogram(
    "build_seconds",
    "Time in BUILDING by result: built, failed, interrupted.",
    "result",
    of=_ALL,
    buckets=_BUILD_SECONDS,
)


Registry: TypeAlias = CollectorRegistry


def registry_of(process: Process) -> Registry:
    """Return a registry of the process's metrics and of its CPU, memory and descriptors."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for definition in TABLE:
        if process in definition.processes:
            registry.register(definition.metric)
    return registry


def text(registry: Registry) -> bytes:
    """Return the metrics in Prometheus' text format."""
    return generate_latest(registry)


def computed(gauge: Gauge, value: Callable[[], float]) -> None:
    """Have the gauge call ``value`` at each scrape."""
    gauge.set_function(value)


def bounded(value: str, allowed: Iterable[str]) -> str:
    """Return a label's value if it is allowed, else ``OTHER``."""
    return value if value in allowed else OTHER
