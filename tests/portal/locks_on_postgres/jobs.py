"""Locks of jobs, their streams and reports of agents."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pytest_django import Settings

from datasets.storage.base import Stat
from jobs.elastic.controller import leader_lease
from jobs.ingest.payloads import Report
from jobs.launch import roles
from jobs.lifecycle.cluster_starts import Adoption
from jobs.lifecycle.replica_facts import ReplicaFact
from jobs.lifecycle.states import JobState, ReplicaState
from jobs.maintenance import retention, stream_compaction
from jobs.maintenance.retention import Rule
from jobs.models import Attempt, Elastic, Job, JobEvent, Replica, Transition
from jobs.models.streams import StreamHead
from jobs.reconcile import admission, cluster_starts, reconciler
from jobs.selectors import elastic_jobs, specifications
from jobs.services import elastic_mode, replica_reports, scaling
from jobs.services import jobs as job_services
from jobs.spec.model import JobSpec
from jobs.streams import store
from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, StaleAttempt
from quota import ledger
from quota.models import Claim
from rbac.models import AuditEntry, Namespace, User
from tests.factories import make_attempt, make_job, make_namespace, make_user
from tests.jobs.streams.conftest import Writer
from tests.portal.locks_on_postgres.conftest import Action, Meet, stop_before

pytestmark = pytest.mark.django_db(transaction=True)


def test_lines_of_two_replicas_at_once_get_numbers_of_their_own(meet: Meet) -> None:
    writer = Writer(make_attempt(make_job(attempt=1)))
    other = writer.other("trainer-1")
    writer.lines(1, 1)
    other.lines(1, 1)
    assert meet("jobs.streams.store.ring", lambda: writer.lines(2, 3), lambda: other.lines(2, 3)) == [3, 3]
    lines = store.read_logs(writer.job.pk).lines
    assert [line.seq for line in lines] == [1, 2, 3, 4, 5, 6]


def test_blocks_that_two_merge_at_once_are_merged_once(meet: Meet) -> None:
    writer = Writer(make_attempt(make_job(attempt=1)))
    for number in (1, 2, 3):
        writer.lines(number, number)
    head = StreamHead.objects.get()
    assert meet(
        "jobs.storage_usage.sealed", lambda: stream_compaction._seal(head.pk), lambda: stream_compaction._seal(head.pk)
    ) == [None, None]
    assert [line.seq for line in store.read_logs(writer.job.pk).lines] == [1, 2, 3]


def test_of_two_reports_at_once_neither_is_lost(meet: Meet) -> None:
    attempt = make_attempt(make_job(attempt=1))
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)

    def report_of(phase: str) -> Action:
        report = Report(replica="trainer-0", phase=phase, code=0, signal=None, out_of_memory=False, why="")
        return lambda: replica_reports.record_report(attempt, report)

    assert meet("jobs.services.replica_reports.notify", report_of("registered"), report_of("exited")) == [None, None]
    row = Replica.objects.get()
    assert row.registered is not None
    assert (row.state, row.flushed) == (ReplicaState.EXITED, True)


def test_events_that_come_twice_at_once_are_stored_once(meet: Meet) -> None:
    attempt = make_attempt(make_job(attempt=1))

    def record(first: int) -> int:
        rows = [(1e9 + first, "epoch", f"The epoch {first}.")]
        return replica_reports.record_events(attempt, replica="trainer-0", first=first, events=rows)

    record(1)
    assert meet("jobs.services.replica_reports.ring", partial(record, 2), partial(record, 2)) == [2, 2]
    assert JobEvent.objects.count() == 2


def test_each_file_that_another_replaces_is_removed_once(meet: Meet) -> None:
    attempt = make_attempt(make_job(attempt=1))

    def write(content: str) -> Stat | None:
        return replica_reports._write_artifact(attempt, "model", "trainer-0", Stat(content, 1, content * 64))[1]

    write("a")
    replaced = meet("jobs.services.replica_reports.Stat", partial(write, "b"), partial(write, "c"))
    assert [each.key for each in replaced] == ["a", "b"]


# --- Retry and removal -----------------------------------------------------------------------------------------------
@pytest.fixture
def owner(db: None) -> User:
    return make_user("ada")


@pytest.fixture
def team(owner: User, settings: Settings) -> Namespace:
    settings.DEFAULT_QUOTA = {"cpu": 64, "jobs": 8, "memory": 1 << 40}
    return make_namespace("team", owner=owner)


@pytest.fixture
def spec() -> JobSpec:
    """A job of two trainers; one to four are allowed."""
    return specifications.parse(
        {
            "name": "digits",
            "framework": "native",
            "entrypoint": "train.py",
            "files": {"train.py": "print(1)\n"},
            "dataset": "public/digits",
            "roles": {"trainer": {"replicas": 2, "min": 1, "max": 4}},
            "elastic": True,
        }
    )


@pytest.fixture
def ended(team: Namespace, owner: User, spec: JobSpec) -> Job:
    job = make_job(team, owner, spec=spec.to_json(), state=JobState.FAILED, finished=wall_clock(), attempt=1)
    make_attempt(job, finished=job.finished)
    return job


def test_a_job_that_is_run_again_is_not_deleted(ended: Job, owner: User, meet: Meet) -> None:
    retry = partial(job_services.retry_job, actor=owner, job_id=ended.pk)
    again, refused = meet(
        "jobs.services.jobs.notify", retry, partial(job_services.delete_job, actor=owner, job_id=ended.pk)
    )
    assert isinstance(refused, Conflict)
    assert again == Job.objects.get(state=JobState.QUEUED)


def test_history_of_a_job_that_is_retried_during_its_removal_restarts(ended: Job, owner: User, meet: Meet) -> None:
    def remove(job: Job) -> None:
        retention.ring("")
        retention._remove_history(job)

    prune = partial(retention._remove, ended.pk, wall_clock(), Rule(lambda: None, remove))
    meet("jobs.maintenance.retention.ring", prune, partial(job_services.retry_job, actor=owner, job_id=ended.pk))
    assert Transition.objects.get().state == JobState.QUEUED


def test_a_job_that_is_cancelled_leaves_no_claim(team: Namespace, owner: User, spec: JobSpec, meet: Meet) -> None:
    job = make_job(team, owner, spec=spec.to_json())

    def cancel() -> None:
        job_services.cancel_job(actor=owner, job_id=job.pk)
        reconciler.reconcile(job.pk)

    claim = partial(admission._claim, Job.objects.filter(state=JobState.QUEUED, cancel_requested=None), wall_clock())
    assert meet("quota.ledger.queue_up", claim, cancel) == [None, None]
    assert Job.objects.get().state == JobState.CANCELLED
    assert not Claim.objects.exists()


# --- Elastic jobs ----------------------------------------------------------------------------------------------------
@pytest.fixture
def running(team: Namespace, owner: User, spec: JobSpec) -> Job:
    """A job with two trainers, whose quota is reserved."""
    job = make_job(team, owner, spec=spec.to_json(), state=JobState.RUNNING, attempt=1)
    make_attempt(job)
    assert ledger.reserve(team, ledger.ReservationRequest(job.pk, 1, roles.amounts(spec))).admitted
    return job


def automatically(job: Job, leads: Callable[[], bool], now: datetime) -> Any:
    """A job of three trainers, a number that the platform chose."""
    return scaling.scale_automatically(
        job_id=job.pk, attempt=1, before=2, after=3, why="It learns faster.", leads=leads, now=now
    )


def test_the_number_that_a_person_requests_stays(running: Job, owner: User, meet: Meet) -> None:
    scale = partial(scaling.scale_job, actor=owner, job_id=running.pk, desired={"trainer": 4})
    meet("jobs.launch.roles.amounts", partial(automatically, running, lambda: True, wall_clock()), scale)
    assert Job.objects.values_list("trainers", "elastic").get() == (4, False)


def test_a_new_leader_finds_what_was_written_before(running: Job, meet: Meet) -> None:
    now = wall_clock()
    term = leader_lease.lead("one", now)
    assert term is not None

    def take_over() -> tuple[bool, int | None]:
        led = leader_lease.lead("two", now + timedelta(minutes=1)) is not None
        return led, Job.objects.get().trainers

    scale = partial(automatically, running, partial(leader_lease.holds, term, now), now)
    assert meet("jobs.services.scaling.notify", scale, take_over) == [scaling.Growth.DONE, (True, 3)]


def test_the_audit_log_has_the_mode_that_was_there_before_each_change(meet: Meet) -> None:
    switch = partial(elastic_mode.switch, actor=make_user(admin=True), reason="a test")
    Elastic.objects.create()

    def switch_on() -> None:
        with stop_before('UPDATE "jobs_elastic"', lambda: elastic_jobs.mode()):
            switch(mode="on")

    assert meet("jobs.selectors.elastic_jobs.mode", switch_on, partial(switch, mode="off")) == [None, None]
    assert [entry.before for entry in AuditEntry.objects.order_by("id")] == [{"mode": "settings"}, {"mode": "on"}]


# --- Starts of a replica ---------------------------------------------------------------------------------------------
def store_line(attempt: Attempt) -> int:
    """Store a line of the first start."""
    lines = [(1e9, "stdout", "of the earlier start")]
    return store.append_logs(
        job_id=attempt.job_id, attempt=attempt, replica="trainer-0", first=1, lines=lines, start_number=1
    )


def take_over(attempt: Attempt) -> int:
    """Adopt the second start, and let it begin."""
    Replica.objects.update(start_number=2)
    return store.take_over(attempt, "trainer-0", 2)["logs"]


def test_a_new_start_counts_the_lines_that_an_earlier_one_was_storing(meet: Meet) -> None:
    """Without the lock it would number its own lines as those, and they would be dropped."""
    attempt = make_attempt(make_job(attempt=1))
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)

    assert meet("jobs.streams.store.ring", partial(store_line, attempt), partial(take_over, attempt)) == [1, 1]


def test_an_earlier_start_that_waits_for_a_new_one_stores_nothing(meet: Meet) -> None:
    attempt = make_attempt(make_job(attempt=1))
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0, start_number=2)

    taken, refused = meet("jobs.streams.fencing.check", partial(take_over, attempt), partial(store_line, attempt))
    assert taken == 0
    assert isinstance(refused, StaleAttempt)
    assert store.read_logs(attempt.job_id).lines == []


def test_a_start_of_the_cluster_is_adopted_once_by_two_at_once(meet: Meet) -> None:
    job = make_job(attempt=1, state=JobState.RUNNING)
    attempt = make_attempt(job)
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)
    lost = ReplicaFact("trainer-0", "trainer", ReplicaState.LOST)
    adopt = partial(cluster_starts.adopt, job, attempt, [Adoption(lost, 2, 1)], wall_clock())
    assert meet("jobs.reconcile.cluster_starts.ending", adopt, adopt) == [None, None]
    assert JobEvent.objects.filter(kind="restarted").count() == 1
    assert (Replica.objects.get().start_number, Replica.objects.get().restarts) == (2, 1)


def test_an_earlier_start_that_is_late_for_the_lock_stores_nothing(meet: Meet) -> None:
    attempt = make_attempt(make_job(attempt=1))
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)

    refused, taken = meet("jobs.streams.store._locked_head", partial(store_line, attempt), partial(take_over, attempt))
    assert (type(refused), taken) == (StaleAttempt, 0)
