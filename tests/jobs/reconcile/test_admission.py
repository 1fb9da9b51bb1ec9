"""Admission of waiting jobs in batches: each job is written by compare-and-set, and quota is never over-committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from random import Random
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Attempt, Job, Replica, Transition
from jobs.reconcile import admission, effects, reconciler
from jobs.reconcile.admission import Explanations, admit_waiting
from jobs.selectors import admission as quota_questions
from jobs.selectors import attempts
from jobs.services import jobs as job_services
from jobs.services import scaling
from portal.common.clock import now
from quota import ledger
from quota.models import Capacity, Claim, Limit, Reservation, Stretch
from quota.policy import outlook
from quota.selectors import decide, reserved_in, state, verdict_on
from rbac.models import Namespace
from tests.factories import make_namespace
from tests.jobs.fakes import ObedientBackend
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
ONE = {"trainer": {"replicas": 1, "memory": "256Mi"}}


def admit(at: datetime | None = None) -> list[UUID]:
    return admit_waiting(at or now(), Explanations())


def states() -> list[str]:
    return list(Job.objects.order_by("created").values_list("state", flat=True))


def limit(amount: float, resource: str = "jobs") -> None:
    fields = {"amount": amount}
    Limit.objects.update_or_create(namespace=Namespace.objects.get(name="team"), resource=resource, defaults=fields)


def test_many_are_admitted_with_all_that_a_single_admission_writes(backend: ObedientBackend, submit: Submit) -> None:
    alone, together = submit(name="alone"), [submit(name="together") for _ in range(3)]
    reconciler.reconcile(alone.pk, rest=frozenset({reconciler.JobState.ADMITTED}))
    assert admit() == [job.pk for job in together]
    assert set(states()) == {"ADMITTED"}

    def written(job: Job) -> list[object]:
        [attempt] = Attempt.objects.filter(job=job)
        [reservation] = Reservation.objects.filter(job=job.pk)
        return [
            Transition.objects.filter(job=job).order_by("id").values_list("old", "state", "why", "attempt").last(),
            list(attempt.replicas.order_by("id").values_list("name", "role", "index", "state")),
            attempt.token_digest == effects.digest_of(attempts.token_of(attempt)),
            (reservation.amounts, reservation.priority, reservation.until - reservation.created, reservation.owner_id),
            list(Stretch.objects.filter(reservation=reservation).values_list("amounts", "ended")),
            Job.objects.values_list("why", "reason", "attempt", "revision").get(pk=job.pk),
        ]

    assert [written(job) for job in together] == [written(alone)] * 3
    assert not Claim.objects.exists()


def test_a_job_that_does_not_fit_waits_with_the_message_of_a_single_decision(
    backend: ObedientBackend, submit: Submit
) -> None:
    limit(1)
    jobs = [submit(name=f"job-{number}") for number in range(3)]
    assert admit() == [jobs[0].pk]
    messages = list(Job.objects.order_by("created").values_list("why", flat=True))[1:]
    for job, why in zip(jobs[1:], messages, strict=True):
        reconciler.reconcile(job.pk)
        job.refresh_from_db()
        assert job.why == why
        assert why.startswith("Waiting for quota. The job needs 1 running job; 0 of 1 are free in `team`")


def test_reasons_that_have_not_changed_are_not_written(backend: ObedientBackend, submit: Submit) -> None:
    limit(1)
    for number in range(5):
        submit(name=f"job-{number}")
    moment = now()
    admit(moment)
    revisions = list(Job.objects.order_by("pk").values_list("revision", flat=True))
    with CaptureQueriesContext(connection) as queries:
        admit(moment + timedelta(seconds=1))
    assert list(Job.objects.order_by("pk").values_list("revision", flat=True)) == revisions
    assert not [query for query in queries if not query["sql"].startswith("SELECT")]


def test_the_queries_do_not_grow_with_the_jobs(backend: ObedientBackend, submit: Submit) -> None:
    def queries(count: int) -> int:
        for number in range(count):
            submit(name=f"job-{number}", roles=ONE)
        with CaptureQueriesContext(connection) as queries:
            assert len(admit()) == count
        # Each job's compare-and-set is a query of its own.
        return len(queries) - count

    limit(100)
    limit(1000, "cpu")
    limit(1 << 50, "memory")
    assert queries(2) == queries(10)


def test_reasons_of_many_are_written_every_few_seconds(backend: ObedientBackend, submit: Submit, monkeypatch) -> None:
    monkeypatch.setattr(admission, "MANY", 1)
    limit(1)
    jobs = [submit(name=f"job-{number}") for number in range(3)]
    moment, explanations = now(), Explanations()
    admit_waiting(moment, explanations)
    limit(0.5)

    def why() -> str:
        jobs[2].refresh_from_db()
        return jobs[2].why

    before = why()
    admit_waiting(moment + timedelta(seconds=4), explanations)
    assert why() == before
    admit_waiting(moment + timedelta(seconds=5), explanations)
    assert why() != before


# --- Interleavings ---------------------------------------------------------------------------------------------------
@contextmanager
def before_writing(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Call ``meanwhile`` once, between the loading of a batch's jobs and their compare-and-set."""
    write, pending = reconciler.write_together, [meanwhile]

    def interrupted(moves, at):
        while pending:
            pending.pop()()
        return write(moves, at)

    with monkeypatch.context() as patch:
        patch.setattr(reconciler, "write_together", interrupted)
        yield


