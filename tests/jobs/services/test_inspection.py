"""Looking into replicas as a service: who may, what is checked, and real agents of the local backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.backends.local.backend import LocalBackend
from jobs.control import keys
from jobs.lifecycle.states import JobState
from jobs.models import Attempt, Job
from jobs.selectors.attempts import ref_of
from jobs.services import inspection
from portal.common.clock import now
from portal.common.errors import Conflict, TooManyRequests, ValidationFailed
from rbac.models import AuditEntry
from runtime import contract
from tests.contracts.backend_contract import NO_GRACE, all_exited, all_running, make_plan, wait_until
from tests.factories import make_attempt
from tests.personas import Personas
from tests.runtime.agent.ingest_server import IngestServer
from tests.waiting import until

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]
SCRIPT = """
import os, time
def waits():
    time.sleep(600)
def reads():
    time.sleep(600)
reads() if os.environ["REGATTA_REPLICA"] == "trainer-1" else waits()
"""


def running(job: Job, *names: str) -> Attempt:
    """Record replicas of the job as running."""
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING)
    attempt = Attempt.objects.filter(job=job).first() or make_attempt(job)
    for name in names:
        role, _, index = name.rpartition("-")
        attempt.replicas.create(name=name, role=role, index=int(index), state="registered", started=now())
    return attempt


# --- Checks ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"seconds": 0}, "seconds"), ({"seconds": 61}, "seconds"), ({"seconds": "10"}, "seconds"),
        ({"seconds": True}, "seconds"), ({"seconds": float("nan")}, "seconds"), ({"replicas": []}, "replicas"),
        ({"replicas": "trainer-0"}, "replicas"), ({"replicas": [1]}, "replicas"),
        ({"replicas": ["trainer-9"]}, "replicas"),
    ],
)  # fmt: skip
def test_an_impossible_recording_is_refused_with_the_field(
    submit: Submit, personas: Personas, wanted: dict[str, Any], field: str
) -> None:
    job = submit()
    running(job, "trainer-0")
    with pytest.raises(ValidationFailed) as refused:
        inspection.record(actor=personas.developer, job_id=job.pk, wanted=wanted)
    assert list(refused.value.errors) == [field]


def test_a_job_without_running_replicas_has_no_stacks(submit: Submit, personas: Personas) -> None:
    job = submit()
    with pytest.raises(Conflict):
        inspection.take_stacks(actor=personas.developer, job_id=job.pk)


def test_a_fifth_recording_at_a_time_is_refused(
    submit: Submit, personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit()
    running(job, "trainer-0")
    for _ in range(inspection.RECORDINGS):
        assert inspection._recordings.acquire(blocking=False)
    try:
        with pytest.raises(TooManyRequests):
            inspection.record(actor=personas.developer, job_id=job.pk, wanted={})
    finally:
        for _ in range(inspection.RECORDINGS):
            inspection._recordings.release()


def test_a_ninth_look_at_stacks_at_a_time_is_refused(submit: Submit, personas: Personas) -> None:
    job = submit()
    running(job, "trainer-0")
    for _ in range(inspection.LOOKS):
        assert inspection._looks.acquire(blocking=False)
    try:
        with pytest.raises(TooManyRequests):
            inspection.take_stacks(actor=personas.developer, job_id=job.pk)
    finally:
        for _ in range(inspection.LOOKS):
            inspection._looks.release()


def test_a_replica_whose_agent_is_not_there_is_gone_and_a_look_is_audited(submit: Submit, personas: Personas) -> None:
    job = submit()
    running(job, "trainer-0")
    found = inspection.take_stacks(actor=personas.developer, job_id=job.pk)
    assert [(one.replica, one.state, str(one.note)) for one in found.replicas] == [
        ("trainer-0", "gone", "trainer-0 is not running.")
    ]
    entry = AuditEntry.objects.get(action="job.stacks")
    assert (entry.target, entry.actor, entry.detail) == (str(job.pk), personas.developer, {"replicas": 1})


# --- Real agents -----------------------------------------------------------------------------------------------------
@pytest.fixture
def agents(submit: Submit, tmp_path: Path, settings: Any) -> Iterator[Job]:
    """A job whose two trainers run under real agents, in two different functions."""
    job, portal, backend = submit(), IngestServer(), LocalBackend(Path(settings.ATTEMPTS_DIR))
    settings.CLUSTER_BACKEND = "local"
    attempt = running(job, "trainer-0", "trainer-1")
    ref = ref_of(job, attempt)
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "train.py").write_text(SCRIPT)
    environment = {contract.INGEST_URL: portal.url, contract.SANDBOX: "none"}
    plan = replace(make_plan(tmp_path / "bundle", environment), ref=ref, control_key=keys.current(ref.attempt_id))
    backend.launch(plan)
    wait_until(backend, ref, all_running)
    yield job
    backend.stop(ref, NO_GRACE)
    wait_until(backend, ref, all_exited)
    portal.close()


@pytest.mark.processes
def test_the_stacks_of_all_replicas_are_taken_and_grouped(agents: Job, personas: Personas) -> None:
    def functions() -> list[tuple[str, dict[str, int]]]:
        found = inspection.take_stacks(actor=personas.developer, job_id=agents.pk)
        assert found.spread_ms < 5000
        return sorted((group.frames[0].function, dict(group.roles)) for group in found.groups)

    # The programs have just been started.
    until("both wait", lambda: functions() == [("reads", {"trainer": 1}), ("waits", {"trainer": 1})])
    wanted = {"seconds": 1, "replicas": ["trainer-1"]}
    (recording,) = inspection.record(actor=personas.developer, job_id=agents.pk, wanted=wanted).replicas
    assert list(recording.stacks) == ["MainThread;<module> (train.py);reads (train.py)"]
    assert recording.samples > 1
    assert recording.memory[0]["resident"] > 2**20
