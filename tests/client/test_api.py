from __future__ import annotations

import hashlib
from pathlib import Path

import httpx
import pytest

from regatta.api import Client
from regatta.errors import Missing, NotFinished, Unreachable
from tests.client.portal import SERVER, Answer, Clock, PaperPortal, job, lines, ok, problem

JOB, LOGS, ARTIFACTS = "GET /api/v1/jobs/j1", "GET /api/v1/jobs/j1/logs", "GET /api/v1/jobs/j1/artifacts"
ME = {
    "username": "ada",
    "is_admin": False,
    "namespaces": [{"name": "team", "role": "viewer"}, {"name": "ada", "role": "owner"}],
}


def client(answers: dict[str, list[Answer]]) -> tuple[Client, PaperPortal, Clock]:
    clock, portal = Clock(), PaperPortal(answers)
    return Client(SERVER, "rgt_x", transport=portal, sleep=clock.sleep, clock=clock), portal, clock


def test_submit_goes_to_the_namespace_of_the_account() -> None:
    api, portal, _ = client({"GET /api/v1/me": [ok(ME)], "POST /api/v1/namespaces/ada/jobs": [ok(job("QUEUED"), 201)]})
    assert api.submit({"name": "digits"}).state == "QUEUED"
    assert portal.bodies() == [{"name": "digits"}]


def test_a_repeated_submit_carries_one_idempotency_key() -> None:
    path = "POST /api/v1/namespaces/ada/jobs"
    api, portal, _ = client({path: [httpx.ReadTimeout("late"), ok(job(), 201)]})
    api.submit({}, namespace="ada")
    first, second = (request.headers["Idempotency-Key"] for request in portal.asked)
    assert first == second != ""


def test_jobs_follows_the_pages() -> None:
    page = "GET /api/v1/namespaces/ada/jobs"
    following = ok({"results": [job(id="a")], "next": "abc="})
    api, portal, _ = client({page: [following, ok({"results": [job(id="b")], "next": None})]})
    assert [found.id for found in api.jobs("ada")] == ["a", "b"]
    assert portal.asked[1].url.params["cursor"] == "abc="


def test_wait_returns_the_ended_job() -> None:
    api, _, _ = client({JOB: [ok(job()), ok(job("STOPPING")), ok(job("FAILED"))]})
    assert api.wait("j1").exit_code == 100


def test_wait_times_out_with_the_state_of_the_job() -> None:
    api, _, clock = client({JOB: [ok(job("QUEUED", why="Waits for 2 cpu."))]})
    with pytest.raises(NotFinished, match=r"still QUEUED after 3 s\. Waits for 2 cpu"):
        api.wait("j1", timeout=3)
    assert clock.now == pytest.approx(3)


@pytest.mark.parametrize(
    ("state", "code"), [("SUCCEEDED", 0), ("FAILED", 100), ("CANCELLED", 103), ("RUNNING", 101), ("NEW", 101)]
)
def test_the_outcome_has_its_exit_code(state: str, code: int) -> None:
    api, _, _ = client({JOB: [ok(job(state))]})
    assert api.job("j1").exit_code == code


def test_logs_follows_the_pages_by_the_cursor() -> None:
    api, portal, _ = client({LOGS: [ok(lines(1, 2, more=True)), ok(lines(3))]})
    assert [line.seq for line in api.logs("j1")] == [1, 2, 3]
    assert [request.url.params["after"] for request in portal.asked] == ["0", "2"]


def test_a_page_that_a_filter_left_empty_is_not_the_end() -> None:
    api, portal, _ = client({LOGS: [ok(lines(last=500, more=True)), ok(lines(501))]})
    assert [line.seq for line in api.logs("j1", replica="trainer-0")] == [501]
    assert portal.asked[1].url.params["after"] == "500"


def test_follow_reads_lines_that_arrived_with_the_end() -> None:
    api, _, _ = client({JOB: [ok(job()), ok(job("SUCCEEDED"))], LOGS: [ok(lines(1)), ok(lines(2, 3))]})
    assert [line.seq for line in api.follow("j1")] == [1, 2, 3]


def test_follow_reconnects_without_losing_or_doubling_a_line() -> None:
    answers: list[Answer] = [ok(lines(1)), httpx.ReadError("cut"), problem(502, "", ""), ok(lines(2))]
    api, portal, _ = client({JOB: [ok(job()), ok(job("SUCCEEDED"))], LOGS: answers})
    assert [line.seq for line in api.follow("j1")] == [1, 2]
    assert [request.url.params["after"] for request in portal.asked if request.url.path.endswith("logs")] == [
        "0",
        "1",
        "1",
        "1",
    ]


def test_a_lost_stream_is_an_error_and_not_an_end() -> None:
    api, _, _ = client({JOB: [ok(job())], LOGS: [ok(lines(1)), httpx.ConnectError("refused")]})
    with pytest.raises(Unreachable):
        list(api.follow("j1"))


def test_metrics_are_typed() -> None:
    series = {"x": [0], "min": [1.0], "max": [3.0], "last": [2.0], "count": [4]}
    api, _, _ = client({"GET /api/v1/jobs/j1/metrics": [ok({"series": {"cost": series}, "next": 4})]})
    assert api.metrics("j1")["cost"].last == [2.0]


PAGES = (("a", "more"), ("b", None))


def artifact(content: bytes, name: str = "model.npz") -> Answer:
    digest = hashlib.sha256(content).hexdigest()
    return ok({"artifacts": [{"name": name, "size": len(content), "sha256": digest}]})


def test_a_download_is_complete(tmp_path: Path) -> None:
    fetch = "GET /api/v1/jobs/j1/artifacts/model.npz"
    api, _, _ = client({ARTIFACTS: [artifact(b"weights")], fetch: [httpx.Response(200, content=b"weights")]})
    api.download("j1", "model.npz", tmp_path / "m.npz")
    assert (tmp_path / "m.npz").read_bytes() == b"weights"


@pytest.mark.parametrize("answer", [httpx.Response(200, content=b"weig"), httpx.ReadError("cut")])
def test_a_damaged_download_leaves_nothing(tmp_path: Path, answer: Answer) -> None:
    api, _, _ = client({ARTIFACTS: [artifact(b"weights")], "GET /api/v1/jobs/j1/artifacts/model.npz": [answer]})
    with pytest.raises(Unreachable):
        api.download("j1", "model.npz", tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_artifacts_of_all_pages_are_read() -> None:
    pages = [{"artifacts": [{"name": name, "size": 1, "sha256": "x"}], "next": more} for name, more in PAGES]
    api, _, _ = client({ARTIFACTS: [ok(page) for page in pages]})
    assert [artifact.name for artifact in api.artifacts("j1")] == ["a", "b"]


def test_an_unknown_artifact_is_an_error(tmp_path: Path) -> None:
    api, _, _ = client({ARTIFACTS: [artifact(b"")]})
    with pytest.raises(Missing, match="no artifact 'other'"):
        api.download("j1", "other", tmp_path / "x")


def test_an_id_cannot_reach_another_path() -> None:
    api, portal, _ = client({})
    with pytest.raises(Missing):
        api.job("../me?x=1")
    assert portal.asked[0].url.raw_path == b"/api/v1/jobs/..%2Fme%3Fx%3D1"
