"""Overview of the cluster for admins: usage over time, running jobs with their trainers, and the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from jobs.backends import factory as backend_factory
from jobs.elastic.controller import external_usage
from jobs.lifecycle.states import HOLDS_QUOTA
from jobs.models import Elastic, ElasticMode, Job
from jobs.selectors import elastic_jobs
from portal.common.messages import localized
from quota import selectors as quota
from quota.selectors import Waiter
from runtime.messages import restore

POINTS = 240
SHOWN_JOBS, SHOWN_SERVICES, SHOWN_ROWS = 11, 4, 200
SPANS: Mapping[str, timedelta] = {
    "quarter": timedelta(minutes=15),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}


@dataclass(frozen=True)
class Runner:
    """A job that holds quota. ``why`` explains the number of its trainers, in the reader's language."""

    job: Job
    trainers: int
    least: int
    most: int
    elastic: bool
    why: str


@dataclass(frozen=True)
class ClusterView:
    mode: ElasticMode
    switched: str
    decided: datetime | None
    running: list[Runner]
    waiting: list[Waiter]
    more_waiting: int
    more_running: int


def seen(now: datetime) -> ClusterView:
    row = Elastic.objects.first() or Elastic()
    jobs = Job.objects.filter(state__in=HOLDS_QUOTA).select_related("namespace", "owner").order_by("created")
    queue = quota.whole_queue(now, SHOWN_ROWS)
    return ClusterView(
        mode=elastic_jobs.mode(),
        switched=row.mode,
        decided=row.decided,
        running=[_runner(job, row.decisions.get(str(job.pk), {})) for job in jobs[:SHOWN_ROWS]],
        waiting=queue.shown,
        more_waiting=queue.more,
        more_running=max(0, jobs.count() - SHOWN_ROWS),
    )


def _runner(job: Job, decided: Mapping[str, Any]) -> Runner:
    trainer = elastic_jobs.present_spec(job, 0).trainer
    elastic = elastic_jobs.is_elastic(job)
    why = restore(decided.get("why", "")) if elastic else ""
    return Runner(job, trainer.replicas, trainer.min, trainer.max, elastic, localized(why))


def chart(now: datetime, span: str) -> dict[str, Any]:
    """Return the cores held over a time span, as series for the chart.

    ``x`` is in seconds since 1970. ``strands`` has the cores of each shown job at each moment, ``rest`` those of all
    further jobs together. ``services`` has the same for services of the cluster, ``others`` for all further services
    and all other pods. ``capacity`` is the present number of cores, or null.
    """
    length = SPANS[span]
    moments = [now - length * (1 - number / POINTS) for number in range(POINTS + 1)]
    strands, rest = quota.held_over_time("cpu", moments, SHOWN_JOBS)
    shown = [
        {"name": f"{strand.namespace}/{strand.label}", "job": str(strand.job), "y": strand.amounts}
        for strand in strands
    ]
    beside = external_usage.over_time(moments)
    named = [(key, amounts) for key, amounts in beside if key][:SHOWN_SERVICES]
    return {
        "x": [moment.timestamp() for moment in moments],
        "strands": shown,
        "rest": rest,
        "services": [{"name": key, "y": amounts} for key, amounts in named],
        "others": _sum([amounts for key, amounts in beside if (key, amounts) not in named]),
        "capacity": cores(),
    }


def _sum(strands: Sequence[Sequence[float]]) -> list[float]:
    """Add the strands moment by moment; empty without strands."""
    return [sum(at) for at in zip(*strands, strict=True)]


def cores() -> float | None:
    """Return the present number of cores.

    These are the cores of the cluster's nodes, if known; otherwise the capacity set by admins, or that of the machine.
    """
    machine = backend_factory.machine()
    seen = None if machine else Elastic.objects.values_list("cores", flat=True).first()
    return seen or quota.capacity().get("cpu", machine.cpu if machine else None)
