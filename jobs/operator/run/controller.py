"""The controller: reconciliation passes over jobs, and the threads that run them.

A pass reads the cache, plans, executes the plan, and writes the status if it changes. Responses go into the cache at
once; changes by others arrive through the reflectors. A pass that executed an action is followed by another one, until
a plan has no actions.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from jobs.operator.client.api import CONFLICT, MISSING, KubeApi, Refusal
from jobs.operator.client.cache import Cache, owner_name
from jobs.operator.client.metrics import Metrics
from jobs.operator.client.reflector import Reflector
from jobs.operator.client.resources import CONFIG_MAPS, JOBS, POD_GROUPS, PODS, SERVICES
from jobs.operator.client.workqueue import WorkQueue
from jobs.operator.decide.plan import Plan, plan
from jobs.operator.model import names
from jobs.operator.model.conditions import Phase
from jobs.operator.model.names import Object
from jobs.operator.model.observed import Observed, Settings
from jobs.operator.model.spec import Intranet
from jobs.operator.run import events
from jobs.operator.run.events import NORMAL, WARNING, Recorder
from jobs.operator.run.executor import Executor, Outcome
from jobs.operator.run.port_book import PortBook

log = logging.getLogger(__name__)

_AFTER_CONFLICT = 1.0  # seconds
_PAST_TENSE = {"Create": "created", "Delete": "deleted", "Patch": "changed"}


@dataclass(frozen=True)
class Clocks:
    """Clocks of the controller. ``monotonic`` is in seconds; ``now`` is the wall clock, with its time zone."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


@dataclass(frozen=True)
class Memory:
    """Foreign objects and refusals of the last pass over a job."""

    foreign: frozenset[tuple[str, str]] = frozenset()
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """Options of the controller.

    ``namespace``: the only namespace to handle; empty: all. ``workers``: concurrent passes. ``requests``: concurrent
    requests to the API server. ``prefix``: jobs in namespaces without this prefix are ignored.
    """

    namespace: str = ""
    workers: int = 4
    requests: int = 16
    settings: Settings = field(default_factory=Settings)
    prefix: str = ""


