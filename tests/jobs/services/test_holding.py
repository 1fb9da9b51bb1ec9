"""Holds as a service: who may, what is checked, and a real agent of the local backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.backends.local.backend import LocalBackend
from jobs.control import held_frames, keys
from jobs.control.held_frames import HeldFrame, HeldProgram, Variable
from jobs.models import Job, Replica
from jobs.selectors.attempts import ref_of
from jobs.services import holding
from portal.common.clock import now
from portal.common.errors import Conflict, Forbidden, ValidationFailed
from rbac.models import AuditEntry
from runtime import contract
from tests.contracts.backend_contract import NO_GRACE, all_exited, all_running, make_plan, wait_until
from tests.jobs.services.test_inspection import running
from tests.personas import Personas
from tests.runtime.agent.ingest_server import IngestServer
from tests.waiting import until

pytestmark = pytest.mark.django_db
Submit = Callable[..., Job]


# --- Checks ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"seconds": -1}, "seconds"), ({"seconds": 14_401}, "seconds"), ({"seconds": 1.5}, "seconds"),
        ({"seconds": True}, "seconds"), ({"replicas": []}, "replicas"), ({"replicas": ["trainer-9"]}, "replicas"),
        # It runs code of the platform.
        ({"replicas": ["master-0"]}, "replicas"),
    ],
)  # fmt: skip
def test_an_impossible_hold_is_refused_with_the_field(
    submit: Submit, personas: Personas, wanted: dict[str, Any], field: str
) -> None:
    job = submit()
    running(job, "trainer-0", "master-0")
    with pytest.raises(ValidationFailed) as refused:
        holding.hold(actor=personas.developer, job_id=job.pk, wanted=wanted)
    assert list(refused.value.errors) == [field]


def test_a_job_without_a_held_program_cannot_be_released(submit: Submit, personas: Personas) -> None:
    job = submit()
    running(job, "trainer-0")
    with pytest.raises(Conflict):
        holding.release(actor=personas.developer, job_id=job.pk, wanted={})


def test_who_only_reads_sees_no_variables(submit: Submit, personas: Personas) -> None:
    job = submit()
    running(job, "trainer-0")
    with pytest.raises(Forbidden):
        holding.variables(actor=personas.viewer, job_id=job.pk, wanted={"replica": "trainer-0"})


@pytest.mark.parametrize("wanted", [{}, {"replica": 1}, {"replica": "trainer-9"}, []])
def test_variables_need_the_name_of_a_running_replica(submit: Submit, personas: Personas, wanted: object) -> None:
    job = submit()
    running(job, "trainer-0")
    with pytest.raises(ValidationFailed):
        holding.variables(actor=personas.developer, job_id=job.pk, wanted=wanted)


def test_an_answer_of_another_form_is_cut_to_what_is_expected() -> None:
    variable = {"name": "a" * 900, "type": 5, "size": True, "shape": None, "text": "b\x1b[31m"}
    frames = [{"file": "f", "line": -1, "function": "g", "variables": [variable, 7] + [{}] * 300}, "no frame"]
    found = held_frames.read({"exception": ["x"], "message": "m", "complete": 1, "frames": frames})
    assert (found.exception, found.message, found.complete, len(found.frames)) == ("", "m", False, 1)
    assert len(found.frames[0].variables) == 99
    assert found.frames[0].variables[0] == Variable("a" * 200, "", None, "", "b\ufffd[31m")


def test_the_whole_answer_is_bounded() -> None:
    variables = [dict.fromkeys(("name", "type", "shape", "text"), "x" * 200)] * 100
    found = held_frames.read({"complete": True, "frames": [{"variables": variables}] * 40})
    assert not found.complete
    assert sum(one.characters for frame in found.frames for one in frame.variables) <= held_frames.CHARACTERS


# --- A real agent ----------------------------------------------------------------------------------------------------
@pytest.fixture
def failing(submit: Submit, tmp_path: Path, settings: Any) -> Iterator[tuple[Job, IngestServer]]:
    """A job whose trainers fail, once they are asked to, under real agents."""
    job, portal, backend = submit(), IngestServer(), LocalBackend(Path(settings.ATTEMPTS_DIR))
    settings.CLUSTER_BACKEND = "local"
    ref = ref_of(job, running(job, "trainer-0", "trainer-1"))
    (tmp_path / "bundle").mkdir()
    script = f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)\n1 / 0"
    (tmp_path / "bundle" / "train.py").write_text(script)
    plan = make_plan(tmp_path / "bundle", {contract.INGEST_URL: portal.url, contract.SANDBOX: "none"})
    backend.launch(replace(plan, ref=ref, control_key=keys.current(ref.attempt_id)))
    wait_until(backend, ref, all_running)
    yield job, portal
    backend.stop(ref, NO_GRACE)
    wait_until(backend, ref, all_exited)
    portal.close()


def ends(portal: IngestServer) -> list[tuple[str, str]]:
    return [(report["replica"], report["phase"]) for report in portal.reports]


@pytest.mark.processes
def test_a_program_is_held_looked_at_and_released(
    failing: tuple[Job, IngestServer], personas: Personas, tmp_path: Path
) -> None:
    job, portal = failing
    (asked,) = holding.hold(actor=personas.developer, job_id=job.pk, wanted={"seconds": 60, "replicas": ["trainer-0"]})
    assert (asked.replica, asked.held, asked.note) == ("trainer-0", False, "")
    (tmp_path / "go").touch()
    until("it is held", lambda: any(report["phase"] == "held" for report in portal.reports))
    found = holding.variables(actor=personas.developer, job_id=job.pk, wanted={"replica": "trainer-0"})
    assert found.program == HeldProgram(
        "ZeroDivisionError", "division by zero", True, (HeldFrame("train.py", 3, "<module>"),)
    )
    held = {"exception": "ZeroDivisionError", "seconds": 60, "until": now().timestamp() + 60}
    Replica.objects.filter(name="trainer-0").update(held=held)
    (released,) = holding.release(actor=personas.developer, job_id=job.pk, wanted={})
    assert (released.replica, released.held, released.note) == ("trainer-0", False, "")
    until("it has ended", lambda: ("trainer-0", "exited") in ends(portal))
    actions = AuditEntry.objects.filter(target=str(job.pk)).order_by("id").values_list("action", flat=True)
    assert list(actions)[-3:] == ["job.hold", "job.variables", "job.release"]
