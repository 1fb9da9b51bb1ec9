"""Logs of processes without agents: the portal stores each line once and in order, whatever fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import close_old_connections

from jobs.lifecycle.states import JobState
from jobs.log_follower.pool import AFTER_ANOTHER, Following
from jobs.messages import cluster as messages
from jobs.messages import jobs as job_messages
from jobs.models import Attempt, Job, Replica
from jobs.reconcile import reconciler
from jobs.selectors import specifications
from jobs.services import jobs as job_services
from jobs.streams import store
from portal.common.clock import now
from portal.common.errors import Conflict, ValidationFailed
from runtime.messages.composition import with_full_stop
from tests.jobs.conftest import Use
from tests.jobs.log_follower.logs import (
    BEGIN,
    SECOND,
    CuttingLogs,
    EndingLogs,
    FaithfulLogs,
    MeddlingLogs,
    RefusingLogs,
)
from tests.messages import mentions, pattern
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
BARE: dict[str, Any] = {
    "framework": "command",
    "image": "registry.example.com/team/train:1",
    "files": {},
    "dataset": "",
    "roles": {"trainer": {"replicas": 1}},
}
LINES = [f"line {number}" for number in range(20)]


def in_turn(work: Callable[[], None]) -> None:
    work()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Portal:
    """A portal that follows logs within its rounds, without threads."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._following = Following(in_turn, self.clock, lambda: None)

    def looks(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.now += 60
            self._following.when_due(now())


def begun(submit: Submit, backend: FaithfulLogs, **fields: Any) -> Job:
    """Return a job with a running program."""
    job = submit(**{**BARE, **fields})
    reconciler.reconcile(job.pk)
    backend.begins()
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    return job


def texts(job: Job, stream: str = "stdout") -> list[str]:
    return [line.text for line in store.read_logs(job.pk).lines if line.stream == stream]


# --- From the beginning to the end -----------------------------------------------------------------------------------
def test_a_program_in_an_image_of_its_own_runs_and_ends_by_its_exit_code(use: Use, submit: Submit) -> None:
    backend, portal = FaithfulLogs(), Portal()
    use(backend)
    job = begun(submit, backend)
    [plan] = backend.plans.values()
    assert (plan.agents, plan.image, [one.command for one in plan.replicas]) == (False, BARE["image"], [()])
    assert Replica.objects.get().registered is not None
    backend.prints("trainer-0", *LINES)
    backend.ends()
    portal.looks()
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.SUCCEEDED
    assert texts(job) == LINES


def test_a_program_that_fails_is_reported_with_its_code(use: Use, submit: Submit) -> None:
    backend = FaithfulLogs()
    use(backend)
    job = begun(submit, backend)
    backend.ends(code=3)
    Portal().looks()
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.FAILED
    job.refresh_from_db()
    assert (job.reason, job.why) == (
        "user_error",
        with_full_stop(job_messages.ENDING(replica="trainer-0", ending=job_messages.EXITED(code=3))),
    )


def test_costs_that_it_prints_are_its_curve_also_when_another_worker_reads_on(use: Use, submit: Submit) -> None:
    backend = FaithfulLogs()
    use(backend)
    job = begun(submit, backend)
    for cost in (3, 2, 1):
        backend.prints("trainer-0", f"cost {cost}")
        Portal().looks()
    assert [(point.step, point.key, point.value) for point in store.read_points(job.pk)] == [
        *((0, "cost", 3), (1, "cost", 2), (2, "cost", 1))
    ]


def test_lines_have_the_time_at_which_they_were_printed(use: Use, submit: Submit) -> None:
    backend = FaithfulLogs()
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", "now", after=SECOND)
    Portal().looks()
    [line] = store.read_logs(job.pk).lines
    assert (line.time, line.replica) == (BEGIN / SECOND + 1, "trainer-0")


def test_beyond_the_cap_nothing_is_kept_and_that_is_reported_once(use: Use, submit: Submit, settings: Any) -> None:
    settings.LOG_CAP_BYTES = 30
    backend = FaithfulLogs()
    use(backend)
    job = begun(submit, backend)
    for line in LINES:
        backend.prints("trainer-0", line)
        Portal().looks()
    assert texts(job) == LINES[:4]
    assert len(texts(job, "system")) == 1


# --- Failures --------------------------------------------------------------------------------------------------------
@pytest.mark.invariant(
    "Each log line of a program without an agent is stored once and in order, wherever the connection breaks."
)
@pytest.mark.parametrize("after", [0, 1, 37, 60, 400])
@pytest.mark.parametrize("logs", [CuttingLogs, EndingLogs])
def test_a_connection_that_is_cut_loses_and_doubles_nothing(
    use: Use, submit: Submit, logs: type[CuttingLogs], after: int
) -> None:
    backend, portal = logs(after, 3), Portal()
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", *LINES)
    portal.looks(3)
    backend.prints("trainer-0", "last")
    backend.ends()
    portal.looks(3)
    assert texts(job) == [*LINES, "last"]
    assert Replica.objects.get().flushed


@pytest.mark.parametrize("logs", [CuttingLogs, EndingLogs])
def test_the_end_of_a_program_that_ended_is_read_though_the_connection_is_cut(
    use: Use, submit: Submit, logs: type[CuttingLogs]
) -> None:
    backend, portal = logs(100, 1), Portal()
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", *LINES)
    backend.ends()
    portal.looks(3)
    assert (texts(job), texts(job, "system")) == (LINES, [])
    assert Replica.objects.get().flushed


def test_a_refused_follower_tries_again_later(use: Use, submit: Submit) -> None:
    backend, portal = RefusingLogs(4), Portal()
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", *LINES)
    portal.looks(5)
    assert texts(job) == LINES


def test_after_a_failure_it_waits_longer_each_time(use: Use, submit: Submit) -> None:
    backend, clock = RefusingLogs(100), Clock()
    following = Following(in_turn, clock, lambda: None)
    use(backend)
    begun(submit, backend)
    for _ in range(100):
        clock.now += 0.5
        following.when_due(now())
    assert 100 - backend.times < 10


class NoThread:
    """A machine that fails to start the first thread."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, work: Callable[[], None]) -> None:
        self.asked += 1
        if self.asked == 1:
            raise RuntimeError("can't start new thread")
        work()


def test_without_a_thread_to_spare_it_is_followed_later(use: Use, submit: Submit) -> None:
    backend, clock = FaithfulLogs(), Clock()
    following = Following(NoThread(), clock, lambda: None)
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", *LINES)
    for _ in range(2):
        following.when_due(now())
        clock.now += 60
    assert texts(job) == LINES


def test_a_log_that_cannot_be_read_is_given_up_and_reported(use: Use, submit: Submit) -> None:
    backend, portal = RefusingLogs(1000), Portal()
    use(backend)
    job = begun(submit, backend)
    backend.ends()
    portal.looks(10)
    assert texts(job, "system") == [
        messages.LOG_END_UNREADABLE(why=messages.CLUSTER_REQUEST_FAILED(why="try again later"))
    ]
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.SUCCEEDED


@pytest.mark.invariant(
    "Each log line of a program without an agent is stored once and in order, wherever the connection breaks."
)
def test_a_worker_that_is_killed_is_followed_by_one_that_goes_on_where_it_was(use: Use, submit: Submit) -> None:
    backend = FaithfulLogs()
    use(backend)
    job = begun(submit, backend)
    for line in LINES:
        backend.prints("trainer-0", line)
        Portal().looks()
    assert texts(job) == LINES
    assert backend.asked[-1] >= BEGIN // SECOND, "not all of it is read again"


def test_a_rotated_log_continues_and_reports_that_lines_may_be_missing(use: Use, submit: Submit) -> None:
    backend, portal = FaithfulLogs(), Portal()
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", "first", "second")
    portal.looks()
    backend.prints("trainer-0", "third")
    del backend.lines["trainer-0"][:1]
    portal.looks()
    assert (texts(job), texts(job, "system")) == (["first", "second", "third"], [])
    backend.prints("trainer-0", "lost", "fourth")
    del backend.lines["trainer-0"][:-1]
    portal.looks()
    assert texts(job) == ["first", "second", "third", "fourth"]
    assert mentions(texts(job, "system")[0], messages.LOG_ROTATED)


def test_another_pod_in_the_place_is_read_from_its_beginning(use: Use, submit: Submit) -> None:
    backend, portal = FaithfulLogs(), Portal()
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", "of the first")
    portal.looks()
    backend.lines = {"trainer-0": [(BEGIN - 5 * SECOND, "of the second, on a node whose clock is slow")]}
    backend.begins(pod="pod-2")
    portal.looks()
    assert texts(job) == ["of the first", "of the second, on a node whose clock is slow"]


def test_a_pod_removed_before_its_log_was_read_to_the_end_is_reported(use: Use, submit: Submit) -> None:
    backend = FaithfulLogs()
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", "something")
    Portal().looks()
    backend.ends(code=None, signal=9)
    backend.pods.clear()
    Portal().looks()
    assert texts(job, "system") == [messages.LOG_END_MISSING()]
    assert Replica.objects.get().flushed


def test_a_replica_stopped_before_it_had_a_pod_is_not_waited_for(use: Use, submit: Submit) -> None:
    backend = FaithfulLogs()
    use(backend)
    job = submit(**BARE)
    reconciler.reconcile(job.pk)
    Job.objects.filter(pk=job.pk).update(cancel_requested=now())
    assert reconciler.reconcile(job.pk) is JobState.CANCELLED or Job.objects.get(pk=job.pk).state == JobState.STOPPING
    Portal().looks()
    assert reconciler.reconcile(job.pk) is JobState.CANCELLED


# --- Concurrency -----------------------------------------------------------------------------------------------------
def test_of_two_that_follow_at_once_one_is_refused_and_keeps_away(use: Use, submit: Submit) -> None:
    other = Portal()
    backend, portal = MeddlingLogs(other.looks), Portal()
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", *LINES)
    portal.looks()
    assert texts(job) == LINES
    asked = len(backend.asked)
    portal.clock.now -= 60 - AFTER_ANOTHER / 2
    portal.looks()
    assert len(backend.asked) == asked
    backend.prints("trainer-0", "more")
    portal.looks()
    assert texts(job) == [*LINES, "more"]


def test_nothing_is_taken_of_an_attempt_that_was_replaced(use: Use, submit: Submit) -> None:
    backend = MeddlingLogs(lambda: Job.objects.update(attempt=2) and None)
    use(backend)
    job = begun(submit, backend)
    backend.prints("trainer-0", *LINES)
    Portal().looks()
    assert texts(job) == []


@pytest.mark.django_db(transaction=True)
def test_portals_beside_one_another_take_each_line_once(use: Use, submit: Submit) -> None:
    backend = FaithfulLogs(pieces=200)
    use(backend)
    job = begun(submit, backend)
    lines = [f"cost {number}" for number in range(200)]

    def follow() -> None:
        portal = Portal()
        while not Replica.objects.get().flushed:
            portal.looks()
        close_old_connections()

    threads = [threading.Thread(target=follow) for _ in range(3)]
    for thread in threads:
        thread.start()
    for line in lines:
        backend.prints("trainer-0", line)
    backend.ends()
    for thread in threads:
        thread.join(60)
    assert texts(job) == lines
    assert [point.value for point in store.read_points(job.pk)] == list(range(200))


# --- The end of the attempt ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seen", [True, False], ids=["somebody-saw-it-run", "it-is-over-before-anybody-looked"])
def test_the_pods_are_not_taken_away_before_they_are_read(use: Use, submit: Submit, seen: bool) -> None:
    backend, portal = FaithfulLogs(), Portal()
    use(backend)
    job = submit(**BARE)
    reconciler.reconcile(job.pk)
    backend.begins()
    if seen:
        assert reconciler.reconcile(job.pk) is JobState.RUNNING
    backend.prints("trainer-0", *LINES)
    backend.ends()
    reconciler.reconcile(job.pk)
    assert "stop" not in backend.calls
    portal.looks()
    reconciler.reconcile(job.pk)
    assert reconciler.reconcile(job.pk) is JobState.SUCCEEDED
    assert texts(job) == LINES


def test_the_end_of_a_cancelled_job_waits_until_all_is_read(use: Use, submit: Submit) -> None:
    backend, portal = FaithfulLogs(), Portal()
    use(backend)
    job = begun(submit, backend)
    Job.objects.filter(pk=job.pk).update(cancel_requested=now())
    backend.prints("trainer-0", *LINES)
    reconciler.reconcile(job.pk)
    backend.ends(code=None, signal=15)
    late = lambda: now() + timedelta(seconds=60)  # noqa: E731
    assert reconciler.reconcile(job.pk, clock=late) is JobState.STOPPING
    portal.looks()
    assert reconciler.reconcile(job.pk) is JobState.CANCELLED
    assert texts(job) == LINES


def test_a_cancelled_job_does_not_wait_for_ever_for_an_unread_log(use: Use, submit: Submit) -> None:
    backend = FaithfulLogs()
    use(backend)
    job = begun(submit, backend)
    Job.objects.filter(pk=job.pk).update(cancel_requested=now())
    reconciler.reconcile(job.pk)
    backend.ends(code=None, signal=15)
    much_later = lambda: now() + timedelta(minutes=3)  # noqa: E731
    assert reconciler.reconcile(job.pk, clock=much_later) is JobState.CANCELLED


# --- Backends without images -----------------------------------------------------------------------------------------
def test_an_installation_without_a_cluster_reports_it_at_once(backend: object, submit: Submit) -> None:
    with pytest.raises(ValidationFailed) as refused:
        submit(**BARE)
    assert refused.value.errors == {"image": [messages.IMAGES_NOT_SUPPORTED()]}


def test_an_image_of_another_namespace_s_jobs_is_refused(use: Use, submit: Submit, settings: Any) -> None:
    use(FaithfulLogs())
    settings.IMAGE_REGISTRY = "registry.example.com/regatta"
    with pytest.raises(ValidationFailed) as refused:
        submit(**{**BARE, "image": "Registry.example.com:443/regatta/jobs/others:j-1"})
    assert mentions(refused.value.errors["image"][0], messages.IMAGE_OF_ANOTHER_NAMESPACE)
    assert submit(**{**BARE, "image": "registry.example.com/regatta/jobs/team:j-1"}).pk
    assert submit(**{**BARE, "image": "registry.example.com/team/train:1"}).pk
    assert Attempt.objects.count() == 0


def test_the_same_key_with_another_image_is_a_conflict(use: Use, personas: Personas) -> None:
    use(FaithfulLogs())
    wanted = {"actor": personas.developer, "namespace": "team", "idempotency_key": "k"}
    body = {"name": "bare", "image": "registry.example.com/team/train:1"}
    first = job_services.submit_job(spec=specifications.parse(body), **wanted)
    assert job_services.submit_job(spec=specifications.parse(body), **wanted).job == first.job
    with pytest.raises(Conflict, match=pattern(job_messages.IDEMPOTENCY_KEY_REUSED)):
        job_services.submit_job(
            spec=specifications.parse({**body, "image": "registry.example.com/team/train:2"}), **wanted
        )
    assert Job.objects.count() == 1
