"""The ledger: one reservation per attempt, released once, with hours counted by the amounts held at each moment."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from quota import ledger, messages
from quota.ledger import ReservationRequest
from quota.models import Capacity, Claim, Limit, Reservation, Stretch
from quota.selectors import added, quota_of, recall_of, reserved_in, uses
from rbac.models import AuditEntry, Namespace
from runtime.messages import paragraph
from tests.factories import make_namespace, make_user

AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def namespace(db: None, settings) -> Namespace:
    settings.DEFAULT_QUOTA = {"cpu": 4, "jobs": 2}
    return make_namespace("team")


def ask(
    amounts: dict[str, float], *, job: uuid.UUID | None = None, attempt: int = 1, **fields: Any
) -> ReservationRequest:
    return ReservationRequest(job or uuid.uuid4(), attempt, amounts, **fields)


def test_a_second_call_for_an_attempt_holds_nothing_more(namespace: Namespace) -> None:
    asked = ask({"cpu": 3})
    for _ in range(2):
        assert ledger.reserve(namespace, asked).admitted
    assert reserved_in(namespace)["cpu"] == 3


def test_what_can_never_fit_is_not_held_and_the_verdict_reports_it(namespace: Namespace) -> None:
    verdict = ledger.reserve(namespace, ask({"cpu": 5}))
    assert (verdict.never, verdict.numbers["cpu"]["limit"]) == (True, 4)
    assert not Reservation.objects.exists()


def test_a_reservation_is_given_back_once(namespace: Namespace) -> None:
    asked = ask({"cpu": 3})
    ledger.reserve(namespace, asked)
    assert [ledger.release(job=asked.job, attempt=1) for _ in range(2)] == [True, False]
    assert reserved_in(namespace)["cpu"] == 0


def test_an_attempt_whose_reservation_was_given_back_gets_no_second_one(namespace: Namespace) -> None:
    asked = ask({"cpu": 3})
    ledger.reserve(namespace, asked)
    ledger.release(job=asked.job, attempt=1)
    ledger.reserve(namespace, asked)
    assert reserved_in(namespace)["cpu"] == 0


def test_a_waiting_attempt_stays_in_the_queue_until_it_starts(namespace: Namespace) -> None:
    first, second = ask({"cpu": 4}), ask({"cpu": 1})
    ledger.reserve(namespace, first)
    assert ledger.reserve(namespace, second).why.startswith("The job needs 1 CPU; 0 of 4 are free in `team`")
    assert Claim.objects.get().job == second.job
    ledger.release(job=first.job, attempt=1)
    assert ledger.reserve(namespace, second).admitted
    assert not Claim.objects.exists()


def test_a_released_claim_leaves_the_queue(namespace: Namespace) -> None:
    ledger.reserve(namespace, ask({"cpu": 4}))
    waits = ask({"cpu": 1})
    ledger.reserve(namespace, waits)
    assert not ledger.release(job=waits.job, attempt=1)
    assert not Claim.objects.exists()


def test_no_later_claim_takes_what_an_older_one_waits_for(namespace: Namespace) -> None:
    ledger.reserve(namespace, ask({"cpu": 2}))
    ledger.reserve(namespace, ask({"cpu": 4}, since=AT))
    verdict = ledger.reserve(namespace, ask({"cpu": 2}, length=1e6, since=AT + HOUR))
    assert verdict.why == (paragraph(messages.CAPACITY_HELD_FOR_EARLIER_JOB(), messages.JOBS_BEFORE_ONE(count=1)))


def test_asking_again_keeps_the_place_and_takes_the_new_amounts(namespace: Namespace) -> None:
    ledger.reserve(namespace, ask({"cpu": 4}))
    job = uuid.uuid4()
    ledger.reserve(namespace, ask({"cpu": 1}, job=job, since=AT))
    ledger.reserve(namespace, ask({"cpu": 2}, job=job, since=AT + HOUR))
    claim = Claim.objects.get()
    assert (claim.since, claim.amounts) == (AT, {"cpu": 2})


# --- Hours -----------------------------------------------------------------------------------------------------------
@pytest.mark.invariant("Hours of use count the amounts that an attempt held at each moment.")
def test_hours_count_what_was_held_when(namespace: Namespace) -> None:
    asked = ask({"cpu": 1, "gpu": 1})
    ledger.reserve(namespace, asked, now=AT)
    ledger.resize(namespace=namespace, job=asked.job, attempt=1, amounts={"cpu": 4}, now=AT + HOUR)
    ledger.release(job=asked.job, attempt=1, now=AT + 3 * HOUR)
    used = added(uses(AT, AT + 9 * HOUR, namespace=namespace))
    assert used == {"cpu_hours": 1 + 2 * 4, "gpu_hours": 1}


def test_only_the_part_that_lies_in_a_time_is_counted(namespace: Namespace) -> None:
    asked = ask({"cpu": 2})
    ledger.reserve(namespace, asked, now=AT)
    assert added(uses(AT + HOUR, AT + 3 * HOUR))["cpu_hours"] == 4


def test_hours_start_at_zero_each_month(namespace: Namespace) -> None:
    ledger.reserve(namespace, ask({"cpu": 2}), now=datetime(2026, 10, 31, 22, tzinfo=UTC))
    assert quota_of(namespace, now=datetime(2026, 11, 1, 1, tzinfo=UTC))["used"]["cpu_hours"] == 2


def test_uses_have_their_user_and_job(namespace: Namespace) -> None:
    asked = ask({"cpu": 2}, label="digits", owner=make_user("ada"))
    ledger.reserve(namespace, asked, now=AT)
    (use,) = uses(AT, AT + HOUR)
    assert (use.owner, use.label, use.job, use.hours["cpu_hours"]) == ("ada", "digits", asked.job, 2)


def test_a_resize_to_the_same_begins_nothing(namespace: Namespace) -> None:
    asked = ask({"cpu": 2})
    ledger.reserve(namespace, asked)
    ledger.resize(namespace=namespace, job=asked.job, attempt=1, amounts={"cpu": 2, "gpu": 0})
    assert Stretch.objects.count() == 1


def test_a_resize_within_a_budget_counts_the_reserved_hours_once(namespace: Namespace) -> None:
    Limit.objects.create(namespace=namespace, resource="cpu_hours", amount=8)
    asked = ask({"cpu": 2}, length=2 * 3600)
    ledger.reserve(namespace, asked, now=AT)
    for cpu, admitted in ((4, True), (5, False)):
        grown = ledger.resize(namespace=namespace, job=asked.job, attempt=1, amounts={"cpu": cpu}, now=AT)
        assert grown.admitted is admitted


def test_a_resize_beyond_the_limit_changes_nothing(namespace: Namespace) -> None:
    asked = ask({"cpu": 2})
    ledger.reserve(namespace, asked)
    verdict = ledger.resize(namespace=namespace, job=asked.job, attempt=1, amounts={"cpu": 5})
    assert not verdict.admitted
    assert reserved_in(namespace)["cpu"] == 2


def test_a_budget_is_reserved_for_running_attempts(namespace: Namespace) -> None:
    Limit.objects.create(namespace=namespace, resource="cpu_hours", amount=10)
    ledger.reserve(namespace, ask({"cpu": 2}, length=4 * 3600), now=AT)
    verdict = ledger.reserve(namespace, ask({"cpu": 1}, length=3 * 3600), now=AT + HOUR)
    assert verdict.why.startswith(
        messages.BUDGET_SHORT(needed=messages.AMOUNT_OF_CPU_HOURS(amount=3), free=2, limit=10, namespace="team")
    )


def test_what_ends_early_gives_the_rest_of_its_hours_back(namespace: Namespace) -> None:
    Limit.objects.create(namespace=namespace, resource="cpu_hours", amount=10)
    early = ask({"cpu": 2}, length=5 * 3600)
    ledger.reserve(namespace, early, now=AT)
    ledger.release(job=early.job, attempt=1, now=AT + HOUR)
    assert ledger.reserve(namespace, ask({"cpu": 2}, length=4 * 3600), now=AT + HOUR).admitted


# --- Shared capacity -------------------------------------------------------------------------------------------------
@pytest.fixture
def lent(namespace: Namespace) -> ReservationRequest:
    """A reservation of ``guest``: six of the eight cores, with a limit of two. The limit of ``team`` is four."""
    Capacity.objects.create(resource="cpu", amount=8)
    guest = make_namespace("guest")
    Limit.objects.create(namespace=guest, resource="cpu", amount=2, borrow=4)
    asked = ask({"cpu": 6}, length=1e6)
    assert ledger.reserve(guest, asked, now=AT).admitted
    return asked


def test_namespaces_share_the_capacity(namespace: Namespace, lent: ReservationRequest) -> None:
    verdict = ledger.reserve(namespace, ask({"cpu": 4}), now=AT)
    assert (
        messages.PLATFORM_CAPACITY_SHORT(needed=messages.AMOUNT_OF_CPU(amount=4), free=2, limit=8, held=6)
        in verdict.why
    )


def test_what_was_lent_is_called_back_once_and_leaves_a_row(namespace: Namespace, lent: ReservationRequest) -> None:
    wants = ask({"cpu": 4}, since=AT)
    ledger.reserve(namespace, wants, now=AT)
    for hours in (1, 2):
        seen = ledger.review(AT + hours * HOUR)
    assert recall_of(lent.job, 1) == messages.CAPACITY_RECLAIMED_BY(namespace="team")
    assert messages.RECLAIMING_BORROWED_CAPACITY() in seen.reasons[(wants.job, 1)]
    assert AuditEntry.objects.filter(action="quota.recall", namespace="guest").count() == 1


def test_a_recalled_attempt_waits_behind_the_owner_of_the_capacity(
    namespace: Namespace, lent: ReservationRequest
) -> None:
    wants, at = ask({"cpu": 4}, since=AT), AT + HOUR
    ledger.reserve(namespace, wants, now=at)
    ledger.review(at)
    ledger.release(job=lent.job, attempt=1, now=at)
    back = ask({"cpu": 6}, job=lent.job, attempt=2, length=1e6)
    assert not ledger.reserve(Namespace.objects.get(name="guest"), back, now=at).admitted
    assert ledger.review(at).granted == ((wants.job, 1),)
    assert ledger.reserve(namespace, wants, now=at).admitted


def test_a_review_has_the_reason_of_each_waiting_claim(namespace: Namespace) -> None:
    ledger.reserve(namespace, ask({"cpu": 4}))
    keys = [ask({"cpu": 1}, since=AT + number * HOUR) for number in range(3)]
    for asked in keys:
        ledger.reserve(namespace, asked)
    reasons = ledger.review(datetime.now(UTC)).reasons
    assert [messages.JOBS_BEFORE(count=2) in reasons[(asked.job, 1)] for asked in keys] == [False, False, True]


def test_no_attempt_grows_before_a_claim_of_another_namespace_on_shared_capacity(namespace: Namespace) -> None:
    """The claim waits for the limit of its own namespace. The growth would fit, but the claim comes first."""
    Capacity.objects.create(resource="cpu", amount=10)
    other = make_namespace("other")
    running, holds, waits = ask({"cpu": 1}), ask({"cpu": 4}), ask({"cpu": 2})
    assert ledger.reserve(namespace, running).admitted
    assert ledger.reserve(other, holds).admitted
    assert not ledger.reserve(other, waits).admitted
    grow = {"namespace": namespace, "job": running.job, "attempt": 1, "amounts": {"cpu": 2}}
    assert not ledger.take_more(**grow)
    assert reserved_in(namespace)["cpu"] == 1
    ledger.release(job=waits.job, attempt=1)
    assert ledger.take_more(**grow)


def test_a_claim_of_another_namespace_stops_no_growth_where_nothing_is_shared(namespace: Namespace) -> None:
    other = make_namespace("other")
    running, holds, waits = ask({"cpu": 1}), ask({"cpu": 4}), ask({"cpu": 2})
    for target, asked in ((namespace, running), (other, holds), (other, waits)):
        ledger.reserve(target, asked)
    assert ledger.take_more(namespace=namespace, job=running.job, attempt=1, amounts={"cpu": 2})


def test_a_release_gives_back_what_one_attempt_holds(namespace: Namespace) -> None:
    job = uuid.uuid4()
    for attempt in (1, 2):
        ledger.reserve(namespace, ask({"cpu": 1}, job=job, attempt=attempt))
    ledger.release(job=job, attempt=1)
    assert reserved_in(namespace)["cpu"] == 1


def test_what_was_given_back_does_not_grow(namespace: Namespace) -> None:
    asked = ask({"cpu": 1})
    ledger.reserve(namespace, asked, now=AT)
    ledger.release(job=asked.job, attempt=1, now=AT)
    assert ledger.resize(namespace=namespace, job=asked.job, attempt=1, amounts={"cpu": 2}, now=AT + HOUR).admitted
    assert (reserved_in(namespace)["cpu"], Stretch.objects.count()) == (0, 1)


def test_an_attempt_that_has_given_back_is_not_asked_to(namespace: Namespace, lent: ReservationRequest) -> None:
    ledger.reserve(namespace, ask({"cpu": 4}, since=AT), now=AT)
    ledger.review(AT + HOUR)
    assert recall_of(lent.job, 1)
    ledger.release(job=lent.job, attempt=1, now=AT + HOUR)
    assert recall_of(lent.job, 1) == ""


def test_a_recall_that_was_noted_in_between_is_not_noted_again(
    namespace: Namespace, lent: ReservationRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two reviews decide on the same state, and the second writes after the first."""
    ledger.reserve(namespace, ask({"cpu": 4}, since=AT), now=AT)
    before = ledger.decide(AT + HOUR)
    ledger.review(AT + HOUR)
    monkeypatch.setattr(ledger, "decide", lambda now, **_: before)
    ledger.review(AT + 2 * HOUR)
    assert AuditEntry.objects.filter(action="quota.recall").count() == 1
    assert Reservation.objects.get(job=lent.job).recalled == AT + HOUR