@pytest.mark.invariant("A job that changes between review and admission gets no reservation.")
def test_a_job_cancelled_while_its_batch_is_written_holds_nothing(
    backend: ObedientBackend, submit: Submit, personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [submit(name=f"job-{number}") for number in range(3)]

    def cancel() -> None:
        job_services.cancel_job(actor=personas.developer, job_id=jobs[1].pk)
        reconciler.reconcile(jobs[1].pk)

    with before_writing(monkeypatch, cancel):
        assert admit() == [jobs[0].pk, jobs[2].pk]
    assert states() == ["ADMITTED", "CANCELLED", "ADMITTED"]
    assert set(Reservation.objects.values_list("job", flat=True)) == {jobs[0].pk, jobs[2].pk}
    assert not Claim.objects.exists()


def test_a_job_admitted_by_itself_while_its_batch_is_written_is_admitted_once(
    backend: ObedientBackend, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [submit(name=f"job-{number}") for number in range(2)]
    with before_writing(monkeypatch, lambda: reconciler.reconcile(jobs[0].pk)):
        assert admit() == [jobs[1].pk]
    assert [Transition.objects.filter(job=job, state="ADMITTED").count() for job in jobs] == [1, 1]
    assert [Reservation.objects.filter(job=job.pk).count() for job in jobs] == [1, 1]


def test_a_claim_of_a_job_that_does_not_wait_any_more_is_removed(
    backend: ObedientBackend, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(1)
    gone, waits = submit(name="gone"), submit(name="waits")
    reconciler.reconcile(gone.pk)
    Reservation.objects.all().delete()
    Claim.objects.create(
        namespace=gone.namespace, job=gone.pk, attempt=1, since=gone.changed, turn=gone.changed, length=1,
        amounts={"jobs": 1},
    )  # fmt: skip
    assert admit() == []
    assert admit() == [waits.pk]
    assert not Claim.objects.exists()


def test_a_job_that_requests_more_since_its_claim_reserves_the_new_amount(
    backend: ObedientBackend, submit: Submit, personas: Personas
) -> None:
    limit(1)
    reconciler.reconcile(submit(name="first").pk)
    job = submit(roles={"trainer": {"replicas": 1, "max": 4, "memory": "256Mi"}}, elastic=False)
    assert admit() == []
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 3})
    Reservation.objects.all().delete()
    # Its new request needs a decision first.
    assert admit() == []
    assert admit() == [job.pk]
    job.refresh_from_db()
    assert Reservation.objects.get().amounts["cpu"] == quota_questions.reservation_request(job).amounts["cpu"]
    assert Replica.objects.filter(attempt__job=job, role="trainer").count() == 3


def test_a_batch_that_fails_is_admitted_one_by_one(
    backend: ObedientBackend, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [submit(name=f"job-{number}") for number in range(2)]
    monkeypatch.setattr(effects, "commit_together", lambda due: 1 / 0)
    assert admit() == [job.pk for job in jobs]
    assert states() == ["QUEUED", "QUEUED"]
    assert not Reservation.objects.exists()


@pytest.mark.invariant("A batch of admissions from an outdated review over-commits nothing.")
def test_a_decision_between_the_review_and_the_batch_over_commits_nothing(
    backend: ObedientBackend, submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The review found capacity for two jobs; another process takes one place before the batch has its locks."""
    limit(2)
    submit(name="first")
    submit(name="second")
    other, review = submit(name="other"), ledger.review

    def outdated(at: datetime, **more: object) -> ledger.Review:
        seen = review(at, **more)
        reconciler.reconcile(Job.objects.get(name="first").pk)
        return seen

    monkeypatch.setattr(ledger, "review", outdated)
    admit()
    assert reserved_in(other.namespace)["jobs"] == 2
    assert sorted(states()) == sorted(["REGISTERING", "ADMITTED", "QUEUED"])


# --- Long queues -----------------------------------------------------------------------------------------------------
@pytest.mark.invariant("A decision that reads only the heads of long queues equals the decision on the whole queues.")
def test_a_decision_on_the_heads_of_long_queues_is_the_one_on_all_of_them(db: None) -> None:
    """Namespaces have more claims than are read at first, of all priorities; some can never fit, some are overdue."""
    dice, at = Random(5), now()
    Capacity.objects.create(resource="cpu", amount=30)
    for number in range(3):
        namespace = make_namespace(f"queue-{number}")
        for resource, amount, borrow in (("cpu", 8, 20), ("memory", 1000, 0), ("jobs", 500, 0)):
            Limit.objects.create(namespace=namespace, resource=resource, amount=amount, borrow=borrow)
        asks = [
            ledger.ReservationRequest(
                uuid4(),
                1,
                {"cpu": dice.choice([1, 2, 9, 50]), "jobs": 1},
                length=dice.uniform(100, 9000),
                priority=dice.choice(["low", "normal", "high"]),
                since=at - timedelta(minutes=dice.uniform(0, 400)),
            )
            for _ in range(100 + 500 * number)
        ]
        ledger.queue_up([(namespace, ask) for ask in asks], at)
    whole = state(at)
    found, decision = outlook(whole, at.timestamp()), decide(at)
    assert len(decision.looked_at.waiting) < len(whole.waiting)
    assert decision.found.granted == found.granted
    assert decision.found.granted
    for claim in whole.waiting:
        if claim.key not in found.granted:
            assert decision.verdict(claim.key).why == verdict_on(claim, whole, found).why


def test_claims_at_the_head_that_never_fit_do_not_block_others(namespace_of_many: Namespace) -> None:
    at = now()
    never = [ledger.ReservationRequest(uuid4(), 1, {"cpu": 50}, since=at - timedelta(minutes=9)) for _ in range(400)]
    last = ledger.ReservationRequest(uuid4(), 1, {"cpu": 1}, since=at)
    ledger.queue_up([(namespace_of_many, ask) for ask in [*never, last]], at)
    assert decide(at).found.granted == ((last.job, 1),)


@pytest.fixture
def namespace_of_many(db: None) -> Namespace:
    namespace = make_namespace("many")
    Limit.objects.create(namespace=namespace, resource="cpu", amount=8)
    return namespace