class Controller:
    """The PaddleJob controller. ``later`` runs a function in the background; events are sent by it."""

    def __init__(
        self,
        api: KubeApi,
        options: Options,
        clocks: Clocks | None = None,
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        clocks = clocks or Clocks()
        later = later or ThreadPoolExecutor(1, thread_name_prefix="event").submit
        self.metrics = Metrics()
        self.cache = Cache(self._changed)
        self.queue = WorkQueue(clocks.monotonic)
        self._options, self._clocks = options, clocks
        self._pool = ThreadPoolExecutor(options.requests, thread_name_prefix="request")
        self._executor = Executor(api, self.cache, self.metrics, self._pool)
        self._recorder = Recorder(api, clocks.now, later)
        self._ports = PortBook(self.cache)
        self._memories: dict[str, Memory] = defaultdict(Memory)
        kinds = [JOBS, PODS, SERVICES, CONFIG_MAPS, *([POD_GROUPS] if options.settings.pods.volcano else [])]
        self.reflectors = [
            Reflector(api, kind, self.cache, self.metrics, clocks.monotonic, namespace=options.namespace)
            for kind in kinds
        ]

    # --- One pass ----------------------------------------------------------------------------------------------------
    def reconcile(self, key: str) -> str:
        """Run one pass over the job ``namespace/name`` and return its result; refused requests are retried later."""
        with self.metrics.pass_seconds.time():
            try:
                result = self._reconcile(key)
            except Refusal as refusal:
                result = self._put_off(key, refusal)
        self.metrics.passes.labels(result).inc()
        return result

    def _reconcile(self, key: str) -> str:
        namespace, _, name = key.partition("/")
        job: Object | None = self.cache.get(names.KIND, namespace, name)
        if job is None:
            self._memories.pop(key, None)
            self._ports.release(key)
            return "gone"
        observed = self._observed(key, job)
        made = plan(job, observed, self._clocks.now(), self._options.settings)
        if made.status_first:
            job = self._write_status(job, made)
        outcome = self._executor.execute(job, made.actions)
        self._report_actions(job, outcome)
        if not made.status_first and (outcome.refusals or not outcome.done):
            self._write_status(job, made)  # else the next pass, which follows at once, writes a newer one
        refusals = tuple(refusal.message for refusal in outcome.refusals)
        self._memories[key] = Memory(observed.foreign | outcome.foreign, refusals)
        return self._and_then(key, made, outcome)

    def _write_status(self, job: Object, made: Plan) -> Object:
        if made.status is None:
            return job
        written = self._executor.write_status(job, made.status)
        self._report_status(job, written)
        return written

    def _observed(self, key: str, job: Object) -> Observed:
        kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for item in self.cache.owned(names.uid_of(job)):
            kinds[item["kind"]].append(item)
        memory = self._memories[key]
        on_nodes = (job.get("spec") or {}).get("intranet") == Intranet.HOST
        has_ports = names.HOST_PORT_ANNOTATION in (job["metadata"].get("annotations") or {})
        return Observed(
            pods=kinds["Pod"],
            services=kinds["Service"],
            config_map=next(iter(kinds["ConfigMap"]), None),
            pod_group=next(iter(kinds["PodGroup"]), None),
            foreign=self._executor.still_foreign(job, memory.foreign),
            refusals=memory.refusals,
            block=self._ports.block(key) if on_nodes and not has_ports else None,
        )

    def _and_then(self, key: str, made: Plan, outcome: Outcome) -> str:
        if outcome.refusals:
            slowest = max((refusal.retry_after or 0.0 for refusal in outcome.refusals), default=0.0)
            self.queue.add_after(key, slowest) if slowest else self.queue.retry(key)
            return "refused"
        self.queue.forget(key)
        if outcome.done or outcome.foreign:
            self.queue.add(key)
        if made.requeue_after is not None:
            self.queue.add_after(key, made.requeue_after)
        return "acted" if outcome.done else "settled"

    def _put_off(self, key: str, refusal: Refusal) -> str:
        if refusal.status == MISSING:
            return "gone"  # the reflector removes it from the cache
        if refusal.status == CONFLICT:
            self.queue.add_after(key, _AFTER_CONFLICT)
            return "conflict"
        log.warning("%s: %s", key, refusal)
        self.queue.add_after(key, refusal.retry_after) if refusal.retry_after else self.queue.retry(key)
        return "refused"

    # --- Events and metrics ------------------------------------------------------------------------------------------
    def _report_status(self, before: Object, job: Object) -> None:
        old, new = before.get("status") or {}, job.get("status") or {}
        phase, reason = new.get("phase", ""), new.get("reason", "")
        if new.get("restarts", 0) > old.get("restarts", 0):
            self.metrics.restarts.inc(new["restarts"] - old.get("restarts", 0))
        if (phase, reason) == (old.get("phase", ""), old.get("reason", "")):
            return
        if phase in (Phase.COMPLETED, Phase.FAILED) and phase != old.get("phase"):
            self.metrics.ended.labels(phase, reason).inc()
        if reason or phase in (Phase.RUNNING, Phase.COMPLETED):
            ordinary = phase == Phase.COMPLETED or not reason or reason in ("Suspended", "BackOff", "Queued")
            message = new.get("message") or f"The job is {str(phase).lower()}."
            self._recorder.record(job, NORMAL if ordinary else WARNING, reason or phase, message)

    def _report_actions(self, job: Object, outcome: Outcome) -> None:
        for (verb, kind), found in outcome.done.items():
            if verb in _PAST_TENSE and kind != names.KIND:
                past = _PAST_TENSE[verb]
                self._recorder.record(job, NORMAL, past.capitalize(), f"{past} {events.listing(kind, found)}")
        for message in sorted({refusal.message for refusal in outcome.refusals})[:3]:
            self._recorder.record(job, WARNING, "Refused", message)

    # --- Changes -----------------------------------------------------------------------------------------------------
    def _changed(self, kind: str, item: Object) -> None:
        name = names.name_of(item) if kind == names.KIND else owner_name(item)
        namespace = str(item["metadata"].get("namespace", ""))
        if name and namespace.startswith(self._options.prefix):
            self.queue.add(f"{namespace}/{name}")

    # --- Threads -----------------------------------------------------------------------------------------------------
    @contextmanager
    def reflecting(self, stop: threading.Event) -> Iterator[None]:
        """Run the reflectors while the context is open."""
        yield from self._threads([partial(self._reflect, one, stop) for one in self.reflectors], stop)

    @contextmanager
    def working(self, stop: threading.Event) -> Iterator[None]:
        """Run the workers while the context is open."""
        yield from self._threads([self._work] * self._options.workers, stop)

    def _threads(self, jobs: Sequence[Callable[[], None]], stop: threading.Event) -> Iterator[None]:
        # Daemon threads: a watch that hangs must not block the exit of the process.
        threads = [threading.Thread(target=job, daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            self.queue.close()

    def _reflect(self, reflector: Reflector, stop: threading.Event) -> None:
        while not stop.is_set():
            stop.wait(reflector.round())

    def _work(self) -> None:
        while True:
            taken = self.queue.get()
            if taken is None:
                return
            key, waited = taken
            self.metrics.waited_seconds.observe(waited)
            try:
                self.reconcile(key)
            except Exception:
                # A bug in a pass over one job must not end the worker of the others.
                log.exception("%s: a pass failed", key)
                self.metrics.passes.labels("fault").inc()
                self.queue.retry(key)
            finally:
                self.queue.done(key)

    # --- Health ------------------------------------------------------------------------------------------------------
    @property
    def synced(self) -> bool:
        return all(reflector.synced for reflector in self.reflectors)

    def unhealthy(self) -> str:
        """Return why the controller should be restarted; empty if it is healthy."""
        now = self._clocks.monotonic()
        silent = [one.resource.plural for one in self.reflectors if one.is_stale(now)]
        return f"The API server has said nothing of {', '.join(silent)} for too long." if silent else ""

    def unready(self) -> str:
        """Return why the controller is not ready to act; empty if it is ready."""
        missing = [one.resource.plural for one in self.reflectors if not one.synced]
        return f"Not listed yet: {', '.join(missing)}." if missing else ""

    def metrics_text(self) -> bytes:
        """Return all metrics as text, after updating the gauges."""
        now = self._clocks.monotonic()
        for one in self.reflectors:
            self.metrics.silence.labels(one.resource.kind).set(now - one.last_contact)
            self.metrics.objects.labels(one.resource.kind).set(self.cache.count(one.resource.kind))
        phases = Counter(str((job.get("status") or {}).get("phase", "")) for job in self.cache.all(names.KIND))
        for phase in Phase:
            if phase:
                self.metrics.jobs.labels(phase.value).set(phases[phase.value])
        self.metrics.waiting.set(len(self.queue))
        return self.metrics.text()
