"""Actions on notebooks: creation, change, start, stop and deletion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.builds import code_snapshots
from jobs.frameworks.definitions import NOTEBOOK
from jobs.lifecycle.states import JobState
from jobs.models import Job, Notebook
from jobs.notebooks import selectors, services
from jobs.notebooks.selectors import State
from portal.common.errors import Conflict, ValidationFailed
from quota.services import set_limits
from rbac.models import AuditEntry
from runtime import contract
from tests.factories import make_namespace
from tests.jobs.notebooks.conftest import Make
from tests.personas import Personas

pytestmark = pytest.mark.django_db


def test_a_start_submits_one_trainer_without_master_and_servers(make: Make, personas: Personas) -> None:
    notebook = services.start(actor=personas.developer, notebook_id=make(cpu="2", memory="3Gi").pk)
    assert notebook.job is not None
    spec = notebook.job.spec
    assert spec["framework"] == NOTEBOOK
    assert (spec["roles"]["trainer"]["replicas"], spec["roles"]["pserver"]["replicas"]) == (1, 0)
    assert (spec["roles"]["trainer"]["cpu"], spec["roles"]["trainer"]["memory"]) == (2.0, "3Gi")
    assert any(line.startswith("jupyterlab==") for line in spec["requirements"])


def test_a_second_start_returns_the_same_job(make: Make, personas: Personas) -> None:
    notebook = make()
    first, second = (services.start(actor=personas.developer, notebook_id=notebook.pk) for _ in "ab")
    assert first.job_id == second.job_id
    assert Job.objects.count() == 1


def test_a_start_after_the_end_submits_another_job(running: Notebook, personas: Personas) -> None:
    Job.objects.update(state=JobState.CANCELLED)
    again = services.start(actor=personas.developer, notebook_id=running.pk)
    assert again.job_id != running.job_id


def test_a_notebook_starts_although_its_last_job_was_deleted(running: Notebook, personas: Personas) -> None:
    Job.objects.update(state=JobState.CANCELLED)
    later = services.start(actor=personas.developer, notebook_id=running.pk)
    Job.objects.filter(pk=later.job_id).delete()
    again = services.start(actor=personas.developer, notebook_id=running.pk)
    assert selectors.state_of(again) is State.STARTING


def test_a_notebook_starts_although_its_last_job_was_deleted_and_its_memory_changed(
    running: Notebook, personas: Personas
) -> None:
    Job.objects.update(state=JobState.CANCELLED)
    later = services.start(actor=personas.developer, notebook_id=running.pk)
    Job.objects.filter(pk=later.job_id).delete()
    services.change(actor=personas.developer, notebook_id=running.pk, body={"memory": "3Gi"})
    again = services.start(actor=personas.developer, notebook_id=running.pk)
    assert selectors.state_of(again) is State.STARTING


def test_of_two_people_who_start_it_at_once_the_second_one_leaves_no_job(
    make: Make, personas: Personas, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = make()
    submit = services.job_services.submit_job

    def late(**given: Any) -> Any:
        """Submit the second person's job, after the first person has started the notebook."""
        monkeypatch.setattr(services.job_services, "submit_job", submit)
        services.start(actor=personas.developer, notebook_id=notebook.pk)
        return submit(**given)

    monkeypatch.setattr(services.job_services, "submit_job", late)
    started = services.start(actor=personas.owner, notebook_id=notebook.pk)
    (unused,) = Job.objects.exclude(pk=started.job_id)
    assert (unused.owner, unused.cancelled_by) == (personas.owner, personas.owner)
    assert started.job is not None
    assert started.job.cancel_requested is None


def test_a_notebook_starts_while_the_storage_is_full(make: Make, personas: Personas) -> None:
    notebook = make()
    set_limits(actor=personas.admin, namespace=personas.namespace, limits={"storage": 1})
    services.start(actor=personas.developer, notebook_id=notebook.pk)
    assert Job.objects.count() == 1


def test_a_stop_cancels_the_job_in_the_name_of_the_person(running: Notebook, personas: Personas) -> None:
    stopped = services.stop(actor=personas.owner, notebook_id=running.pk)
    assert stopped.job is not None
    assert stopped.job.cancelled_by == personas.owner
    assert selectors.state_of(stopped) is State.STOPPING


def test_a_start_while_it_stops_is_a_conflict(running: Notebook, personas: Personas) -> None:
    services.stop(actor=personas.developer, notebook_id=running.pk)
    with pytest.raises(Conflict):
        services.start(actor=personas.developer, notebook_id=running.pk)


