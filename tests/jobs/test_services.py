"""What people and agents do to jobs."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from datasets.storage import default_storage
from jobs import reconciler, selectors, services, snapshots, spec
from jobs.batches import Report
from jobs.models import Artifact, Attempt, CodeSnapshot, Job, JobEvent, Replica
from jobs.states import JobState, ReplicaState
from jobs.streams.entries import Gap
from portal.common.errors import Conflict, QuotaExceeded, ValidationFailed
from portal.common.time import now as wall_clock
from quota.models import Limit, Reservation
from rbac.models import AuditEntry
from tests.jobs.conftest import SPEC
from tests.jobs.fakes import ObedientBackend
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]


@pytest.fixture
def attempt(backend: ObedientBackend, submit: Submit) -> Attempt:
    job = submit()
    reconciler.reconcile(job.pk)
    return Attempt.objects.select_related("job").get(job=job)


def report(attempt: Attempt, phase: str, replica: str = "trainer-0", **fields: Any) -> Replica:
    told = {"code": None, "signal": None, "out_of_memory": False, "why": "", **fields}
    services.record_report(attempt, Report(replica=replica, phase=phase, **told))
    return Replica.objects.get(attempt=attempt, name=replica)


# --- People ----------------------------------------------------------------------------------------------------------
def test_a_submission_keeps_the_code_and_leaves_a_trail(submit: Submit, personas: Personas) -> None:
    job = submit()
    assert (job.state, job.attempt, job.owner) == (JobState.QUEUED, 1, personas.developer)
    assert "files" not in job.spec
    assert snapshots.files_of(job.snapshot) == SPEC["files"]
    assert AuditEntry.objects.filter(action="job.submit", target=str(job.pk), actor=personas.developer).exists()


def test_the_same_code_is_kept_once(submit: Submit) -> None:
    submit()
    submit(name="again")
    assert CodeSnapshot.objects.count() == 1


def test_an_archive_depends_on_the_files_alone() -> None:
    assert snapshots.archive({"b": "2", "a/ü": "1"}) == snapshots.archive({"a/ü": "1", "b": "2"})
    assert snapshots.unpack(snapshots.archive({"b": "2\r\n", "a/ü": "é"})) == {"b": "2\r\n", "a/ü": "é"}


def test_what_can_never_fit_is_refused_with_the_numbers(submit: Submit, personas: Personas) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=2)
    with pytest.raises(QuotaExceeded) as refused:
        submit()
    assert refused.value.extra["numbers"]["cpu"] == {"needed": 3.5, "limit": 2, "held": 0, "free": 2}
    assert Job.objects.count() == 0


def test_the_same_key_gives_the_first_job_again(personas: Personas) -> None:
    wanted = {"actor": personas.developer, "namespace": "team", "spec": spec.parse(SPEC), "idempotency_key": "k"}
    first, second = services.submit_job(**wanted), services.submit_job(**wanted)
    assert (first.created, second.created) == (True, False)
    assert first.job == second.job


def test_the_same_key_for_another_job_is_a_conflict(personas: Personas) -> None:
    wanted = {"actor": personas.developer, "namespace": "team", "idempotency_key": "k"}
    services.submit_job(spec=spec.parse(SPEC), **wanted)
    with pytest.raises(Conflict, match="Use a fresh key"):
        services.submit_job(spec=spec.parse({**SPEC, "passes": 9}), **wanted)


def test_two_people_may_use_the_same_key(personas: Personas) -> None:
    wanted = {"namespace": "team", "spec": spec.parse(SPEC), "idempotency_key": "k"}
    services.submit_job(actor=personas.developer, **wanted)
    assert services.submit_job(actor=personas.owner, **wanted).created


def test_a_preview_changes_nothing_and_tells_the_plan(personas: Personas) -> None:
    preview = services.preview_job(actor=personas.developer, namespace="team", spec=spec.parse(SPEC))
    assert (preview.verdict, preview.amounts["cpu"]) == ("admitted", 3.5)
    assert [one["name"] for one in preview.replicas] == ["master-0", "pserver-0", "trainer-0", "trainer-1"]
    assert (Job.objects.count(), CodeSnapshot.objects.count()) == (0, 0)


def test_cancelling_twice_is_cancelling_once(submit: Submit, personas: Personas) -> None:
    job = submit()
    services.cancel_job(actor=personas.owner, job_id=job.pk)
    again = services.cancel_job(actor=personas.developer, job_id=job.pk)
    assert again.cancelled_by == personas.owner
    assert AuditEntry.objects.filter(action="job.cancel").count() == 1


def test_what_has_ended_cannot_be_cancelled(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = submit()
    services.cancel_job(actor=personas.owner, job_id=job.pk)
    reconciler.reconcile(job.pk)
    with pytest.raises(Conflict, match="already ended"):
        services.cancel_job(actor=personas.owner, job_id=job.pk)


def test_a_retry_runs_the_same_job_as_its_next_attempt(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit()
    services.cancel_job(actor=personas.owner, job_id=job.pk)
    reconciler.reconcile(job.pk)
    again = services.retry_job(actor=personas.developer, job_id=job.pk)
    assert (again.pk, again.state, again.attempt, again.cancel_requested) == (job.pk, JobState.QUEUED, 2, None)
    assert reconciler.reconcile(job.pk) is JobState.REGISTERING


def test_what_has_not_ended_cannot_be_retried(submit: Submit, personas: Personas) -> None:
    with pytest.raises(Conflict, match="has not ended"):
        services.retry_job(actor=personas.owner, job_id=submit().pk)


# --- Agents ----------------------------------------------------------------------------------------------------------
def test_reports_move_a_replica_on(attempt: Attempt) -> None:
    assert report(attempt, "starting").state == "starting"
    assert report(attempt, "registered").registered is not None
    ended = report(attempt, "exited", code=0)
    assert (ended.state, ended.flushed, ended.code) == ("exited", True, 0)


def test_a_report_that_comes_late_does_not_bring_a_replica_back(attempt: Attempt) -> None:
    report(attempt, "exited", code=0)
    assert report(attempt, "registered").state == "exited"


def test_a_report_that_comes_twice_is_told_once(attempt: Attempt) -> None:
    for _ in range(2):
        report(attempt, "registered")
        report(attempt, "exited", signal=9)
    texts = list(JobEvent.objects.order_by("id").values_list("text", flat=True))
    assert texts == ["trainer-0 has registered.", "trainer-0 was ended by SIGKILL."]


def test_the_agents_word_replaces_what_the_backend_saw(attempt: Attempt) -> None:
    Replica.objects.filter(name="trainer-0").update(state="lost", why="its agent is gone")
    ended = report(attempt, "exited", code=3, why="exited with code 3")
    assert (ended.state, ended.why) == ("exited", "exited with code 3")


def test_events_are_taken_once_whatever_is_sent_again(attempt: Attempt) -> None:
    rows = [(1.0, "task", "one"), (2.0, "task", "two"), (3.0, "task", "three")]
    assert services.record_events(attempt, replica="master-0", first=1, events=rows[:2]) == 2
    assert services.record_events(attempt, replica="master-0", first=1, events=rows) == 3
    assert list(JobEvent.objects.order_by("id").values_list("text", flat=True)) == ["one", "two", "three"]


def test_events_that_leave_some_out_are_refused(attempt: Attempt) -> None:
    with pytest.raises(Gap) as gap:
        services.record_events(attempt, replica="master-0", first=2, events=[(1.0, "task", "two")])
    assert gap.value.last == 0


def keep(attempt: Attempt, body: bytes, replica: str = "trainer-0", sha256: str = "") -> Artifact:
    digest = sha256 or hashlib.sha256(body).hexdigest()
    return services.store_artifact(
        attempt, replica=replica, name="model.npz", sha256=digest, size=len(body), stream=io.BytesIO(body)
    )


def test_an_artifact_that_is_sent_again_is_kept_once(attempt: Attempt) -> None:
    assert keep(attempt, b"model") == keep(attempt, b"model")
    assert len(list(default_storage().list("artifacts"))) == 1


def test_an_artifact_that_was_cut_is_refused_and_not_kept(attempt: Attempt) -> None:
    with pytest.raises(ValidationFailed):
        keep(attempt, b"mod", sha256=hashlib.sha256(b"model").hexdigest())
    assert Artifact.objects.count() == len(list(default_storage().list("artifacts"))) == 0


def test_two_replicas_may_leave_different_files_of_one_name(attempt: Attempt) -> None:
    names = [keep(attempt, b"a").name, keep(attempt, b"b", replica="trainer-1").name]
    assert names == ["model.npz", "trainer-1/model.npz"]


# --- Reading ---------------------------------------------------------------------------------------------------------
def test_the_timeline_merges_states_and_happenings(attempt: Attempt) -> None:
    report(attempt, "registered")
    kinds = [entry["kind"] for entry in selectors.timeline(attempt.job)]
    assert kinds == ["state"] * 5 + ["registered"]


@pytest.mark.parametrize("jobs", [1, 6])
def test_a_list_costs_the_same_queries_however_long(
    jobs: int,
    backend: ObedientBackend,
    submit: Submit,
    personas: Personas,
    django_assert_num_queries: Callable[..., Any],
) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=100)
    for _ in range(jobs):
        reconciler.reconcile(submit().pk)
    with django_assert_num_queries(3):
        shown = [selectors.job_json(job) for job in selectors.jobs_for(personas.viewer)]
    assert [len(job["replicas"]) for job in shown] == [4] * jobs


# --- Scaling ---------------------------------------------------------------------------------------------------------
_WHOLE, _FROM_1_TO_256 = "Write a whole number.", "Write a number from 1 to 256."
SCALABLE = {"trainer": {"replicas": 2, "min": 2, "max": 4, "memory": "512Mi"}}


def test_a_wish_for_more_holds_the_quota_at_once_and_is_told(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    reconciler.reconcile(job.pk)
    services.scale_job(actor=personas.developer, job_id=job.pk, wish={"trainer": 4})
    assert Reservation.objects.get(job=job.pk).amounts["cpu"] == 0.5 + 1 + 4
    told = JobEvent.objects.get(job=job, kind="scaled")
    assert (told.text, told.attempt) == ("Scaled from 2 to 4 trainers by developer.", 1)
    entry = AuditEntry.objects.get(action="job.scale")
    assert (entry.actor, entry.detail) == (personas.developer, {"role": "trainer", "before": 2, "after": 4})
    services.scale_job(actor=personas.developer, job_id=job.pk, wish={"trainer": 4})
    assert JobEvent.objects.filter(job=job, kind="scaled").count() == 1


def test_what_the_quota_does_not_allow_changes_nothing(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=8)
    job, other = submit(roles=SCALABLE), submit(roles=SCALABLE)
    reconciler.reconcile(job.pk)
    reconciler.reconcile(other.pk)
    with pytest.raises(QuotaExceeded, match=r"Needs 5\.5 cpu; 4\.5 of 8 are free in `team`: 3\.5 are held by running"):
        services.scale_job(actor=personas.developer, job_id=job.pk, wish={"trainer": 4})
    job.refresh_from_db()
    assert (job.trainers, Reservation.objects.get(job=job.pk).amounts["cpu"]) == (None, 3.5)


def test_fewer_fit_even_where_the_limit_was_lowered(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles={"trainer": {**SCALABLE["trainer"], "replicas": 4}})
    reconciler.reconcile(job.pk)
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=1)
    services.scale_job(actor=personas.developer, job_id=job.pk, wish={"trainer": 2})
    assert Reservation.objects.get(job=job.pk).amounts["cpu"] == 3.5


@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        (None, 'Say how many replicas there shall be, as in {"trainer": 4} or {"pserver": 2}.'),
        ({}, 'Say how many replicas there shall be, as in {"trainer": 4} or {"pserver": 2}.'),
        ({"master": 2}, 'Say how many replicas there shall be, as in {"trainer": 4} or {"pserver": 2}.'),
        ({"trainer": "4"}, "Write a whole number."),
        ({"trainer": True}, "Write a whole number."),
        ({"trainer": 1}, "The specification of this job allows 2 to 4 trainers (its min and max), not 1."),
        ({"trainer": 5}, "The specification of this job allows 2 to 4 trainers (its min and max), not 5."),
    ],
)
def test_a_wish_that_cannot_be_is_explained(submit: Submit, personas: Personas, wish: object, sentence: str) -> None:
    job = submit(roles=SCALABLE)
    with pytest.raises(ValidationFailed) as refused:
        services.scale_job(actor=personas.developer, job_id=job.pk, wish=wish)
    assert refused.value.errors == {"trainer": [sentence]}


@pytest.mark.parametrize(
    ("number", "sentence"),
    [(0, _FROM_1_TO_256), (257, _FROM_1_TO_256), ("2", _WHOLE)],
)
def test_a_number_of_parameter_servers_that_cannot_be_is_explained(
    submit: Submit, personas: Personas, number: object, sentence: str
) -> None:
    with pytest.raises(ValidationFailed) as refused:
        services.scale_job(actor=personas.developer, job_id=submit().pk, wish={"pserver": number})
    assert refused.value.errors == {"pserver": [sentence]}


def test_parameter_servers_are_as_many_as_was_wished_with_the_next_attempt(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    reconciler.reconcile(job.pk)
    services.scale_job(actor=personas.developer, job_id=job.pk, wish={"pserver": 3})
    services.scale_job(actor=personas.developer, job_id=job.pk, wish={"trainer": 3})
    assert Reservation.objects.get(job=job.pk, attempt=1).amounts["cpu"] == 0.5 + 1 + 3, "held for what runs now"
    told = JobEvent.objects.filter(job=job, kind="scaled").order_by("id").first()
    assert told is not None
    assert told.text == ("Scaled from 1 to 3 parameter servers by developer. This takes effect with the next attempt.")
    services.cancel_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    reconciler.reconcile(job.pk, clock=lambda: wall_clock() + timedelta(minutes=1))
    services.retry_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    servers = Replica.objects.filter(role="pserver").values_list("attempt__number", "name").order_by("id")
    assert list(servers) == [(1, "pserver-0"), *((2, f"pserver-{index}") for index in range(3))]
    assert Reservation.objects.get(job=job.pk, attempt=2).amounts["cpu"] == 0.5 + 3 + 3


def test_an_attempt_is_launched_with_the_parameter_servers_that_it_was_admitted_with(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    reconciler.reconcile(job.pk, rest=frozenset({JobState.BUILDING}))
    services.scale_job(actor=personas.developer, job_id=job.pk, wish={"pserver": 2})
    reconciler.reconcile(job.pk)
    (plan,) = backend.plans.values()
    assert [one.name for one in plan.replicas if one.role == "pserver"] == ["pserver-0"]
    assert {one.environment["REGATTA_PSERVERS"] for one in plan.replicas} == {"1"}


def test_a_job_that_failed_can_go_on_with_more_parameter_servers(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    services.cancel_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    assert services.scale_job(actor=personas.developer, job_id=job.pk, wish={"pserver": 2}).pservers == 2


def test_more_parameter_servers_than_the_quota_can_ever_hold_are_refused(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=4)
    job = submit(roles=SCALABLE)
    with pytest.raises(QuotaExceeded, match="it can never start"):
        services.scale_job(actor=personas.developer, job_id=job.pk, wish={"pserver": 8})
    job.refresh_from_db()
    assert job.pservers is None


def test_a_job_that_waits_is_scaled_before_it_starts(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    job = submit(roles=SCALABLE)
    services.scale_job(actor=personas.developer, job_id=job.pk, wish={"trainer": 3})
    reconciler.reconcile(job.pk)
    assert Replica.objects.filter(role="trainer").count() == 3


def test_a_job_that_has_ended_is_not_scaled(submit: Submit, personas: Personas) -> None:
    job = submit(roles=SCALABLE)
    services.cancel_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    with pytest.raises(Conflict, match="Only a job that waits or runs can be scaled; this one is CANCELLED"):
        services.scale_job(actor=personas.developer, job_id=job.pk, wish={"trainer": 3})


# --- Rehearsing failure ----------------------------------------------------------------------------------------------
KILL_TRAINERS = {"kill": "trainer", "every": "10s"}


def test_a_rehearsal_is_kept_told_and_ended(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = services.rehearse(actor=personas.developer, job_id=submit().pk, wish=KILL_TRAINERS)
    kept = selectors.job_json(job)["rehearsal"]
    assert {**kept, "last": ""} == {"kill": "trainer", "every": "10s", "by": "developer", "last": "", "done": 0}
    for _ in range(2):
        job = services.rehearse(actor=personas.developer, job_id=job.pk, wish={"kill": None})
    assert selectors.job_json(job)["rehearsal"] is None
    assert list(JobEvent.objects.filter(job=job).values_list("text", flat=True)) == [
        "developer rehearses failure: every 10 seconds a trainer is killed.",
        "developer ends the rehearsal.",
    ]
    assert AuditEntry.objects.filter(action="job.rehearse", actor=personas.developer).count() == 2


@pytest.mark.parametrize("wish", [None, {}, {"every": "10s"}])
def test_a_rehearsal_says_what_it_kills(submit: Submit, personas: Personas, wish: object) -> None:
    with pytest.raises(ValidationFailed):
        services.rehearse(actor=personas.developer, job_id=submit().pk, wish=wish)


def test_another_kind_of_backend_rehearses_nothing(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    backend.rehearses = False
    with pytest.raises(Conflict, match="where jobs run as processes of one machine"):
        services.rehearse(actor=personas.developer, job_id=submit().pk, wish=KILL_TRAINERS)


def test_the_offer_is_what_the_call_takes(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    for job in (submit(), submit(retries=1)):
        offer = selectors.rehearsal_offer(personas.developer, job)
        assert offer is not None and offer["roles"]
        for role in ("master", "pserver", "trainer"):
            wish = {"kill": role, "every": "10s"}
            try:
                services.rehearse(actor=personas.developer, job_id=job.pk, wish=wish)
            except ValidationFailed:
                assert role not in offer["roles"]
            else:
                assert role in offer["roles"]


def test_where_nothing_can_be_rehearsed_the_offer_says_so(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    backend.rehearses = False
    offer = selectors.rehearsal_offer(personas.developer, submit())
    assert offer is not None
    assert (offer["roles"], offer["why"][:27]) == ([], "Failure can be rehearsed wh")


def test_a_rehearsed_kill_is_told_with_how_long_it_cost(attempt: Attempt) -> None:
    report(attempt, "registered")
    JobEvent.objects.create(job=attempt.job, attempt=1, at=wall_clock(), replica="trainer-0", kind="rehearsal", text="")
    report(attempt, "exited", signal=9)
    at = wall_clock() - timedelta(seconds=3)
    JobEvent.objects.filter(kind="rehearsal").update(at=at)
    JobEvent.objects.create(job=attempt.job, attempt=1, at=at, replica="trainer-0", kind="restarted", text="")
    Replica.objects.filter(attempt=attempt, name="trainer-0").update(
        life=2, state=ReplicaState.WAITING, registered=None, flushed=False
    )
    report(attempt, "registered", life=2)
    told = JobEvent.objects.filter(job=attempt.job, replica="trainer-0").latest("id").text
    assert re.fullmatch(r"trainer-0 was killed for the rehearsal; back after 3\.\d s\.", told), told


def test_a_job_that_has_ended_rehearses_nothing(backend: ObedientBackend, submit: Submit, personas: Personas) -> None:
    job = submit()
    services.cancel_job(actor=personas.developer, job_id=job.pk)
    reconciler.reconcile(job.pk)
    with pytest.raises(Conflict, match="this one is CANCELLED"):
        services.rehearse(actor=personas.developer, job_id=job.pk, wish=KILL_TRAINERS)
