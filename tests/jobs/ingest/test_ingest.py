"""Ingest API: data of agents is stored once, checked field by field, and refused without the right token."""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.test import Client
from pytest_django import Settings

from jobs.builds import code_snapshots
from jobs.ingest import views as ingest_views
from jobs.lifecycle.reasons import Reason
from jobs.lifecycle.states import JobState
from jobs.models import Artifact, Attempt, CodeSnapshot, JobEvent, Replica
from jobs.streams import store
from portal.common import request_load
from portal.common.clock import now
from portal.common.errors import TooLarge
from runtime import contract
from tests.answers import whole
from tests.factories import make_attempt, make_job

TOKEN = "token-of-the-attempt"
CALLS = ("logs", "metrics", "events", "report", "heartbeat", "artifacts", "begin")
GIVEN = ("stop", "code", "data", "data/public/digits/dataset.json")


@pytest.fixture
def attempt(db: None) -> Attempt:
    job = make_job(attempt=1, state=JobState.RUNNING)
    attempt = make_attempt(job, token=TOKEN)
    Replica.objects.create(attempt=attempt, name="trainer-0", role="trainer", index=0)
    return attempt


def post(attempt: Attempt | uuid.UUID, call: str, body: Any, token: str = TOKEN, raw: bytes | None = None) -> Any:
    pk = attempt.pk if isinstance(attempt, Attempt) else attempt
    return Client(enforce_csrf_checks=True).post(
        f"/ingest/v1/attempts/{pk}/{call}",
        raw if raw is not None else json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )


def logs(first: int, *texts: str) -> dict[str, Any]:
    return {"replica": "trainer-0", "first": first, "lines": [[1e9, "stdout", text] for text in texts]}


def metrics(*points: list[Any]) -> dict[str, Any]:
    return {"replica": "trainer-0", "first": 1, "points": list(points)}


# --- Load ------------------------------------------------------------------------------------------------------------
class Overloaded:
    """Load of a process that is overloaded."""

    def batch_seconds(self) -> float:
        return 3.0


