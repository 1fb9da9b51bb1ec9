"""The elastic controller: observes, decides with the pure policy and applies the decision, once per round of the sweep.

Correctness does not depend on its memory. It stores the desired number of trainers of a job, as people do
(``jobs.services.scaling``), and the reconciler brings it about. A controller that replaces one that was killed half way
reads the stored numbers and continues from there.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import uuid4

from django.conf import settings

from jobs.elastic.controller import external_usage, leader_lease
from jobs.elastic.controller.capacity import CapacityReader
from jobs.elastic.controller.observer import Observer, Seen
from jobs.elastic.inputs import conversions
from jobs.elastic.inputs.conversions import ScalingRequest
from jobs.elastic.policy import policy
from jobs.models import Elastic, ElasticMode
from jobs.selectors import elastic_jobs
from jobs.services import scaling
from jobs.services.scaling import Growth
from portal.common.doorbell import ring
from runtime.messages import restore, to_json

_log = logging.getLogger(__name__)
# The time after which a growth that the quota refused is requested again.
_REFUSED_FOR = timedelta(seconds=30)
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def rules() -> policy.Rules:
    """Return the rules of this installation. They exclude preemption: only the quota recalls what it has lent."""
    return policy.Rules(cool_down=settings.ELASTIC_COOL_DOWN_SECONDS, preempts=False)


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"[:100]


@dataclass
class Controller:
    """One candidate for leadership. Several may run, and the leader of the present term acts."""

    holder: str = field(default_factory=_name)
    _observer: Observer = field(default_factory=lambda: Observer(CapacityReader(follows=True)))
    _refused: dict[str, datetime] = field(default_factory=dict)
    # When the usage of neighbours was last recorded; None: no record is open. Not None at first, because an earlier
    # process may have left open records.
    _recorded: datetime | None = _LONG_AGO
    _services: Mapping[str, float] = field(default_factory=dict)

    def when_due(self, now: datetime) -> None:
        """Decide and act once, as a periodic task of the sweep."""
        self.tick(now)

    def tick(self, now: datetime) -> list[ScalingRequest]:
        """Decide once and apply the decision. Return the requests that were carried out (or explained)."""
        mode = elastic_jobs.mode()
        if mode is ElasticMode.OFF or not elastic_jobs.elastic_jobs().exists():
            self._stop_external_usage(now)
            return []
        term = leader_lease.lead(self.holder, now)
        seen = self._observer.observe(now) if term is not None else None
        if term is None or seen is None:
            return []
        self._record_neighbours(seen, term, now)
        decision = policy.decide(seen.cluster, now.timestamp(), rules())
        wanted = [
            _worded(request, seen)
            for request in conversions.scaling_requests(seen.cluster, decision, self._movable(seen, now))
        ]
        before = _last_decisions()
        _note(term, seen, decision.targets, decision.messages, before, now)
        if mode is ElasticMode.EXPLAIN:
            return [request for request in wanted if _explain(request, seen, before)]
        return [request for request in wanted if self._carry_out(request, seen, term, now)]

    def _record_neighbours(self, seen: Seen, term: leader_lease.Term, now: datetime) -> None:
        if seen.neighbours is None:
            return
        services = {key: cores for key, cores in seen.neighbours.taken.items() if key}
        if self._recorded is None or services != self._services or now - self._recorded >= external_usage.EVERY:
            external_usage.record(term, *seen.neighbours, now)
            self._recorded, self._services = now, services

    def _stop_external_usage(self, now: datetime) -> None:
        if self._recorded is not None:
            external_usage.end_all(now)
            self._recorded = None

    def _movable(self, seen: Seen, now: datetime) -> frozenset[str]:
        self._refused = {key: until for key, until in self._refused.items() if until > now}
        return seen.movable - self._refused.keys()

    def _carry_out(self, request: ScalingRequest, seen: Seen, term: leader_lease.Term, now: datetime) -> bool:
        done = scaling.scale_automatically(
            job_id=request.job,
            attempt=seen.attempts[request.job],
            before=request.before,
            after=request.after,
            why=request.why,
            leads=partial(leader_lease.holds, term, now),
            now=now,
        )
        if done is Growth.REFUSED:
            self._refused[request.job] = now + _REFUSED_FOR
        return done is Growth.DONE


def _worded(request: ScalingRequest, seen: Seen) -> ScalingRequest:
    namespace = next(job.namespace for job in seen.cluster.jobs if job.key == request.job)
    return request._replace(why=conversions.worded(request.why, seen.cluster, seen.names, namespace))


def _last_decisions() -> Mapping[str, Mapping[str, object]]:
    return Elastic.objects.values_list("decisions", flat=True).first() or {}


def _note(
    term: leader_lease.Term,
    seen: Seen,
    targets: Mapping[str, int],
    messages: Mapping[str, str],
    before: Mapping[str, Mapping[str, object]],
    now: datetime,
) -> None:
    """Store the decision on every job if it has changed, and notify those who follow the job's status."""
    decisions: dict[str, dict[str, object]] = {
        job.key: {
            "trainers": targets[job.key],
            "why": to_json(conversions.worded(messages[job.key], seen.cluster, seen.names, job.namespace)),
        }
        for job in seen.cluster.jobs
        if job.started is None or job.key in seen.movable
    }
    if decisions != before:
        leader_lease.note(term, decisions, now)
        for key, decided in decisions.items():
            if decided["why"] != before.get(key, {}).get("why"):
                ring(f"status:{key}")


def _explain(request: ScalingRequest, seen: Seen, before: Mapping[str, Mapping[str, object]]) -> bool:
    """Record the explanation, once and not in every round. Return whether it is new."""
    if restore(before.get(request.job, {}).get("why", "")) == request.why:
        return False
    scaling.advise(job_id=request.job, attempt=seen.attempts[request.job], why=request.why)
    return True
