"""Build of a job: its code, its requirements and its dataset, until all are there."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from datasets import materialization
from datasets.storage.base import StorageAway, StorageError
from jobs.builds import builders
from jobs.frameworks.definitions import is_coordinated
from jobs.lifecycle import state_machine, wording
from jobs.lifecycle.state_machine import Event
from jobs.messages import jobs as messages
from jobs.models import Job
from jobs.selectors.attempts import data_gone, present_attempt, present_spec
from jobs.spec.model import JobSpec
from jobs.streams import store
from portal.common.clock import now as wall_clock
from portal.common.errors import NotFound
from runtime.errors import TEMPORARY
from runtime.messages import Message

_log = logging.getLogger(__name__)

# How long after its creation an attempt is prepared again after a temporary failure of the storage or the machine.
PREPARING = timedelta(minutes=10)


def build(job: Job) -> Event | None:
    """Begin or continue to prepare the job's code and dataset. Return the event when both are there, or have failed."""
    spec = JobSpec.from_json(job.spec)
    try:
        view = builders.of(spec).begin(job, spec)
    except (OSError, StorageError, NotFound) as error:
        return _unprepared(job, error, messages.CODE_NOT_PREPARED(error=error))
    _ship_build_log(job, view.log)
    if view.problem:
        return state_machine.BuildFailed(job.attempt, view.problem)
    try:
        if view.done is None or not _data_is_here(job):
            return None
    except (OSError, StorageError, NotFound) as error:
        return _unprepared(job, error, messages.DATASET_NOT_PREPARED(error=error))
    return state_machine.Built(job.attempt, _starting(present_spec(job)))


def _unprepared(job: Job, error: Exception, why: str) -> Event | None:
    """Return BuildFailed, or None if the next sweep may succeed.

    A temporary error fails no attempt that was created less than PREPARING ago.
    """
    passing = isinstance(error, StorageAway) or (isinstance(error, OSError) and error.errno in TEMPORARY)
    attempt = present_attempt(job)
    if not passing or attempt is None or wall_clock() >= attempt.created + PREPARING:
        return state_machine.BuildFailed(job.attempt, why)
    _log.warning("Job %s cannot be prepared now; the sweep tries again. %s", job.pk, why)
    return None


def _data_is_here(job: Job) -> bool:
    """Return whether the job's dataset is materialized. If not, start or continue it.

    Raises OSError, StorageError, NotFound.
    """
    if gone := data_gone(job, for_good=True):
        raise NotFound(gone)
    return job.dataset_version is None or materialization.prepare(job.dataset_version)


def _ship_build_log(job: Job, log: tuple[str, ...]) -> None:
    attempt = present_attempt(job)
    if log and attempt:
        at = time.time()
        lines = [(at, "system", line) for line in log]
        store.append_logs(job_id=job.pk, attempt=attempt, replica=builders.REPLICA, first=1, lines=lines)


def _starting(spec: JobSpec) -> Message:
    """Return the message of a job that is launched, with its replicas."""
    trainers, servers = wording.trainers(spec.trainer.replicas), wording.pservers(spec.pserver.replicas)
    if not spec.pserver.replicas:
        return messages.STARTING_TRAINERS(trainers=trainers)
    if is_coordinated(spec.framework, spec.pserver.replicas):
        return messages.STARTING_WITH_MASTER(servers=servers, trainers=trainers)
    return messages.STARTING_WITH_PSERVERS(servers=servers, trainers=trainers)
