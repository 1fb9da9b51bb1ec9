"""Refusals with their messages, and access to objects of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from regatta import Client
from tests.end_to_end.support import code
from tests.end_to_end.support.portal import RunningPortal
from tests.waiting import until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


@pytest.fixture
def jobs_path(portal: Client) -> str:
    return f"/api/v1/namespaces/{portal.namespaces.default()}/jobs"


def test_a_syntax_error_is_refused_with_line_and_column(http: httpx.Client, jobs_path: str) -> None:
    answer = http.post(jobs_path, json=code.job("broken", code.SYNTAX_ERROR))
    assert answer.status_code == 422
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    (message,) = answer.json()["errors"]["files.train.py"]
    assert "line 2, column 10" in message.lower()


def spec(**changed: Any) -> dict[str, Any]:
    return {**code.job("good", "print('hello')\n"), **changed}


def roles(trainer: dict[str, Any]) -> dict[str, Any]:
    return {"trainer": trainer, "pserver": {"replicas": 1}}


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (spec(entrypont="x"), "entrypont", "entrypoint"),
        (spec(roles=roles({"replicas": 0})), "roles.trainer.replicas", "1"),
        (spec(roles=roles({"replicas": 1, "memory": "12 potatoes"})), "roles.trainer.memory", "12 potatoes"),
        (spec(name="two words"), "name", ""),
        (spec(files={"train.py": "#" * 1_100_000}), "files", ""),
        (spec(dataset="public/digit"), "dataset", "public/digits"),
        (spec(mode="quick"), "mode", "sync"),
        (spec(entrypoint="other.py"), "entrypoint", ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_field_is_named(
    http: httpx.Client, jobs_path: str, body: dict[str, Any], field: str, message: str
) -> None:
    answer = http.post(jobs_path, json=body)
    assert answer.status_code == 422, answer.text
    named = {name: " ".join(messages) for name, messages in answer.json()["errors"].items() if name.startswith(field)}
    assert named, answer.text
    assert message in " ".join(named.values())


def test_what_can_never_fit_is_refused_with_the_numbers(http: httpx.Client, jobs_path: str) -> None:
    answer = http.post(jobs_path, json=spec(roles=roles({"replicas": 99, "cpu": 1})))
    assert (answer.status_code, answer.json()["code"]) == (409, "quota_exceeded")
    assert "16" in answer.json()["detail"]


def test_what_does_not_fit_now_waits_with_the_reason(portal: Client) -> None:
    big = portal.jobs.submit({**code.slow("big", passes=500), "roles": roles({"replicas": 1, "cpu": 12})})
    small = portal.jobs.submit({**code.slow("next", passes=1), "roles": roles({"replicas": 1, "cpu": 8})})
    until("the second waits with a reason", lambda: "cpu" in portal.jobs.get(small.id).why.lower(), 20)
    assert portal.jobs.get(small.id).state == "QUEUED"
    portal.jobs.cancel(big.id)
    portal.jobs.wait(big.id, 30)
    assert portal.jobs.wait(small.id, 60).state == "SUCCEEDED"


@pytest.fixture
def stranger(running_portal: RunningPortal, http: httpx.Client) -> Iterator[httpx.Client]:
    """An account that shares nothing with the admin."""
    account = {"username": "mallory", "email": "mallory@example.org", "password": "quite another passphrase"}
    assert http.post("/api/v1/users", json=account).status_code in (201, 409, 422)
    with running_portal.http(running_portal.token("mallory", account["password"])) as client:
        yield client


def test_another_account_finds_nothing(
    portal: Client, http: httpx.Client, stranger: httpx.Client, jobs_path: str
) -> None:
    job = next(portal.jobs.list(), None) or portal.jobs.submit(code.job("mine", code.INIT))
    mine = f"/api/v1/jobs/{job.id}"
    reads = ["", "/logs", "/logs/download", "/metrics", "/metrics.csv", "/events", "/artifacts", "/artifacts/model.npz"]
    found = {path: stranger.get(mine + path).status_code for path in reads}
    found |= {path: stranger.post(mine + path).status_code for path in ("/cancel", "/retry")}
    found |= {"list": stranger.get(jobs_path).status_code, "submit": stranger.post(jobs_path, json=spec()).status_code}
    assert set(found.values()) == {404}, found


def test_without_a_token_requests_are_refused(running_portal: RunningPortal, jobs_path: str) -> None:
    with running_portal.http("") as nobody:
        assert nobody.get(jobs_path).status_code == 401
