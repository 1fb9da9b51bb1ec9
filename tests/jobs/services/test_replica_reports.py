"""Reports of agents about their replicas."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError

from datasets.storage import default_storage
from jobs.ingest.payloads import Report
from jobs.lifecycle.states import ReplicaState
from jobs.messages import jobs as messages
from jobs.models import Artifact, Attempt, Job, JobEvent, Replica
from jobs.reconcile import reconciler
from jobs.selectors import timeline
from jobs.services import replica_reports
from jobs.streams.entries import Gap
from portal.common.clock import now as wall_clock
from portal.common.errors import ValidationFailed
from quota.models import Kept, Kind
from runtime.messages.composition import with_full_stop
from tests.jobs.fakes import ObedientBackend

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]


@pytest.fixture
def attempt(backend: ObedientBackend, submit: Submit) -> Attempt:
    job = submit()
    reconciler.reconcile(job.pk)
    return Attempt.objects.select_related("job").get(job=job)


def report(attempt: Attempt, phase: str, replica: str = "trainer-0", **fields: Any) -> Replica:
    fields = {"code": None, "signal": None, "out_of_memory": False, "why": "", **fields}
    replica_reports.record_report(attempt, Report(replica=replica, phase=phase, **fields))
    return Replica.objects.get(attempt=attempt, name=replica)


def test_reports_move_a_replica_on(attempt: Attempt) -> None:
    assert report(attempt, "starting").state == "starting"
    assert report(attempt, "registered").registered is not None
    ended = report(attempt, "exited", code=0)
    assert (ended.state, ended.flushed, ended.code) == ("exited", True, 0)


def test_a_report_that_comes_late_does_not_bring_a_replica_back(attempt: Attempt) -> None:
    report(attempt, "exited", code=0)
    assert report(attempt, "registered").state == "exited"


def test_a_report_sent_twice_is_recorded_once(attempt: Attempt) -> None:
    for _ in range(2):
        report(attempt, "registered")
        report(attempt, "exited", signal=9)
    texts = list(JobEvent.objects.order_by("id").values_list("text", flat=True))
    assert texts == [
        messages.REPLICA_REGISTERED(replica="trainer-0"),
        with_full_stop(messages.ENDING(replica="trainer-0", ending=messages.ENDED_BY(signal="SIGKILL"))),
    ]


def test_the_agents_report_replaces_the_observation_of_the_backend(attempt: Attempt) -> None:
    Replica.objects.filter(name="trainer-0").update(state="lost", why="its agent is gone")
    ended = report(attempt, "exited", code=3, why="exited with code 3")
    assert (ended.state, ended.why) == ("exited", "exited with code 3")


def test_events_are_stored_once_whatever_is_sent_again(attempt: Attempt) -> None:
    rows = [(1.0, "task", "one"), (2.0, "task", "two"), (3.0, "task", "three")]
    assert replica_reports.record_events(attempt, replica="master-0", first=1, events=rows[:2]) == 2
    assert replica_reports.record_events(attempt, replica="master-0", first=1, events=rows) == 3
    assert list(JobEvent.objects.order_by("id").values_list("text", flat=True)) == ["one", "two", "three"]


def test_events_beyond_the_limit_of_a_replica_are_omitted_and_recorded_once(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_reports, "EVENTS_LIMIT", 3)
    rows = [(float(number), "task", str(number)) for number in range(1, 9)]
    for first, last in ((1, 2), (3, 3), (4, 4), (2, 6), (7, 8)):
        assert (
            replica_reports.record_events(attempt, replica="master-0", first=first, events=rows[first - 1 : last])
            == last
        )
    stored = list(JobEvent.objects.filter(replica="master-0").order_by("id").values_list("kind", "text"))
    assert stored[:3] == [("task", "1"), ("task", "2"), ("task", "3")]
    assert [kind for kind, _ in stored[3:]] == [replica_reports.FULL]
    assert stored[3][1] == messages.TIMELINE_FULL(replica="master-0", count=3)


@pytest.mark.parametrize("limit", range(10))
def test_one_batch_may_cross_the_limit_anywhere(attempt: Attempt, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(replica_reports, "EVENTS_LIMIT", limit)
    rows = [(1.0, "task", "x")] * 8
    assert replica_reports.record_events(attempt, replica="master-0", first=1, events=rows) == 8
    kinds = list(JobEvent.objects.filter(replica="master-0").order_by("id").values_list("kind", flat=True))
    assert kinds == ["task"] * min(limit, 8) + [replica_reports.FULL] * (limit < 8)


def test_the_limit_is_of_each_replica(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reports, "EVENTS_LIMIT", 1)
    for replica in ("master-0", "trainer-0"):
        replica_reports.record_events(attempt, replica=replica, first=1, events=[(1.0, "task", replica)])
    assert set(JobEvent.objects.filter(kind="task").values_list("text", flat=True)) == {"master-0", "trainer-0"}


def test_events_that_leave_some_out_are_refused(attempt: Attempt) -> None:
    with pytest.raises(Gap) as gap:
        replica_reports.record_events(attempt, replica="master-0", first=2, events=[(1.0, "task", "two")])
    assert gap.value.last == 0


def keep(attempt: Attempt, body: bytes, replica: str = "trainer-0", sha256: str = "") -> Artifact:
    digest = sha256 or hashlib.sha256(body).hexdigest()
    return replica_reports.store_artifact(
        attempt, replica=replica, name="model.npz", sha256=digest, size=len(body), stream=io.BytesIO(body)
    )


def test_an_artifact_that_is_sent_again_is_kept_once(attempt: Attempt) -> None:
    assert keep(attempt, b"model") == keep(attempt, b"model")
    assert len(list(default_storage().list("artifacts"))) == 1


def test_an_artifact_that_was_cut_is_refused_and_not_kept(attempt: Attempt) -> None:
    with pytest.raises(ValidationFailed):
        keep(attempt, b"mod", sha256=hashlib.sha256(b"model").hexdigest())
    assert Artifact.objects.count() == len(list(default_storage().list("artifacts"))) == 0


def test_an_artifact_whose_row_cannot_be_written_is_not_kept(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(replica_reports, "_write_artifact", fail)
    with pytest.raises(OperationalError):
        keep(attempt, b"model")
    assert list(default_storage().list("artifacts")) == []
    assert not Kept.objects.filter(kind=Kind.ARTIFACTS, size__gt=0).exists()


def test_two_replicas_may_leave_different_files_of_one_name(attempt: Attempt) -> None:
    names = [keep(attempt, b"a").name, keep(attempt, b"b", replica="trainer-1").name]
    assert names == ["model.npz", "trainer-1/model.npz"]


def test_the_timeline_merges_states_and_happenings(attempt: Attempt) -> None:
    report(attempt, "registered")
    kinds = [entry["kind"] for entry in timeline.page_of(attempt.job).entries]
    assert kinds == ["state"] * 5 + ["registered"]


def test_a_rehearsed_kill_is_reported_with_its_duration(attempt: Attempt) -> None:
    report(attempt, "registered")
    JobEvent.objects.create(job=attempt.job, attempt=1, at=wall_clock(), replica="trainer-0", kind="rehearsal", text="")
    report(attempt, "exited", signal=9)
    at = wall_clock() - timedelta(seconds=3)
    JobEvent.objects.filter(kind="rehearsal").update(at=at)
    JobEvent.objects.create(job=attempt.job, attempt=1, at=at, replica="trainer-0", kind="restarted", text="")
    Replica.objects.filter(attempt=attempt, name="trainer-0").update(
        start_number=2, state=ReplicaState.WAITING, registered=None, flushed=False
    )
    report(attempt, "registered", start_number=2)
    text = JobEvent.objects.filter(job=attempt.job, replica="trainer-0").latest("id").text
    assert text in {
        messages.REHEARSAL_KILL_RECOVERED(replica="trainer-0", length=f"3.{tenths}") for tenths in range(10)
    }, text


def test_a_held_replica_is_recorded_with_one_event_until_it_is_released(attempt: Attempt) -> None:
    report(attempt, "registered")
    until = int(wall_clock().timestamp()) + 900
    for _ in range(2):
        held = report(attempt, "held", exception="ValueError", seconds=900, until=until)
    assert (held.state, held.held) == ("registered", {"exception": "ValueError", "seconds": 900, "until": until})
    for _ in range(2):
        assert report(attempt, "released").held is None
    kinds = JobEvent.objects.filter(kind__in=("held", "released")).order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["held", "released"]


def test_the_end_of_a_replica_ends_its_hold_and_a_late_report_does_not_bring_it_back(attempt: Attempt) -> None:
    until = int(wall_clock().timestamp()) + 900
    report(attempt, "held", exception="ValueError", seconds=900, until=until)
    assert report(attempt, "exited", code=1).held is None
    assert report(attempt, "held", exception="ValueError", seconds=900, until=until).held is None
