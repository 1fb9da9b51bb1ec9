"""The quota page, requests for more, and the admins' pages about quotas."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.common.clock import now
from quota import ledger, selectors
from quota import messages as quota_messages
from quota.ledger import ReservationRequest
from quota.models import Capacity, Limit, QuotaRequest, Reservation, Stretch
from quota.policy import Rules
from quota.selectors import limits_of
from rbac import messages as rbac_messages
from rbac.models import AuditEntry
from tests.factories import make_namespace
from tests.messages import mentions
from tests.personas import Personas

pytestmark = pytest.mark.django_db
GIB = 1024**3


@pytest.fixture(autouse=True)
def _small(settings: Any) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 4, "jobs": 8}


def hold(personas: Personas, cpu: float, label: str = "digits") -> ledger.Verdict:
    asked = ReservationRequest(uuid.uuid4(), 1, {"cpu": cpu, "jobs": 1}, label=label, owner=personas.developer)
    return ledger.reserve(personas.namespace, asked)


def messages_of(answer: Any) -> list[str]:
    return [str(message) for message in get_messages(answer.wsgi_request)]


def post(personas: Personas, name: str, path: str, **fields: str) -> Any:
    return personas.client(name).post(path, fields)


# --- For everyone ----------------------------------------------------------------------------------------------------
def test_the_page_shows_usage_and_waiting_jobs_with_their_reasons(personas: Personas) -> None:
    hold(personas, 3, "runs")
    hold(personas, 2, "waits")
    answer = personas.client("viewer").get("/n/team/quota")
    page = answer.content.decode()
    assert "3 / 4" in page
    assert "The job needs 2 CPU; 1 of 4 are free in `team`" in page
    assert [row.label for row in answer.context["holders"]] == ["runs"]
    assert [waiter.claim.label for waiter in answer.context["queue"].shown] == ["waits"]


def test_of_many_holders_only_the_largest_are_read(personas: Personas, settings: Any) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 100, "jobs": 100}
    for cpu in (1, 4, 2, 3, 5):
        hold(personas, cpu, f"holds-{cpu}")
    found = selectors.holders(2, personas.namespace)
    assert [row.label for row in found.rows] == ["holds-5", "holds-4"]
    assert (found.more, found.held["cpu"], found.held["jobs"]) == (3, 15, 5)


def test_holders_of_other_namespaces_count_on_the_platform_alone(personas: Personas) -> None:
    hold(personas, 3)
    other = make_namespace("far-away")
    ledger.reserve(other, ReservationRequest(uuid.uuid4(), 1, {"cpu": 1, "jobs": 1}))
    assert selectors.holders(5, other).held["cpu"] == 1
    assert selectors.holders(5).held["cpu"] == 4


def test_the_page_shows_hours_by_user(personas: Personas) -> None:
    hold(personas, 3)
    for span in ("day", "week", "month", "century"):
        usage = personas.client("viewer").get("/n/team/quota", {"span": span}).context["usage"]
        assert [row["username"] for row in usage.users] == ["developer"]


def test_the_page_costs_the_same_however_many_wait(personas: Personas) -> None:
    client = personas.client("viewer")

    def cost(waiting: int) -> int:
        for _ in range(waiting):
            hold(personas, 1)
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/n/team/quota").status_code == 200
        return len(queries)

    cost(5)  # some run and some wait; and the first request of a session asks for more
    assert cost(1) == cost(30)


def test_the_queue_shows_the_first_that_wait_and_counts_the_others(
    personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quota.views._MOST_ROWS", 2)
    for label in ("runs", "first", "second", "third"):
        hold(personas, 3, label)
    answer = personas.client("viewer").get("/n/team/quota")
    queue = answer.context["queue"]
    assert ([waiter.claim.label for waiter in queue.shown], queue.more) == (["first", "second"], 1)
    assert "And 1 more." in answer.content.decode()


def test_claims_that_no_decision_looks_at_follow_those_that_are_looked_at(
    personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quota.policy.RULES", Rules(depth=1))
    monkeypatch.setattr("quota.selectors.decisions._HEADS", 3)
    for number in range(8):
        hold(personas, 3, f"job{number}")
    queue = selectors.queue_of(personas.namespace, now(), most=6)
    assert [waiter.claim.label for waiter in queue.shown] == [f"job{number}" for number in range(1, 7)]
    assert queue.more == 1
    assert all(waiter.verdict is not None for waiter in queue.shown)


def test_admins_page_through_the_namespaces_at_the_same_cost(personas: Personas) -> None:
    admin = personas.client("admin")

    def cost() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert admin.get("/admin/quotas", {"limit": "3"}).status_code == 200
        return len(queries)

    for name in ("aa", "ab", "ac", "ad"):
        make_namespace(name)
    cost()
    few = cost()
    for number in range(20):
        make_namespace(f"b{number:02}")
    assert cost() == few
    first = admin.get("/admin/quotas", {"limit": "3"})
    assert [row["name"] for row in first.context["overview"]["results"]] == ["aa", "ab", "ac"]
    cursor = first.context["overview"]["next"]
    assert f"cursor={cursor}" in first.content.decode()
    second = admin.get("/admin/quotas", {"limit": "3", "cursor": cursor})
    assert "ad" in [row["name"] for row in second.context["overview"]["results"]]


def test_a_developer_may_request_more_quota(personas: Personas) -> None:
    answer = post(
        personas, "developer", "/n/team/quota/requests", cpu="32", memory="1.5", gpu="", reason="A big model."
    )
    quota_request = QuotaRequest.objects.get()
    assert (quota_request.limits, quota_request.state) == ({"cpu": 32, "memory": int(1.5 * GIB)}, "open")
    assert messages_of(answer) == ["Your request has been sent to the admins."]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cpu": "lots", "reason": "x"}, quota_messages.AMOUNT_NOT_A_NUMBER()),
        ({"cpu": "-1", "reason": "x"}, quota_messages.LIMIT_NEGATIVE()),
        ({"cpu": "nan", "reason": "x"}, quota_messages.LIMIT_NOT_A_NUMBER()),
        ({"gpu": "0.5", "reason": "x"}, quota_messages.NOT_A_WHOLE_NUMBER()),
        ({"reason": "x"}, quota_messages.REQUESTED_RESOURCES_MISSING()),
        ({"cpu": "8", "reason": " "}, rbac_messages.REASON_REQUIRED(count=500)),
    ],
)
def test_an_invalid_quota_request_is_an_error_message(personas: Personas, fields: dict[str, str], message: str) -> None:
    assert messages_of(post(personas, "developer", "/n/team/quota/requests", **fields)) == [message]
    assert not QuotaRequest.objects.exists()


def test_one_quota_request_at_a_time(personas: Personas) -> None:
    for _ in range(2):
        answer = post(personas, "developer", "/n/team/quota/requests", cpu="8", reason="More.")
    assert mentions(messages_of(answer)[-1], quota_messages.QUOTA_REQUEST_ALREADY_OPEN)


def test_a_quota_request_can_be_withdrawn_by_its_author(personas: Personas) -> None:
    post(personas, "developer", "/n/team/quota/requests", cpu="8", reason="More.")
    quota_request = QuotaRequest.objects.get()
    path = f"/n/team/quota/requests/{quota_request.pk}/withdraw"
    assert post(personas, "owner", path).status_code == 404
    post(personas, "developer", path)
    quota_request.refresh_from_db()
    assert quota_request.state == "withdrawn"


# --- For admins ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("answer", "limit"), [("approve", 8), ("refuse", 4)])
def test_an_answered_quota_request_sets_the_limits_or_leaves_them(
    personas: Personas, answer: str, limit: float
) -> None:
    post(personas, "developer", "/n/team/quota/requests", cpu="8", reason="More.")
    path = f"/admin/quotas/requests/{QuotaRequest.objects.get().pk}"
    post(personas, "admin", path, answer=answer, reason="It is free.")
    assert limits_of(personas.namespace)["cpu"] == limit
    quota_request = QuotaRequest.objects.get()
    assert (quota_request.answered_by, quota_request.answer) == (personas.admin, "It is free.")
    assert mentions(
        messages_of(post(personas, "admin", path, answer=answer, reason="Again."))[-1],
        quota_messages.QUOTA_REQUEST_ANSWERED,
    )


def test_limits_are_set_with_a_reason_and_have_a_history(personas: Personas) -> None:
    path = "/admin/quotas/of/team/limits"
    post(personas, "admin", path, cpu="6", memory="2", **{"borrow.cpu": "3"}, reason="A larger team.")
    row = Limit.objects.get(resource="cpu")
    assert (row.amount, row.borrow) == (6, 3)
    page = personas.client("admin").get("/admin/quotas/of/team")
    assert [entry.reason for entry in page.context["history"]] == ["A larger team."]


def test_an_empty_field_goes_back_to_the_default(personas: Personas) -> None:
    for cpu in ("6", ""):
        post(personas, "admin", "/admin/quotas/of/team/limits", cpu=cpu, reason="Try.")
    assert (limits_of(personas.namespace)["cpu"], Limit.objects.count()) == (4, 0)


def test_a_limit_below_the_held_amounts_is_a_warning(personas: Personas) -> None:
    hold(personas, 3)
    answer = post(personas, "admin", "/admin/quotas/of/team/limits", cpu="1", reason="Less.")
    assert messages_of(answer)[-1] == (
        quota_messages.HELD_OVER_LIMIT(
            amounts=quota_messages.HELD_AND_LIMIT(amount=quota_messages.AMOUNT_OF_CPU(amount=3), limit=1)
        )
    )


@pytest.mark.parametrize("fields", [{"cpu": "-1"}, {"cpu": "6", "gpu": "lots"}, {"cpu": "6", "reason": ""}])
def test_limits_that_cannot_be_change_nothing(personas: Personas, fields: dict[str, str]) -> None:
    post(personas, "admin", "/admin/quotas/of/team/limits", **{"reason": "Why not.", **fields})
    assert not Limit.objects.exists()
    assert not AuditEntry.objects.filter(action="quota.set").exists()


def test_the_capacity_of_the_platform_is_set_and_shown(personas: Personas) -> None:
    post(personas, "admin", "/admin/quotas/capacity", cpu="64", gpu="", reason="A new rack.")
    assert dict(Capacity.objects.values_list("resource", "amount")) == {"cpu": 64}
    hold(personas, 3, "runs")
    page = personas.client("admin").get("/admin/quotas").content.decode()
    assert "3 / 64" in page
    assert "runs" in page


# --- By HTTP ---------------------------------------------------------------------------------------------------------
def test_a_quota_request_by_http_from_creation_to_approval(personas: Personas) -> None:
    body = {"limits": {"cpu": 8}, "reason": "More."}
    path = "/api/v1/namespaces/team/quota/requests"
    made = personas.client("developer").post(path, body, content_type="application/json")
    assert (made.status_code, made.json()["state"]) == (201, "open")
    admin = personas.client("admin")
    (listed,) = admin.get("/api/v1/quota-requests", {"state": "open"}).json()["results"]
    answer = {"approve": True, "reason": "Yes."}
    closed = admin.post(f"/api/v1/quota-requests/{listed['id']}", answer, content_type="application/json").json()
    assert (closed["state"], closed["answered_by"], limits_of(personas.namespace)["cpu"]) == ("approved", "root", 8)


def test_usage_by_http(personas: Personas) -> None:
    hold(personas, 3)
    body = personas.client("viewer").get("/api/v1/namespaces/team/usage", {"days": "7"}).json()
    assert [(row["name"], row["username"]) for row in body["jobs"]] == [("digits", "developer")]
    assert body["more"] == {"users": 0, "jobs": 0}
    assert personas.client("viewer").get("/api/v1/namespaces/team/usage", {"days": "0"}).status_code == 422


def test_usage_lists_the_largest_and_counts_the_others(personas: Personas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quota.selectors.usage_history.MOST_USAGE_ROWS", 1)
    at = now()
    for label, hours in (("small", 1), ("large", 2)):
        reservation = Reservation.objects.create(
            namespace=personas.namespace, job=uuid.uuid4(), attempt=1, label=label, amounts={"cpu": 1}, created=at
        )
        Stretch.objects.create(reservation=reservation, amounts={"cpu": 1}, begun=at - timedelta(hours=hours), ended=at)
    found = selectors.usage(personas.namespace, at - timedelta(days=1), at)
    assert [row["name"] for row in found.jobs] == ["large"]
    assert (found.more_users, found.more_jobs, found.total["cpu_hours"]) == (0, 1, 3)


def test_the_capacity_by_http(personas: Personas) -> None:
    admin = personas.client("admin")
    for cpu in (64, None):
        body = {"capacity": {"cpu": cpu}, "reason": "A new rack."}
        assert admin.put("/api/v1/capacity", body, content_type="application/json").json()["capacity"]["cpu"] == cpu
