"""The controller with the database and an obedient backend: growth, shrinking, and invariants."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from pytest_django import Settings

from jobs.backends.base import Phase
from jobs.elastic.controller import leader_lease
from jobs.elastic.controller.controller import Controller, rules
from jobs.elastic.policy.model import Amounts, Cluster, Node
from jobs.elastic.policy.model import Job as Member
from jobs.elastic.policy.policy import decide
from jobs.ingest.payloads import Report
from jobs.lifecycle.states import JobState
from jobs.messages import elastic as elastic_messages
from jobs.messages import jobs as job_messages
from jobs.models import Attempt, Elastic, Job, JobEvent, Replica, Scaling
from jobs.reconcile import reconciler
from jobs.reconcile.sweep import sweep
from jobs.selectors import elastic_jobs, specifications
from jobs.services import jobs as job_services
from jobs.services import replica_reports, scaling
from portal.common.clock import now as wall_clock
from quota.models import Capacity, Claim, Limit, Reservation
from runtime.messages import training as training_messages
from tests.factories import make_namespace
from tests.jobs.conftest import Use
from tests.jobs.fakes import MachineBackend
from tests.messages import either, mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
COOL_DOWN = 30
# The cores that a job takes beside its trainers.
CORE = 2.0


def roles(least: int = 1, most: int = 4, replicas: int = 1) -> dict[str, Any]:
    trainer = {"replicas": replicas, "min": least, "max": most, "memory": "128Mi"}
    return {"trainer": trainer, "pserver": {"cpu": 1.5, "memory": "128Mi"}}


class World:
    """Controller, sweep and agents, with one second per round."""

    def __init__(self, backend: MachineBackend, submit: Submit) -> None:
        self.backend, self.submit = backend, submit
        self.controller = Controller("first")
        self.now = wall_clock()

    def job(self, **fields: Any) -> Job:
        return self.submit(**{"roles": roles(), **fields})

    def rounds(self, count: int = 1, seconds: float = 1.0) -> None:
        for _ in range(count):
            self.now += timedelta(seconds=seconds)
            self.controller.when_due(self.now)
            sweep(self.now)
            self.agents()

    def agents(self) -> None:
        """Register started replicas, and report the exit of stopped ones."""
        for attempt in Attempt.objects.filter(finished=None):
            for name, view in self.backend.views.get(str(attempt.pk), {}).items():
                row = Replica.objects.get(attempt=attempt, name=name)
                if view.phase is Phase.STARTING:
                    self.backend.becomes(str(attempt.pk), name, Phase.RUNNING, start_number=view.start_number)
                    record_report_of(attempt, name, "registered", row.start_number)
                elif view.phase is Phase.EXITED and not row.flushed:
                    record_report_of(attempt, name, "exited", row.start_number, code=view.code)

    def ends(self, job: Job) -> None:
        """End a job, because its trainers have finished all work."""
        job.refresh_from_db()
        attempt = Attempt.objects.get(job=job, number=job.attempt)
        for row in Replica.objects.filter(attempt=attempt):
            self.backend.becomes(str(attempt.pk), row.name, Phase.EXITED, code=0, start_number=row.start_number)
            record_report_of(attempt, row.name, "exited", row.start_number, code=0)
        reconciler.reconcile(job.pk, clock=lambda: self.now)


def record_report_of(attempt: Attempt, name: str, phase: str, start_number: int, **fields: Any) -> None:
    values = {"code": None, "signal": None, "out_of_memory": False, "why": "", **fields}
    replica_reports.record_report(attempt, Report(replica=name, phase=phase, start_number=start_number, **values))


@pytest.fixture
def world(use: Use, submit: Submit, settings: Settings) -> Iterator[World]:
    settings.DEFAULT_QUOTA = {"cpu": 1000}
    settings.ELASTIC_COOL_DOWN_SECONDS = COOL_DOWN
    Capacity.objects.create(resource="cpu", amount=12)
    yield World(use(MachineBackend()), submit)  # type: ignore[arg-type]


def trainers(job: Job) -> int:
    job.refresh_from_db()
    return job.spec["roles"]["trainer"]["replicas"] if job.trainers is None else job.trainers


def scaling_texts(job: Job) -> list[str]:
    return list(JobEvent.objects.filter(job=job, kind="scaled").order_by("id").values_list("text", flat=True))


def held() -> float:
    return sum(row.amounts["cpu"] for row in Reservation.objects.filter(released=None))


def test_a_job_grows_into_idle_capacity_and_the_reason_is_recorded(world: World) -> None:
    job = world.job()
    world.rounds(4)
    assert (trainers(job), held()) == (4, CORE + 4)
    assert scaling_texts(job) == [
        elastic_messages.SCALES_UP(before=1, trainers=training_messages.TRAINER_COUNT(count=4))
    ]
    assert Replica.objects.filter(role="trainer", state="registered").count() == 4
    change = Scaling.objects.get()
    assert (change.before, change.after, change.automatic) == (1, 4, True)


@pytest.mark.invariant("A waiting job gets its minimum from elastic jobs above theirs.")
def test_a_newcomer_gets_its_least_from_others_and_they_grow_again_when_it_has_gone(world: World) -> None:
    first, second = world.job(roles=roles(most=8)), world.job(roles=roles(most=8))
    world.rounds(6)
    assert (trainers(first) + trainers(second), held()) == (8, 12)
    third = world.job(name="third", roles=roles(least=2, replicas=2))
    world.rounds(6)
    third.refresh_from_db()
    assert (third.state, trainers(third), held()) == ("RUNNING", 2, 12)
    assert trainers(first) + trainers(second) == 4
    assert scaling_texts(first)[-1] == elastic_messages.SCALES_DOWN_FOR_OTHERS(
        before=4, trainers=training_messages.TRAINER_COUNT(count=2), beneficiary="`third`"
    )
    world.ends(third)
    world.rounds(3)
    assert held() == 8, "who was made smaller a moment ago stays so for a while"
    world.rounds(2, COOL_DOWN)
    assert (trainers(first), trainers(second)) == (4, 4)


def test_a_newcomer_of_another_namespace_is_not_named(world: World, personas: Personas) -> None:
    first = world.job(roles=roles(most=10))
    world.rounds(4)
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=12)
    make_namespace("rivals", owner=personas.stranger)
    wanted = specifications.parse({"name": "secret", "files": {"train.py": "1\n"}, "roles": roles()})
    job_services.submit_job(actor=personas.stranger, namespace="rivals", spec=wanted)
    world.rounds(2)
    assert scaling_texts(first)[-1] == elastic_messages.SCALES_DOWN_FOR_OTHERS(
        before=10,
        trainers=training_messages.TRAINER_COUNT(count=7),
        beneficiary=elastic_messages.JOB_OF_ANOTHER_NAMESPACE(),
    )


def test_a_job_that_no_shrinking_can_let_in_takes_nothing_from_others(world: World, personas: Personas) -> None:
    first = world.job(roles=roles(most=10))
    world.rounds(4)
    Limit.objects.create(namespace=personas.namespace, resource="jobs", amount=1)
    world.job()
    world.rounds(4)
    assert (trainers(first), Claim.objects.count()) == (10, 1)


def test_an_elastic_job_begins_with_its_least_where_more_does_not_fit(world: World) -> None:
    Capacity.objects.update(amount=CORE + 2)
    job = world.job(roles=roles(least=1, most=6, replicas=4))
    world.rounds(2)
    job.refresh_from_db()
    assert (job.state, held() <= CORE + 2) == ("RUNNING", True)
    world.rounds(3)
    assert trainers(job) == 2


@pytest.mark.invariant("No elastic job is stopped where shrinking it frees enough capacity.")
def test_nobody_who_can_be_made_smaller_is_stopped_for_the_owner_of_what_it_borrowed(
    world: World, personas: Personas
) -> None:
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=6, borrow=6)
    borrower = world.job(roles=roles(most=10))
    world.rounds(5)
    assert trainers(borrower) == 10
    Reservation.objects.update(created=wall_clock() - timedelta(hours=1))
    make_namespace("owners", owner=personas.stranger)
    wanted = specifications.parse({"name": "mine", "files": {"train.py": "1\n"}, "roles": roles()})
    owner = job_services.submit_job(actor=personas.stranger, namespace="owners", spec=wanted).job
    world.rounds(5)
    owner.refresh_from_db()
    borrower.refresh_from_db()
    assert (owner.state, borrower.state, borrower.attempt) == ("RUNNING", "RUNNING", 1)
    assert not Reservation.objects.exclude(recalled=None).exists()


def test_without_a_capacity_the_cores_of_the_machine_are_shared(world: World) -> None:
    Capacity.objects.all().delete()
    job = world.job(roles=roles(most=20))
    world.rounds(4)
    assert held() == world.backend.cores
    newcomer = world.job(roles=roles())
    world.rounds(4)
    newcomer.refresh_from_db()
    assert (newcomer.state, held(), trainers(job)) == ("RUNNING", world.backend.cores, 3)


@pytest.mark.invariant("Elastic decisions stop no job if the rules exclude preemption.")
def test_under_the_rules_of_the_platform_nobody_shrinks_or_stops_for_one_that_would_need_a_job_stopped(
    settings: Settings,
) -> None:
    settings.ELASTIC_COOL_DOWN_SECONDS = COOL_DOWN
    one = Amounts(1000, 1)
    there = {"started": 0.0, "running": 4, "trainers": {"n": 4}}
    low, normal = Member("low", 2, 8, one, priority=-1, **there), Member("normal", 1, 8, one, **there)  # type: ignore[arg-type]
    high = Member("high", 7, 7, one, priority=1, submitted=900.0)
    decision = decide(Cluster([Node("n", Amounts(8000, 64_000))], [low, normal, high]), 1000.0, rules())
    assert (decision.victims, decision.preempted) == ({}, {})
    assert mentions(decision.messages["high"], elastic_messages.NO_CAPACITY)


# --- A newcomer of higher priority -----------------------------------------------------------------------------------
ANNOUNCED_STOPS = (elastic_messages.PREEMPTED, elastic_messages.FREEING_CAPACITY)


def texts_of(job: Job) -> list[str]:
    """Return all texts about a job that people read: the reason of its state, its timeline, its transitions."""
    job.refresh_from_db()
    decisions = Elastic.objects.values_list("decisions", flat=True).first() or {}
    of_controller = [str(decisions.get(str(job.pk), {}).get("why", "")), elastic_jobs.sizing_of(job)]
    events = [*job.happenings.values_list("text", flat=True), *job.transitions.values_list("why", flat=True)]
    return [job.why, *of_controller, *events]


@pytest.mark.django_db(transaction=True)
def test_no_stop_is_announced_for_a_newcomer_of_higher_priority_if_the_platform_does_not_preempt(
    world: World, personas: Personas
) -> None:
    """Even with the low job at its least, 8 of 12 cores would be free, and the newcomer needs 11."""
    low = world.job(name="low", priority="low", roles=roles(least=2, most=10, replicas=2))
    world.rounds(5)
    assert trainers(low) == 10
    high = world.job(name="high", priority="high", roles=roles(least=9, most=9, replicas=9))
    # The simulated clock is ahead of the real one; the newcomer has to come after the other job began.
    Job.objects.filter(pk=high.pk).update(created=world.now, changed=world.now)
    for seconds in (1.0, COOL_DOWN, COOL_DOWN, 600.0):
        world.rounds(3, seconds)
    low.refresh_from_db()
    high.refresh_from_db()
    assert (low.state, low.attempt, trainers(low), high.state) == ("RUNNING", 1, 10, "QUEUED")
    assert scaling_texts(low) == [
        elastic_messages.SCALES_UP(before=2, trainers=training_messages.TRAINER_COUNT(count=10))
    ]
    announced = [text for job in (low, high) for text in texts_of(job) if re.search(either(*ANNOUNCED_STOPS), text)]
    assert announced == []
    assert not Reservation.objects.exclude(recalled=None).exists()

    asked = {"policy": "regatta", "cores": "", "cool_down": "30", "work": "60", "window": "5"}
    page = personas.client("admin").post("/admin/cluster/what-if", asked).content.decode()
    row = page.split("Jobs that do not begin")[1].split("</tr>")[0]
    assert row.count(">1<") == 2, "as it is and as asked, the newcomer waits: nobody is stopped for it"

    world.ends(low)
    world.rounds(4)
    high.refresh_from_db()
    assert high.state == "RUNNING"


# --- Switches ---------------------------------------------------------------------------------------------------------
def test_a_job_with_elastic_false_keeps_its_number(world: World) -> None:
    fixed = world.job(elastic=False, roles=roles(replicas=2))
    world.rounds(4)
    assert (trainers(fixed), Elastic.objects.exists()) == (2, False), "nothing is even looked at"


def test_a_requested_number_of_trainers_stays_until_it_is_left_to_the_platform_again(
    world: World, personas: Personas
) -> None:
    job = world.job()
    world.rounds(3)
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"trainer": 2})
    world.rounds(3, COOL_DOWN)
    assert trainers(job) == 2
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"elastic": True})
    world.rounds(2, COOL_DOWN)
    assert trainers(job) == 4
    texts = list(JobEvent.objects.filter(job=job, kind="elastic").order_by("id").values_list("text", flat=True))
    assert texts == [
        job_messages.AUTOMATIC_SCALING_OFF(name="developer"),
        job_messages.AUTOMATIC_SCALING_ON(name="developer", least=1, trainers=training_messages.TRAINER_COUNT(count=4)),
    ]


def test_in_explain_mode_nothing_changes_and_the_reason_is_recorded_once(world: World, settings: Settings) -> None:
    settings.ELASTIC_MODE = "explain"
    job = world.job()
    world.rounds(6)
    assert (trainers(job), Scaling.objects.count()) == (1, 0)
    texts = JobEvent.objects.filter(job=job, kind="elastic").order_by("id").values_list("text", flat=True)
    assert list(texts) == [
        job_messages.SCALING_DRY_RUN(
            decision=elastic_messages.SCALES_UP(before=1, trainers=training_messages.TRAINER_COUNT(count=4))
        )
    ]


def test_the_mode_set_by_an_admin_overrides_the_settings(world: World) -> None:
    Elastic.objects.create(mode="off")
    job = world.job()
    world.rounds(4)
    assert trainers(job) == 1


# --- Leaders ----------------------------------------------------------------------------------------------------------
def test_of_two_controllers_one_decides_and_the_other_takes_over_when_it_is_silent(world: World) -> None:
    now = world.now
    first = leader_lease.lead("first", now)
    assert first is not None
    assert leader_lease.lead("second", now + leader_lease.LENGTH * 0.9) is None
    assert leader_lease.lead("first", now + leader_lease.LENGTH * 0.9) == first, "renewed in the same term"
    second = leader_lease.lead("second", now + leader_lease.LENGTH * 2)
    assert second is not None
    assert second.number == first.number + 1
    assert not leader_lease.holds(first, now + leader_lease.LENGTH * 2)


@pytest.mark.invariant("A replaced elastic controller changes nothing.")
def test_a_leader_that_was_replaced_changes_nothing(world: World) -> None:
    job = world.job()
    world.rounds(2)
    late = leader_lease.lead("elsewhere", world.now + timedelta(hours=1))
    assert late is not None
    answer = scaling.scale_automatically(
        job_id=job.pk,
        attempt=1,
        before=trainers(job),
        after=trainers(job) + 1,
        why="x",
        leads=lambda: leader_lease.holds(leader_lease.Term("first", late.number - 1), world.now),
        now=world.now,
    )
    assert answer is scaling.Growth.STALE


def test_a_decision_about_a_job_that_has_changed_since_is_dropped(world: World, personas: Personas) -> None:
    job = world.job()
    world.rounds(3)
    attempt, before = job.attempt, trainers(job)
    requested: dict[str, Any] = {"job_id": job.pk, "why": "x", "leads": lambda: True, "now": world.now}
    stale = [
        scaling.scale_automatically(attempt=attempt, before=before - 1, after=2, **requested),
        scaling.scale_automatically(attempt=attempt + 1, before=before, after=2, **requested),
        scaling.scale_automatically(attempt=attempt, before=before, after=99, **requested),
        scaling.scale_automatically(attempt=attempt, before=before, after=0, **requested),
    ]
    assert (set(stale), trainers(job)) == ({scaling.Growth.STALE}, before)


def test_a_growth_that_the_quota_refused_is_requested_again_after_half_a_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, asked = world.job(), list[datetime]()

    def refuse(*, now: datetime, **_: Any) -> scaling.Growth:
        asked.append(now)
        return scaling.Growth.REFUSED

    monkeypatch.setattr(scaling, "scale_automatically", refuse)
    world.rounds(3)
    first = asked[0]
    world.rounds(6, seconds=6)
    assert [(moment - first).total_seconds() for moment in asked[:2]] == [0, pytest.approx(30, abs=6)]
    assert trainers(job) == 1


def test_a_decision_about_a_job_that_does_not_run_or_was_left_to_a_person_is_dropped(
    world: World, personas: Personas
) -> None:
    job = world.job()
    world.rounds(3)
    before = trainers(job)
    decision: dict[str, Any] = {"job_id": job.pk, "attempt": 1, "before": before, "after": 2}
    decision |= {"why": "x", "leads": lambda: True, "now": world.now}
    Job.objects.filter(pk=job.pk).update(state=JobState.STOPPING)
    assert scaling.scale_automatically(**decision) is scaling.Growth.STALE
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    scaling.scale_job(actor=personas.developer, job_id=job.pk, desired={"elastic": False})
    assert scaling.scale_automatically(**decision) is scaling.Growth.STALE
    assert trainers(job) == before


def test_a_growth_raises_the_revision_of_the_job(world: World) -> None:
    job = world.job()
    world.rounds(2)
    before, revision = trainers(job), job.revision
    answer = scaling.scale_automatically(
        job_id=job.pk, attempt=1, before=before, after=before + 1, why="x", leads=lambda: True, now=world.now
    )
    assert (answer, trainers(job), job.revision) == (scaling.Growth.DONE, before + 1, revision + 1)


def test_a_growth_for_which_the_quota_has_no_capacity_changes_nothing(world: World, personas: Personas) -> None:
    job = world.job()
    world.rounds(2)
    before, revision = trainers(job), job.revision
    Limit.objects.create(namespace=personas.namespace, resource="cpu", amount=CORE + before)
    answer = scaling.scale_automatically(
        job_id=job.pk, attempt=1, before=before, after=before + 1, why="x", leads=lambda: True, now=world.now
    )
    assert (answer, trainers(job), job.revision) == (scaling.Growth.REFUSED, before, revision)


# --- Invariants -------------------------------------------------------------------------------------------------------
class Killed(BaseException):
    """Stands for a process that is killed between two writes."""


@pytest.mark.invariant(
    "Jobs stay within their bounds and the capacity, even if the elastic controller is killed at any write."
)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_and_whoever_is_killed_bounds_and_capacity_hold_and_all_comes_to_rest(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, jobs = random.Random(seed), list[Job]()
    carry_out = scaling.scale_automatically

    def mortal(**fields: Any) -> object:
        if chance.random() < 0.2:
            raise Killed
        return carry_out(**fields)

    monkeypatch.setattr(scaling, "scale_automatically", mortal)
    for _ in range(30):
        if chance.random() < 0.25 and len(jobs) < 6:
            least = chance.randint(1, 2)
            jobs.append(world.job(roles=roles(least, least + chance.randint(0, 6), least)))
        if chance.random() < 0.1 and jobs and (gone := chance.choice(jobs)) and is_running(gone):
            world.ends(gone)
        try:
            world.rounds(1, chance.choice((1, 5, 20)))
        except Killed:
            # Another process, without memory of the first; it leads once the term of the first is over.
            world.controller = Controller(f"after-{world.now}")
            world.now += leader_lease.LENGTH
        assert held() <= 12
    monkeypatch.setattr(scaling, "scale_automatically", carry_out)
    world.rounds(6, COOL_DOWN)
    before = Scaling.objects.count()
    world.rounds(3, COOL_DOWN)
    assert Scaling.objects.count() == before, "it has come to rest"
    for job in jobs:
        check_scalings(job)


def is_running(job: Job) -> bool:
    job.refresh_from_db()
    return bool(job.state == JobState.RUNNING)


def check_scalings(job: Job) -> None:
    """Check that a job stays within its bounds, and is not shrunk and grown again within the cool-down."""
    bounds = job.spec["roles"]["trainer"]
    changes = list(zip(Scaling.objects.filter(job=job).order_by("id"), scaling_texts(job), strict=True))
    for change, _ in changes:
        assert bounds["min"] <= change.after <= bounds["max"]
    for (one, _), (other, text) in pairwise(changes):
        assert other.before == one.after
        if one.after < one.before and other.after > other.before:
            assert not quick(one.at, other.at)
        if one.after > one.before and other.after < other.before and quick(one.at, other.at):
            assert not mentions(text, elastic_messages.JOBS_BELOW_FAIR_SHARE)


def quick(one: datetime, other: datetime) -> bool:
    return (other - one).total_seconds() < COOL_DOWN
