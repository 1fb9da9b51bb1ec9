"""Fixtures of notebooks: one of the developer of ``team``, and its job brought to a state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from jobs.lifecycle.states import JobState, ReplicaState
from jobs.models import Attempt, Job, Notebook
from jobs.notebooks import services
from jobs.notebooks.access import REPLICA
from tests.personas import Personas

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
Make = Callable[..., Notebook]


@pytest.fixture
def make(personas: Personas) -> Make:
    """Return a function that creates a notebook of the developer; keywords are fields of the API."""

    def made(name: str = "first", **fields: Any) -> Notebook:
        return services.create(actor=personas.developer, namespace="team", body={"name": name, **fields})[0]

    return made


@pytest.fixture
def running(make: Make, personas: Personas) -> Notebook:
    """A notebook that runs since ``NOW``."""
    return run(services.start(actor=personas.developer, notebook_id=make().pk))


def run(notebook: Notebook) -> Notebook:
    """Bring the job of a notebook to RUNNING at ``NOW``."""
    job = notebook.job
    assert job is not None
    Job.objects.filter(pk=job.pk).update(state=JobState.RUNNING, changed=NOW, started=NOW)
    attempt = Attempt.objects.create(job=job, number=1, token_digest="", created=NOW)
    attempt.replicas.create(name=REPLICA, role="trainer", index=0, state=ReplicaState.REGISTERED, started=NOW)
    Notebook.objects.filter(pk=notebook.pk).update(last_used=NOW)
    return Notebook.objects.select_related("job", "namespace", "owner", "token").get(pk=notebook.pk)
