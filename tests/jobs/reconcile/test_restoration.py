"""A database that was restored to an earlier state than that of the running attempts: every row of the table
"A restore that is older than running jobs" in docs/operations.md that concerns jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from jobs.backends.base import AttemptRef, Phase, ReplicaView
from jobs.ingest.payloads import Report
from jobs.lifecycle.states import JobState
from jobs.messages import jobs as messages
from jobs.models import Attempt, Job, JobEvent, Replica
from jobs.reconcile import reconciler, restoration
from jobs.services import replica_reports
from jobs.streams import store
from jobs.streams.entries import Gap
from jobs.streams.fencing import StartNotAdopted
from portal.common.clock import now as wall_clock
from quota.models import Reservation
from rbac.audit import restorations
from rbac.models import AuditEntry
from tests.jobs.conftest import Use
from tests.jobs.fakes import ObedientBackend, StubbornBackend
from tests.messages import mentions

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
REPLICAS = ("master-0", "pserver-0", "trainer-0", "trainer-1")


def report(attempt: Attempt, replica: str, phase: str, start_number: int = 1) -> None:
    replica_reports.record_report(attempt, Report(replica, phase, None, None, False, "", start_number))


def running(submit: Submit) -> Attempt:
    job = submit()
    reconciler.reconcile(job.pk)
    attempt = Attempt.objects.select_related("job__namespace").get(job=job)
    for replica in REPLICAS:
        report(attempt, replica, "registered")
    assert reconciler.reconcile(job.pk) is JobState.RUNNING
    attempt.job.refresh_from_db()
    return attempt


def unknown(backend: ObedientBackend, attempt: Attempt, number: int = 2) -> AttemptRef:
    """Let the backend run an attempt that was started after the restored state."""
    [plan] = backend.plans.values()
    ref = AttemptRef(str(attempt.job_id), "of-later", number, attempt.job.namespace.name)
    backend.plans[ref.attempt_id] = plan.__class__(**{**vars(plan), "ref": ref})
    backend.views[ref.attempt_id] = {"trainer-0": ReplicaView("trainer-0", Phase.RUNNING)}
    return ref


def after_restore(*arguments: str) -> str:
    out = StringIO()
    call_command("after_restore", *arguments, stdout=out)
    return out.getvalue()


def state(job_id: object) -> tuple[str, int]:
    job = Job.objects.get(pk=job_id)
    return job.state, job.attempt


# --- Attempts --------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("An attempt that is known to the restored database goes on.")
def test_an_attempt_that_database_and_backend_have_goes_on(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    printed = after_restore()
    assert "Attempts that continue: 1" in printed
    assert reconciler.reconcile(attempt.job_id) is JobState.RUNNING
    assert state(attempt.job_id) == ("RUNNING", 1)
    assert "stop" not in backend.calls


@pytest.mark.invariant("An attempt that is unknown to the restored database is stopped before the portal starts.")
def test_an_attempt_that_the_database_does_not_know_is_stopped_and_removed(
    backend: ObedientBackend, submit: Submit
) -> None:
    attempt = running(submit)
    later = unknown(backend, attempt)
    assert "Attempts that are unknown to the database: 1" in after_restore()
    assert backend.observe(later).gone
    assert not backend.observe(restoration.survey().continuing[0]).gone


def test_a_later_attempt_of_a_job_is_stopped_and_never_runs_beside_the_next_one(
    backend: ObedientBackend, submit: Submit
) -> None:
    attempt = running(submit)
    later = unknown(backend, attempt)
    backend.views.pop(str(attempt.pk))
    after_restore()
    assert backend.observe(later).gone
    assert state(attempt.job_id) == ("QUEUED", 3)  # the number 2 is used
    assert Reservation.objects.filter(released=None).count() == 0
    reconciler.reconcile(attempt.job_id)
    assert state(attempt.job_id) == ("REGISTERING", 3)


def test_checkpoints_of_later_attempts_are_found_by_the_next_one(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    backend.views.pop(str(attempt.pk))
    backend.checkpoints[str(attempt.job_id)] = 4
    after_restore()
    assert state(attempt.job_id) == ("QUEUED", 5)


def test_a_job_whose_attempt_has_ended_since_runs_again_and_says_why(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    backend.views.pop(str(attempt.pk))
    assert "Attempts that have ended since: 1" in after_restore()
    job = Job.objects.get(pk=attempt.job_id)
    assert (job.state, job.attempt) == ("QUEUED", 2)
    assert mentions(job.why, messages.ATTEMPT_ENDED_AFTER_RESTORED_STATE)
    assert Reservation.objects.filter(released=None).count() == 0


def test_it_is_cancelled_instead_if_the_operator_says_so(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    backend.views.pop(str(attempt.pk))
    after_restore("--cancel-missing")
    job = Job.objects.get(pk=attempt.job_id)
    assert job.state == JobState.CANCELLED
    assert mentions(job.why, messages.ATTEMPT_ENDED_AFTER_RESTORED_STATE)


def test_an_attempt_in_preparation_is_adopted_if_the_backend_runs_it_already(
    backend: ObedientBackend, submit: Submit
) -> None:
    job = submit()
    reconciler.reconcile(job.pk, rest=frozenset({JobState.BUILDING}))
    attempt = Attempt.objects.get(job=job)
    ref = AttemptRef(str(job.pk), str(attempt.pk), 1, "team")
    backend.views[ref.attempt_id] = {name: ReplicaView(name, Phase.RUNNING) for name in REPLICAS}
    backend.plans[ref.attempt_id] = type("Plan", (), {"ref": ref, "namespace": "team"})()
    after_restore()
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING
    assert {view.phase for view in backend.views[ref.attempt_id].values()} == {Phase.RUNNING}


def test_a_dry_run_changes_nothing(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    later = unknown(backend, attempt)
    backend.calls.clear()
    assert "unknown to the database: 1" in after_restore("--dry-run")
    assert (backend.calls, backend.observe(later).gone) == ([], False)
    assert restorations.latest() is None


def test_while_an_unknown_attempt_cannot_be_stopped_the_command_fails(use: Use, submit: Submit) -> None:
    backend = use(StubbornBackend())
    attempt = running(submit)
    unknown(backend, attempt)
    with pytest.raises(CommandError, match="Do not start the portal yet"):
        after_restore("--seconds", "0")
    assert restorations.latest() is None


def test_a_second_run_finds_nothing_left_to_do(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    unknown(backend, attempt)
    after_restore()
    before = state(attempt.job_id)
    assert "unknown to the database: 0" in after_restore()
    assert state(attempt.job_id) == before


def test_the_audit_log_has_what_was_found(backend: ObedientBackend, submit: Submit) -> None:
    unknown(backend, running(submit))
    after_restore()
    row = AuditEntry.objects.get(action=restorations.ACTION)
    found = {name: row.detail[name] for name in ("continuing", "unknown", "missing", "cancelled")}
    assert found == {"continuing": 1, "unknown": 1, "missing": 0, "cancelled": False}


# --- Replicas --------------------------------------------------------------------------------------------------------
@pytest.fixture
def restored(backend: ObedientBackend, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    """Return the attempt of a running job, whose database was restored since."""
    attempt = running(submit)
    after_restore()
    monkeypatch.setattr(restorations, "EPOCH", restorations.Epoch())
    return attempt


def test_restarts_that_the_database_does_not_know_are_adopted_and_counted(
    backend: ObedientBackend, restored: Attempt
) -> None:
    backend.becomes(str(restored.pk), "trainer-0", Phase.RUNNING, start_number=3)
    reconciler.reconcile(restored.job_id)
    report(restored, "trainer-0", "registered", start_number=3)
    row = Replica.objects.get(attempt=restored, name="trainer-0")
    assert (row.start_number, row.state, row.restarts) == (3, "registered", 2)
    assert not any(call.startswith("restart") for call in backend.calls)


def test_a_report_of_a_later_start_is_adopted_too(restored: Attempt) -> None:
    Replica.objects.filter(attempt=restored, name="trainer-0").update(state="exited", flushed=True, code=1)
    report(restored, "trainer-0", "registered", start_number=2)
    row = Replica.objects.get(attempt=restored, name="trainer-0")
    assert (row.start_number, row.state, row.flushed, row.code) == (2, "registered", False, None)


def test_a_start_of_a_replica_that_registers_is_adopted(backend: ObedientBackend, restored: Attempt) -> None:
    Job.objects.filter(pk=restored.job_id).update(state=JobState.REGISTERING)
    backend.becomes(str(restored.pk), "trainer-0", Phase.RUNNING, start_number=2)
    reconciler.reconcile(restored.job_id)
    row = Replica.objects.get(attempt=restored, name="trainer-0")
    assert (row.start_number, row.restarts) == (2, 0)


def test_without_a_restoration_a_later_start_waits_for_its_adoption(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    with pytest.raises(StartNotAdopted):
        report(attempt, "trainer-0", "registered", start_number=2)


def test_a_trainer_that_was_added_since_is_stopped(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    backend.becomes(str(attempt.pk), "trainer-2", Phase.RUNNING)
    reconciler.reconcile(attempt.job_id)
    assert "scale to 2" in backend.calls
    assert backend.views[str(attempt.pk)]["trainer-2"].phase is Phase.EXITED


# --- Streams ---------------------------------------------------------------------------------------------------------
def append(attempt: Attempt, first: int, *texts: str, gone: int = 0) -> int:
    lines = [(1.0, "stdout", text) for text in texts]
    return store.append_logs(
        job_id=attempt.job_id, attempt=attempt, replica="trainer-0", first=first, lines=lines, gone=gone
    )


def texts(attempt: Attempt) -> list[str]:
    return [line.text for line in store.read_logs(attempt.job_id).lines]


@pytest.mark.invariant("Lines that the restored database has lost are sent again by their agent, each once.")
def test_lines_after_the_restored_state_are_asked_for_again(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    append(attempt, 1, "one")  # the restored state: "two" and "three" were accepted, and are lost
    with pytest.raises(Gap) as gap:
        append(attempt, 4, "four")
    append(attempt, gap.value.last + 1, "two", "three", "four")
    assert texts(attempt) == ["one", "two", "three", "four"]


def test_lines_of_a_pod_that_is_gone_are_skipped_and_counted(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    append(attempt, 1, "one")
    assert append(attempt, 4, "four", gone=3) == 4
    assert texts(attempt) == ["one", "four"]
    lost = messages.ENTRIES_LOST_BY_RESTORE(count=2, kind="logs", replica="trainer-0")
    assert list(JobEvent.objects.filter(kind="warning").values_list("text", flat=True)) == [lost]


def test_lines_that_the_replica_still_has_are_not_skipped(backend: ObedientBackend, submit: Submit) -> None:
    attempt = running(submit)
    append(attempt, 1, "one")
    with pytest.raises(Gap):
        append(attempt, 5, "five", gone=3)
    assert append(attempt, 1, "one", "two", gone=3) == 2  # nothing that is there is skipped


# --- Name of the state, and grace of files ----------------------------------------------------------------------
def test_the_name_of_the_state_changes_with_every_restoration(db: None) -> None:
    seconds = iter(range(0, 100, 10))
    epoch = restorations.Epoch(lambda: float(next(seconds)))
    names = [epoch.current()]
    for _ in range(2):
        restorations.record({})
        names.append(epoch.current())
    assert names[0] == ""
    assert len(set(names)) == 3


def test_unknown_files_are_kept_for_a_week_after_a_restoration(db: None) -> None:
    assert not restorations.keeps_unknown_files(wall_clock())
    at = restorations.record({}).at
    assert restorations.keeps_unknown_files(at + timedelta(days=6))
    assert not restorations.keeps_unknown_files(at + timedelta(days=8))
