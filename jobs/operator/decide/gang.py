"""Gang scheduling: the time for which some pods of a job may hold nodes while the others find none. Pure.

A gang without any node takes no capacity from others, and may wait without limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jobs.operator.model.names import Object
from jobs.operator.model.observed import Settings
from jobs.operator.model.spec import PaddleJob

_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3600.0


def placed(pods: Sequence[Object]) -> int:
    return sum(1 for pod in pods if pod["spec"].get("nodeName"))


def is_holding(job: PaddleJob, pods: Sequence[Object]) -> bool:
    return 0 < placed(pods) < job.gang


def timeout(job: PaddleJob, settings: Settings) -> float:
    timeout_seconds = job.scheduling.timeout
    return settings.gang_timeout if timeout_seconds is None else timeout_seconds


def has_waited(job: PaddleJob, since: datetime, now: datetime, settings: Settings) -> bool:
    limit = timeout(job, settings)
    return limit > 0 and (now - since).total_seconds() >= limit


def pause(releases: int) -> float:
    """Return the seconds until the next try, after this number of releases."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(releases - 1, 16))


def message(job: PaddleJob, pods: Sequence[Object]) -> str:
    return (
        f"Only {placed(pods)} of {job.gang} pods found a node in time, so they gave theirs back. It is tried again "
        "after a while."
    )