def test_a_running_notebook_is_not_deleted(running: Notebook, personas: Personas) -> None:
    with pytest.raises(Conflict):
        services.delete(actor=personas.developer, notebook_id=running.pk)
    assert Notebook.objects.exists()


def test_only_the_idle_time_changes_while_it_runs(running: Notebook, personas: Personas) -> None:
    changed = services.change(actor=personas.developer, notebook_id=running.pk, body={"idle": "2h"})
    assert changed.idle_seconds == 7200
    with pytest.raises(Conflict):
        services.change(actor=personas.developer, notebook_id=running.pk, body={"cpu": "2"})


def test_a_change_keeps_the_fields_that_are_not_given(make: Make, personas: Personas) -> None:
    notebook = make(requirements=["pandas"], gpu=1)
    changed = services.change(actor=personas.developer, notebook_id=notebook.pk, body={"memory": "4Gi"})
    assert (changed.requirements, changed.gpu, changed.memory) == (["pandas"], 1, 4 * 1024**3)


def test_names_are_unique_in_the_namespace(make: Make) -> None:
    make("same")
    with pytest.raises(Conflict):
        make("same")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "No Label"),
        ("cpu", "many"),
        ("memory", "64Mi"),
        ("gpu", -1),
        ("gpu", True),
        ("requirements", ["--index-url=https://example.com"]),
        ("requirements", 3),
        ("idle", "3s"),
        ("source", "empty"),
        ("source", {"kind": "unknown"}),
        ("source", {"kind": "template", "name": "no-such"}),
        ("source", {"kind": "job", "job": "no-id"}),
        ("source", {"kind": "dataset", "dataset": "team/none"}),
        ("source", {"kind": "git", "address": "ssh://example.com/code"}),
    ],
)
def test_an_invalid_field_is_named(make: Make, field: str, value: object) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        make(**{"name": "first", field: value})
    assert list(refusal.value.errors) == [field]


@pytest.mark.parametrize(
    "address",
    [
        "http://example.com/code.git",
        "file:///etc",
        "https://",
        "https://ada:secret@example.com/code",
        "https://example.com/a b",
        "https://[example",
        "--upload-pack=x",
        "https://example.com/" + "a" * 600,
    ],
)
def test_only_public_https_addresses_are_cloned(make: Make, address: str) -> None:
    with pytest.raises(ValidationFailed):
        make(source={"kind": "git", "address": address})


def test_a_notebook_of_a_job_has_its_code(submit: Callable[..., Job], make: Make, personas: Personas) -> None:
    notebook = make(source={"kind": "job", "job": str(submit().pk)})
    files = _files(services.start(actor=personas.developer, notebook_id=notebook.pk))
    assert {"train.py", "first.ipynb"} <= files


def test_a_notebook_of_a_job_of_strangers_is_refused(submit: Callable[..., Job], personas: Personas) -> None:
    source = {"kind": "job", "job": str(submit().pk)}
    with pytest.raises(ValidationFailed):
        services.create(actor=personas.stranger, namespace=_own(personas), body={"name": "mine", "source": source})


def test_opening_a_job_again_returns_the_same_notebook(submit: Callable[..., Job], personas: Personas) -> None:
    source = {"kind": "job", "job": str(submit().pk)}
    first, second = (
        services.open_for(actor=personas.developer, namespace="team", source=source, name="digits") for _ in "ab"
    )
    assert first == second
    other = services.open_for(actor=personas.owner, namespace="team", source=source, name="digits")
    assert other.name == "digits-2"


def test_the_audit_log_has_creation_start_stop_and_deletion(running: Notebook, personas: Personas) -> None:
    services.stop(actor=personas.developer, notebook_id=running.pk)
    Job.objects.update(state=JobState.CANCELLED)
    services.delete(actor=personas.developer, notebook_id=running.pk)
    rows = AuditEntry.objects.filter(action__startswith="notebook.").order_by("pk").values_list("action", flat=True)
    assert list(rows) == ["notebook.create", "notebook.start", "notebook.stop", "notebook.delete"]


def _files(notebook: Notebook) -> set[str]:
    assert notebook.job is not None
    prefix = f"{contract.NOTEBOOK_START}/"
    found = code_snapshots.files_of(notebook.job.snapshot)
    return {path.removeprefix(prefix) for path in found if path.startswith(prefix)}


def _own(personas: Personas) -> str:
    return make_namespace(owner=personas.stranger).name
