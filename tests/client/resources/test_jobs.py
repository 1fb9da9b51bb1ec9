"""Jobs and examples."""

from __future__ import annotations

import httpx
import pytest

from regatta.errors import Missing, NotFinished
from tests.client.portal import client, job, ok

JOB = "GET /api/v1/jobs/j1"
EXAMPLES = "GET /api/v1/examples"
ME = {
    "username": "ada",
    "is_admin": False,
    "namespaces": [{"name": "team", "role": "viewer"}, {"name": "ada", "role": "owner"}],
}


def test_submit_goes_to_the_namespace_of_the_account() -> None:
    api, portal, _ = client({"GET /api/v1/me": [ok(ME)], "POST /api/v1/namespaces/ada/jobs": [ok(job("QUEUED"), 201)]})
    assert api.jobs.submit({"name": "digits"}).state == "QUEUED"
    assert portal.bodies() == [{"name": "digits"}]


def test_a_repeated_submit_carries_one_idempotency_key() -> None:
    path = "POST /api/v1/namespaces/ada/jobs"
    api, portal, _ = client({path: [httpx.ReadTimeout("late"), ok(job(), 201)]})
    api.jobs.submit({}, namespace="ada")
    first, second = (request.headers["Idempotency-Key"] for request in portal.asked)
    assert first == second != ""


def test_jobs_follows_the_pages() -> None:
    page = "GET /api/v1/namespaces/ada/jobs"
    following = ok({"results": [job(id="a")], "next": "abc="})
    api, portal, _ = client({page: [following, ok({"results": [job(id="b")], "next": None})]})
    assert [found.id for found in api.jobs.list("ada")] == ["a", "b"]
    assert portal.asked[1].url.params["cursor"] == "abc="


def test_wait_returns_the_ended_job() -> None:
    api, _, _ = client({JOB: [ok(job()), ok(job("STOPPING")), ok(job("FAILED"))]})
    assert api.jobs.wait("j1").exit_code == 100


def test_wait_times_out_with_the_state_of_the_job() -> None:
    api, _, clock = client({JOB: [ok(job("QUEUED", why="Waits for 2 cpu."))]})
    with pytest.raises(NotFinished, match=r"still QUEUED after 3 s\. Waits for 2 cpu"):
        api.jobs.wait("j1", timeout=3)
    assert clock.now == pytest.approx(3)


@pytest.mark.parametrize(
    ("state", "code"), [("SUCCEEDED", 0), ("FAILED", 100), ("CANCELLED", 103), ("RUNNING", 101), ("NEW", 101)]
)
def test_the_outcome_has_its_exit_code(state: str, code: int) -> None:
    api, _, _ = client({JOB: [ok(job(state))]})
    assert api.jobs.get("j1").exit_code == code


def test_an_id_cannot_reach_another_path() -> None:
    api, portal, _ = client({})
    with pytest.raises(Missing):
        api.jobs.get("../me?x=1")
    assert portal.asked[0].url.raw_path == b"/api/v1/jobs/..%2Fme%3Fx%3D1"


def test_an_example_is_found_by_its_name_and_by_that_of_its_job() -> None:
    spec = {"name": "fit-a-line"}
    api, _, _ = client({EXAMPLES: [ok({"results": [{"name": "line", "title": "A line", "spec": spec}]})]})
    assert api.examples.get("line") == api.examples.get("fit-a-line") == spec


def test_an_unknown_example_is_an_error_with_the_known_names() -> None:
    api, _, _ = client({EXAMPLES: [ok({"results": [{"name": "line", "title": "", "spec": {}}]})]})
    with pytest.raises(Missing, match="Available examples: line"):
        api.examples.get("digits")


def test_a_page_of_a_job_is_below_the_server() -> None:
    api, _, _ = client({JOB: [ok(job())]})
    found = api.jobs.get("j1")
    assert api.jobs.page_url(found) == f"{api.server}/n/{found.namespace}/jobs/j1"
