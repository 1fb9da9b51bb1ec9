"""Fixtures of a backend, a storage and a job for each test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from jobs.backends import factory as backend_factory
from jobs.models import Job
from jobs.selectors import specifications
from jobs.services import jobs as job_services
from portal.common import request_load
from tests.jobs.fakes import ObedientBackend
from tests.personas import Personas

SPEC: dict[str, Any] = {
    "name": "digits",
    "files": {"train.py": "print('hello')\n"},
    "dataset": "public/digits",
    "roles": {"trainer": {"replicas": 2, "memory": "512Mi"}},
}
Use = Callable[[ObedientBackend], ObedientBackend]


@pytest.fixture(autouse=True)
def _own_directories(settings: Settings, tmp_path: Path) -> None:
    settings.STORAGE_DIR = tmp_path / "storage"
    settings.ATTEMPTS_DIR = tmp_path / "attempts"


@pytest.fixture(autouse=True)
def _idle_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure no CPU time: tests use a whole core, and answers to agents would ask for larger batches."""
    monkeypatch.setattr(request_load, "OF_PROCESS", request_load.RequestLoad(cpu=lambda: 0.0))


@pytest.fixture
def use(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Return a function that replaces the real backend."""

    def put(backend: ObedientBackend) -> ObedientBackend:
        monkeypatch.setattr(backend_factory, "BACKENDS", {"fake": lambda: backend})
        settings.CLUSTER_BACKEND = "fake"
        return backend

    return put


@pytest.fixture
def backend(use: Use) -> ObedientBackend:
    return use(ObedientBackend())


@pytest.fixture
def submit(personas: Personas) -> Callable[..., Job]:
    """Return a function that submits a job as the developer of ``team``; keywords replace fields of its spec."""

    def submitted(**fields: Any) -> Job:
        wanted = specifications.parse({**SPEC, **fields})
        return job_services.submit_job(actor=personas.developer, namespace="team", spec=wanted).job

    return submitted
