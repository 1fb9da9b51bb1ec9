from __future__ import annotations

from typing import Any

import pytest

from quota.models import Limit
from rbac.models import AuditEntry
from tests.personas import EVERYBODY, Personas

pytestmark = pytest.mark.django_db
PATH = "/api/v1/namespaces/team/quota"
JSON = "application/json"


def put(personas: Personas, name: str, body: Any) -> Any:
    return personas.client(name).put(PATH, body, content_type=JSON)


def test_who_may_see_the_quota(personas: Personas) -> None:
    assert {name: personas.client(name).get(PATH).status_code for name in EVERYBODY} == {
        "admin": 200, "owner": 200, "developer": 200, "viewer": 200, "stranger": 404, "nobody": 401,
    }  # fmt: skip


def test_who_may_change_it(personas: Personas) -> None:
    assert {name: put(personas, name, {"limits": {"cpu": 8}}).status_code for name in EVERYBODY} == {
        "admin": 200, "owner": 403, "developer": 403, "viewer": 403, "stranger": 404, "nobody": 401,
    }  # fmt: skip


def test_it_has_a_number_for_each_resource_and_null_where_there_is_no_limit(personas: Personas, settings) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 16}
    quota = personas.client("viewer").get(PATH).json()
    assert set(quota) == {"limits", "borrow", "reserved", "used", "headroom", "kept"}
    assert (quota["limits"]["cpu"], quota["used"]["cpu"], quota["headroom"]["cpu"]) == (16, 0, 16)
    assert (quota["limits"]["cpu_hours"], quota["headroom"]["cpu_hours"]) == (None, None)


def test_a_change_keeps_what_is_not_named_and_null_goes_back_to_the_default(personas: Personas, settings) -> None:
    settings.DEFAULT_QUOTA = {"cpu": 16, "jobs": 8}
    put(personas, "admin", {"limits": {"cpu": 2, "jobs": 1}})
    limits = put(personas, "admin", {"limits": {"jobs": None}}).json()["limits"]
    assert (limits["cpu"], limits["jobs"]) == (2, 8)


def test_a_change_is_recorded_in_the_audit_log(personas: Personas) -> None:
    put(personas, "admin", {"limits": {"cpu": 2}, "borrow": {"cpu": 4}, "reason": "A large dataset."})
    entry = AuditEntry.objects.get(action="quota.set")
    assert (entry.before["borrow.cpu"], entry.after) == (0, {"cpu": 2, "borrow.cpu": 4})
    assert entry.reason == "A large dataset."


def test_a_change_without_a_reason_names_its_origin_in_the_audit_log(personas: Personas) -> None:
    put(personas, "admin", {"limits": {"cpu": 2}})
    put(personas, "admin", {"cpu": 3})
    assert set(AuditEntry.objects.filter(action="quota.set").values_list("reason", flat=True)) == {
        "Set through the API."
    }


def test_an_empty_reason_is_refused(personas: Personas) -> None:
    answer = put(personas, "admin", {"limits": {"cpu": 2}, "reason": " "})
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["reason"])
    assert not Limit.objects.exists()


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"cpu": -1}, "cpu"),
        ({"cpu": "lots"}, "cpu"),
        ({"cpu": True}, "cpu"),
        ({"jobs": 1.5}, "jobs"),
        ({"bananas": 3}, "bananas"),
        ({}, "limits"),
    ],
)
def test_an_invalid_limit_is_an_error_of_its_field(personas: Personas, limits: dict, field: str) -> None:
    answer = put(personas, "admin", {"limits": limits})
    assert (answer.status_code, answer.json()["code"], list(answer.json()["errors"])) == (
        422,
        "validation_failed",
        [field],
    )
    assert not Limit.objects.exists()


def test_a_limit_beyond_all_machines_is_refused(personas: Personas) -> None:
    body = '{"limits": {"cpu": 1%s, "memory": 1e300}}' % ("0" * 400)
    answer = personas.client("admin").put("/api/v1/namespaces/team/quota", body, content_type="application/json")
    assert (answer.status_code, set(answer.json()["errors"])) == (422, {"cpu", "memory"})