def test_the_answer_of_an_overloaded_portal_names_the_age_of_batches(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert contract.PACE not in post(attempt, "heartbeat", {"replica": "trainer-0"}).json()
    monkeypatch.setattr(request_load, "OF_PROCESS", Overloaded())
    assert post(attempt, "heartbeat", {"replica": "trainer-0"}).json()[contract.PACE] == 3.0
    assert post(attempt, "logs", logs(1, "a")).json() == {"last": 1, contract.PACE: 3.0}


# --- Authentication --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("call", CALLS)
def test_without_a_token_every_request_is_refused(attempt: Attempt, call: str) -> None:
    answer = post(attempt, call, {}, token="")
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")


@pytest.mark.parametrize("call", CALLS)
def test_a_bad_token_is_401(attempt: Attempt, call: str) -> None:
    assert post(attempt, call, {}, token="wrong").status_code == 401


def test_the_token_under_another_scheme_is_401(attempt: Attempt) -> None:
    answer = Client().post(
        f"/ingest/v1/attempts/{attempt.pk}/heartbeat",
        {"replica": "trainer-0"},
        content_type="application/json",
        headers={"Authorization": f"Basic {TOKEN}"},
    )
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")


@pytest.mark.parametrize("call", CALLS)
def test_an_attempt_that_is_not_there_is_404(attempt: Attempt, call: str) -> None:
    assert post(uuid.uuid4(), call, {}).status_code == 404


@pytest.mark.parametrize("call", CALLS)
def test_the_token_of_another_attempt_makes_it_404(attempt: Attempt, call: str) -> None:
    make_attempt(make_job(), token="another")
    assert post(attempt, call, {}, token="another").status_code == 404


@pytest.mark.invariant("The ingest API refuses every call of a replaced attempt.")
@pytest.mark.parametrize("call", CALLS)
def test_an_attempt_that_was_replaced_is_told_so(attempt: Attempt, call: str) -> None:
    attempt.job.attempt = 2
    attempt.job.save()
    answer = post(attempt, call, {})
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_attempt")
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("state", [JobState.STOPPING, JobState.FAILED, JobState.SUCCEEDED, JobState.CANCELLED])
def test_late_lines_of_the_last_attempt_are_taken(attempt: Attempt, state: JobState) -> None:
    attempt.job.state = state
    attempt.job.save()
    assert post(attempt, "logs", logs(1, "the last word")).json() == {"last": 1}


def test_get_is_not_a_way_to_send(attempt: Attempt) -> None:
    assert Client().get(f"/ingest/v1/attempts/{attempt.pk}/logs").status_code == 405


# --- Batches ---------------------------------------------------------------------------------------------------------
def test_a_batch_that_is_sent_again_is_taken_once(attempt: Attempt) -> None:
    for _ in range(2):
        assert post(attempt, "logs", logs(1, "one", "two")).json() == {"last": 2}
    assert [line.text for line in store.read_logs(attempt.job_id).lines] == ["one", "two"]


def test_a_batch_beyond_the_next_line_is_answered_with_the_last_number(attempt: Attempt) -> None:
    post(attempt, "logs", logs(1, "one"))
    answer = post(attempt, "logs", logs(3, "three"))
    assert (answer.status_code, answer.json()["code"], answer.json()["last"]) == (409, "gap", 1)


@pytest.mark.parametrize("name", ["system", "agent"])
def test_an_attempt_does_not_write_the_lines_of_the_portal(attempt: Attempt, name: str) -> None:
    """Agents of an earlier version send their remarks as ``system``: these are stored as ``agent``."""
    body = {"replica": "trainer-0", "first": 1, "lines": [[1, name, "The job was cancelled by the platform."]]}
    assert post(attempt, "logs", body).json() == {"last": 1}
    (line,) = store.read_logs(attempt.job_id).lines
    assert line.stream == "agent"


def test_an_empty_batch_returns_the_last_number(attempt: Attempt) -> None:
    post(attempt, "logs", logs(1, "one"))
    assert post(attempt, "logs", logs(2)).json() == {"last": 1}


def test_values_that_are_no_numbers_are_accepted_as_words(attempt: Attempt) -> None:
    words = ["NaN", "Infinity", "-Infinity", 0.5]
    assert post(attempt, "metrics", metrics(*([1e9, n, "cost", value] for n, value in enumerate(words)))).json() == {
        "last": 4
    }
    assert [point.to_json()["value"] for point in store.read_points(attempt.job_id)] == words


def test_half_a_surrogate_pair_is_replaced(attempt: Attempt) -> None:
    post(attempt, "logs", logs(1, "a\ud800b"))
    assert store.read_logs(attempt.job_id).lines[0].text == "a\ufffdb"


def test_any_text_is_kept_as_it_is(attempt: Attempt) -> None:
    text = "表 \x00 \r \n \x1b[31m ✓ 😀"
    post(attempt, "logs", logs(1, text))
    assert store.read_logs(attempt.job_id).lines[0].text == text


def test_a_nul_in_an_event_is_replaced_for_no_database_keeps_it_as_text(attempt: Attempt) -> None:
    post(attempt, "events", {"replica": "trainer-0", "first": 1, "events": [[1e9, "note", "a\0b"]]})
    assert JobEvent.objects.get(kind="note").text == "a\ufffdb"


WRONG_BODIES = [
    ("logs", {"replica": "trainer-0", "first": 0, "lines": []}, "first"),
    ("logs", {"replica": "trainer-0", "first": True, "lines": []}, "first"),
    ("logs", {"replica": "trainer-0", "first": 1}, "lines"),
    ("logs", {"replica": "../etc", "first": 1, "lines": []}, "replica"),
    ("logs", {"first": 1, "lines": []}, "replica"),
    ("logs", {"replica": "trainer-0", "first": 1, "lines": [[1, "stdout", "x"], [1, "stdout"]]}, "lines.1"),
    ("logs", {"replica": "trainer-0", "first": 1, "lines": [[1, "stdin", "x"]]}, "lines.0.1"),
    ("logs", {"replica": "trainer-0", "first": 1, "lines": [["noon", "stdout", "x"]]}, "lines.0.0"),
    ("logs", {"replica": "trainer-0", "first": 1, "lines": [[1e300, "stdout", "x"]]}, "lines.0.0"),
    ("logs", {"replica": "trainer-0", "first": 1, "lines": [[1, "stdout", 7]]}, "lines.0.2"),
    ("logs", {"replica": "trainer-0", "first": 1, "lines": [[1, "stdout", "x"], [1, "portal", "x"]]}, "lines.1.1"),
    ("logs", {"replica": "trainer-0", "first": 1, "lines": [[1, ["system"], "x"]]}, "lines.0.1"),
    ("logs", {"replica": "trainer-0", "first": 1, "lines": [[1, "stdout", "x" * 70_000]]}, "lines.0.2"),
    ("metrics", metrics([1, 1, "cost", 0.5], [1, 1, "", 0.5]), "points.1.2"),
    ("metrics", metrics([1, 1, "c" * 251, 0.5]), "points.0.2"),
    ("metrics", metrics([1, 1, 5, 0.5]), "points.0.2"),
    ("metrics", metrics([1, 1, ["a"], 0.5]), "points.0.2"),
    ("metrics", metrics([1, 1, "cost", "high"]), "points.0.3"),
    ("metrics", metrics([1, 1, "cost", None]), "points.0.3"),
    ("metrics", metrics([1, 1, "cost", True]), "points.0.3"),
    ("metrics", metrics([1, "NaN", "cost", 1]), "points.0.1"),
    ("metrics", metrics([1, 10**400, "cost", 1]), "points.0.1"),
    ("events", {"replica": "trainer-0", "first": 1, "events": [[1, "k" * 33, "x"]]}, "events.0.1"),
    ("report", {"replica": "trainer-0", "phase": "dancing"}, "phase"),
    ("report", {"replica": "trainer-0", "phase": "exited", "code": "0"}, "code"),
    ("report", {"replica": "trainer-0", "phase": "exited", "signal": 2**40}, "signal"),
    ("report", {"replica": "trainer-0", "phase": "exited", "out_of_memory": "no"}, "out_of_memory"),
    ("report", {"replica": "trainer-0", "phase": "exited", "why": {}}, "why"),
    ("report", {"replica": "trainer-0", "phase": "registered", "incarnation": "7"}, "incarnation"),
    ("report", {"replica": "trainer-0", "phase": "registered", "incarnation": 2**63}, "incarnation"),
    ("heartbeat", {}, "replica"),
]


@pytest.mark.parametrize(("call", "body", "field"), WRONG_BODIES)
def test_each_wrong_field_is_named(attempt: Attempt, call: str, body: Any, field: str) -> None:
    answer = post(attempt, call, body)
    assert answer.status_code == 422
    assert list(answer.json()["errors"]) == [field]


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_400(attempt: Attempt, raw: bytes) -> None:
    answer = post(attempt, "logs", None, raw=raw)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


def test_a_body_that_is_too_big_is_413(attempt: Attempt) -> None:
    assert post(attempt, "logs", None, raw=b" " * (ingest_views.BODY_LIMIT + 1)).status_code == 413


def test_a_body_of_unannounced_length_is_read_no_further_than_the_limit() -> None:
    def read(size: int) -> bytes:
        scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
        return ingest_views._read_all(ASGIRequest(scope, io.BytesIO(b" " * size)))

    assert len(read(ingest_views.BODY_LIMIT)) == ingest_views.BODY_LIMIT
    with pytest.raises(TooLarge):
        read(ingest_views.BODY_LIMIT + 1)


# --- Reports, events, heartbeats -------------------------------------------------------------------------------------
def test_an_incarnation_may_be_larger_than_32_bits(attempt: Attempt) -> None:
    post(attempt, "report", {"replica": "trainer-0", "phase": "registered", "incarnation": 2**40})
    assert Replica.objects.get(attempt=attempt, name="trainer-0").incarnation == 2**40


def test_a_report_reaches_the_replica(attempt: Attempt) -> None:
    report = {"replica": "trainer-0", "phase": "exited", "code": 3, "signal": None, "out_of_memory": False, "why": ""}
    assert post(attempt, "report", report).json() == {}
    assert Replica.objects.get(attempt=attempt).code == 3


def test_events_are_taken_once(attempt: Attempt) -> None:
    batch = {"replica": "trainer-0", "first": 1, "events": [[1e9, "joined", "trainer-0 has joined."]]}
    for _ in range(2):
        assert post(attempt, "events", batch).json() == {"last": 1}
    assert JobEvent.objects.filter(kind="joined").count() == 1


def test_events_beyond_the_next_are_answered_with_the_last_number(attempt: Attempt) -> None:
    answer = post(attempt, "events", {"replica": "trainer-0", "first": 4, "events": [[1e9, "joined", "x"]]})
    assert (answer.status_code, answer.json()["last"]) == (409, 0)


def test_a_heartbeat_is_noted(attempt: Attempt) -> None:
    assert post(attempt, "heartbeat", {"replica": "trainer-0"}).json() == {}
    assert Replica.objects.get(attempt=attempt).heartbeat is not None


# --- Artifacts -------------------------------------------------------------------------------------------------------
def put(attempt: Attempt, content: bytes, **query: str) -> Any:
    query = {"replica": "trainer-0", "name": "model.npz", "sha256": hashlib.sha256(content).hexdigest(), **query}
    return Client().post(
        f"/ingest/v1/attempts/{attempt.pk}/artifacts",
        content,
        content_type="application/octet-stream",
        query_params=query,
        headers={"Authorization": f"Bearer {TOKEN}"},
    )


def test_an_artifact_is_kept_with_its_hash(attempt: Attempt) -> None:
    content = bytes(range(256)) * 1000
    digest = hashlib.sha256(content).hexdigest()
    assert put(attempt, content).json() == {"name": "model.npz", "size": 256_000, "sha256": digest}
    assert Artifact.objects.get().sha256 == digest


def test_an_artifact_that_was_cut_on_its_way_is_refused(attempt: Attempt) -> None:
    answer = put(attempt, b"half", sha256="0" * 64)
    assert (answer.status_code, list(answer.json()["errors"])) == (422, ["sha256"])
    assert not Artifact.objects.exists()


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../secret", "a//b", "a\\b", "a\nb", "n" * 201])
def test_a_bad_name_is_refused(attempt: Attempt, name: str) -> None:
    assert list(put(attempt, b"x", name=name).json()["errors"]) == ["name"]


def test_an_artifact_that_is_too_big_is_413(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest_views, "ARTIFACT_LIMIT", 10)
    assert put(attempt, b"x" * 11).status_code == 413
    assert not Artifact.objects.exists()


def test_an_artifact_that_is_announced_as_too_big_is_413_before_capacity_is_taken_for_it(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_views, "ARTIFACT_LIMIT", 10)
    monkeypatch.setattr(ingest_views.replica_reports, "store_artifact", lambda *_, **__: pytest.fail("it was taken in"))
    assert put(attempt, b"x" * 11).status_code == 413


def test_an_artifact_of_unannounced_length_is_411(attempt: Attempt) -> None:
    answer = Client().post(
        f"/ingest/v1/attempts/{attempt.pk}/artifacts?replica=trainer-0&name=model.bin&sha256={'0' * 64}",
        b"x",
        content_type="application/octet-stream",
        headers={"Authorization": f"Bearer {TOKEN}"},
        CONTENT_LENGTH="",
    )
    assert (answer.status_code, answer.json()["code"]) == (411, "length_required")


def test_an_artifact_beyond_the_limit_is_not_read_whatever_length_was_announced() -> None:
    body: Any = io.BytesIO(b"x" * 11)
    with pytest.raises(TooLarge):
        ingest_views.CappedReader(body, 10).read(11)
    assert ingest_views.CappedReader(io.BytesIO(b"x" * 10), 10).read(11) == b"x" * 10  # type: ignore[arg-type]


# --- Responses to agents ---------------------------------------------------------------------------------------------
def get(attempt: Attempt | uuid.UUID, call: str, token: str = TOKEN) -> Any:
    pk = attempt.pk if isinstance(attempt, Attempt) else attempt
    return Client().get(f"/ingest/v1/attempts/{pk}/{call}", headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("call", GIVEN)
def test_nothing_is_sent_without_the_token_of_the_attempt(attempt: Attempt, call: str) -> None:
    make_attempt(make_job(), token="another")
    assert get(attempt, call, token="wrong").status_code == 401
    assert get(attempt, call, token="another").status_code == 404
    assert get(uuid.uuid4(), call).status_code == 404


def test_a_replica_that_starts_again_receives_its_last_numbers(attempt: Attempt) -> None:
    post(attempt, "logs", logs(1, "one", "two"))
    assert post(attempt, "begin", {"replica": "trainer-0"}).json() == {"logs": 2, "metrics": 0, "events": 0}


@pytest.mark.parametrize("state", [JobState.STOPPING, JobState.CANCELLED])
def test_a_replica_that_begins_in_an_attempt_that_ends_must_stop(attempt: Attempt, state: JobState) -> None:
    attempt.job.state = state
    attempt.job.save()
    answer = post(attempt, "begin", {"replica": "trainer-0"})
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_attempt")


def test_a_replica_dismissed_before_it_began_must_stop(attempt: Attempt) -> None:
    Replica.objects.update(dismissed=True)
    assert post(attempt, "begin", {"replica": "trainer-0"}).status_code == 409


@pytest.mark.parametrize(
    ("state", "reason", "seconds"),
    [
        (JobState.STOPPING, Reason.PREEMPTED, 40),
        (JobState.STOPPING, Reason.CANCELLED, 6),
        # One of many trainers, which was dismissed; the reason is that of an earlier attempt.
        (JobState.RUNNING, Reason.PREEMPTED, 6),
    ],
)
def test_a_replica_that_must_end_receives_its_grace_period(
    attempt: Attempt, settings: Settings, state: JobState, reason: Reason, seconds: float
) -> None:
    settings.STOP_GRACE_SECONDS, settings.PREEMPTION_GRACE_SECONDS = 6.0, 40.0
    attempt.job.state, attempt.job.reason = state, reason
    attempt.job.save()
    assert get(attempt, "stop").json() == {"grace": seconds}


def test_the_code_is_given_as_it_was_submitted(attempt: Attempt) -> None:
    code = code_snapshots.pack({"train.py": "print(1)", "model/net.py": ""})
    code_snapshots.keep(code)
    attempt.job.snapshot, _ = CodeSnapshot.objects.get_or_create(digest=code.digest, defaults={"size": 1})
    attempt.job.save()
    assert code_snapshots.unpack(get(attempt, "code").content) == {"train.py": "print(1)", "model/net.py": ""}


def test_the_dataset_is_given_file_by_file(attempt: Attempt) -> None:
    attempt.job.spec = {"dataset": "public/digits"}
    attempt.job.save()
    files = {file["path"]: file["size"] for file in get(attempt, "data").json()["files"]}
    assert "public/digits/dataset.json" in files
    body = whole(get(attempt, "data/public/digits/dataset.json"))
    assert len(body) == files["public/digits/dataset.json"]


@pytest.mark.parametrize(
    "path",
    [
        "public/diabetes/dataset.json",
        "public/digits/../diabetes/dataset.json",
        "../settings.py",
        "/etc/passwd",
        "public/digits",
        "public/digits/none",
    ],
)
def test_no_other_file_is_given(attempt: Attempt, path: str) -> None:
    attempt.job.spec = {"dataset": "public/digits"}
    attempt.job.save()
    assert get(attempt, f"data/{path}").status_code == 404


def test_a_job_without_a_dataset_is_given_none(attempt: Attempt) -> None:
    assert get(attempt, "data").json() == {"files": []}


# --- Replica and time limit ------------------------------------------------------------------------------------------
def _of(call: str, replica: str) -> dict[str, Any]:
    bodies: dict[str, dict[str, Any]] = {
        "logs": {"first": 1, "lines": [[1e9, "stdout", "x"]]},
        "metrics": {"first": 1, "points": [[1e9, 1.0, "cost", 1.0]]},
        "events": {"first": 1, "events": [[1e9, "joined", "x"]]},
        "report": {"phase": "registered"},
    }
    return {"replica": replica, **bodies.get(call, {})}


@pytest.mark.parametrize("name", ["trainer-999999", "build-0", "trainer-1", "master-0"])
@pytest.mark.parametrize("call", ["logs", "metrics", "events", "report", "heartbeat", "begin"])
def test_a_token_writes_nothing_in_the_name_of_a_replica_that_the_attempt_lacks(
    attempt: Attempt, call: str, name: str
) -> None:
    assert post(attempt, call, _of(call, name)).status_code == 404
    assert not JobEvent.objects.exists()


def test_nor_a_file(attempt: Attempt) -> None:
    query = f"artifacts?replica=trainer-7&name=model&sha256={hashlib.sha256(b'x').hexdigest()}"
    assert post(attempt, query, None, raw=b"x").status_code == 404


@pytest.mark.parametrize(("hours", "status"), [(23, 200), (25, 409)])
def test_a_request_long_after_the_end_is_refused(attempt: Attempt, hours: int, status: int) -> None:
    Attempt.objects.update(finished=now() - timedelta(hours=hours))
    assert post(attempt, "logs", logs(1, "late")).status_code == status


def test_a_large_batch_is_taken_whole(attempt: Attempt) -> None:
    texts = ["x" * 1000] * 900
    assert post(attempt, "logs", logs(1, *texts)).json() == {"last": 900}
