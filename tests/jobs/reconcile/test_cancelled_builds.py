"""Cancellation of jobs whose packages are being installed, with a real installer on this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from jobs.builds import local_bundle
from jobs.lifecycle.states import JobState
from jobs.models import Job
from jobs.reconcile import reconciler
from jobs.services import jobs as job_services
from tests.jobs.fakes import ObedientBackend
from tests.personas import Personas
from tests.waiting import until

pytestmark = [pytest.mark.django_db, pytest.mark.processes]
Submit = Callable[..., Job]


@pytest.fixture(autouse=True)
def _silent_index(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: ObedientBackend
) -> Iterator[None]:
    """Make a package index that accepts connections and never answers the only source of pip."""
    settings.DATA_DIR = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
        yield
        local_bundle.end_all()


def installers(package: str) -> list[str]:
    """Return the processes that install the package: the installer and its pip."""
    folder = str(local_bundle.environment_folder((package,))).encode()
    return [str(line.parent) for line in Path("/proc").glob("[0-9]*/cmdline") if folder in _read(line)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def building(submit: Submit, package: str, **fields: Any) -> Job:
    """Return a job whose package is being installed."""
    job = submit(requirements=[package], **fields)
    assert reconciler.reconcile(job.pk) is JobState.BUILDING
    until("pip runs", lambda: len(installers(package)) >= 2)
    return job


def cancel(personas: Personas, job: Job) -> None:
    job_services.cancel_job(actor=personas.owner, job_id=job.pk)
    assert reconciler.reconcile(job.pk) is JobState.CANCELLED


@pytest.mark.invariant("A build that no job waits for ends within seconds.")
def test_the_installation_of_a_cancelled_job_ends(submit: Submit, personas: Personas) -> None:
    job = building(submit, "tiny")
    cancel(personas, job)
    until("no process installs", lambda: not installers("tiny"), 5)


def test_an_installation_that_another_job_waits_for_goes_on(submit: Submit, personas: Personas) -> None:
    job = building(submit, "tiny")
    other = building(submit, "tiny", name="other", files={"train.py": "print('other')\n"})
    begun = installers("tiny")
    cancel(personas, job)
    assert reconciler.reconcile(other.pk) is JobState.BUILDING
    # It may have started more processes since.
    assert set(installers("tiny")) >= set(begun)


def test_the_installation_of_other_packages_goes_on(submit: Submit, personas: Personas) -> None:
    job, other = building(submit, "tiny"), building(submit, "huge", name="other")
    begun = installers("huge")
    cancel(personas, job)
    until("no process installs", lambda: not installers("tiny"), 5)
    assert reconciler.reconcile(other.pk) is JobState.BUILDING
    assert set(installers("huge")) >= set(begun)
