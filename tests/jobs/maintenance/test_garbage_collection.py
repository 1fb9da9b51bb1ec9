"""Garbage collection removes unused builds and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pytest_django import Settings

from jobs.builds import local_bundle
from jobs.maintenance import garbage_collection
from jobs.models import Job
from rbac.audit import restorations
from tests.jobs.fakes import ObedientBackend
from tests.personas import Personas

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)
AGE = timedelta(days=14)


@pytest.fixture(autouse=True)
def _own_data(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "data"


def aged(folder: Path, days: float) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "content").write_text("x", encoding="utf-8")
    at = (NOW - timedelta(days=days)).timestamp()
    os.utime(folder, (at, at))
    return folder


def test_only_builds_unused_for_long_are_removed() -> None:
    code, environments = local_bundle.directories()
    old = [aged(code / "a", 15), aged(environments / "b", 15), aged(code / ".making-c", 15)]
    fresh = [aged(code / "d", 13), aged(environments / "e", 13), aged(code / ".making-f", 0)]
    assert garbage_collection.prune(NOW, AGE) == 3
    assert [folder.exists() for folder in old + fresh] == [False] * 3 + [True] * 3


@pytest.mark.invariant("No bundle or environment is deleted while a job waits for it or runs with it.")
def test_what_a_job_waits_for_or_runs_with_stays(
    backend: ObedientBackend, submit: Callable[..., Job], personas: Personas
) -> None:
    requirements = ["tiny==1.0"]
    job = submit(requirements=requirements)
    needed = [
        aged(local_bundle.bundle_folder(job.snapshot_id), 90),
        aged(local_bundle.environment_folder(tuple(requirements)), 90),
    ]
    assert garbage_collection.prune(NOW, AGE) == 0
    Job.objects.update(state="SUCCEEDED")
    assert garbage_collection.prune(NOW, AGE) == 2
    assert not any(folder.exists() for folder in needed)


def test_using_a_bundle_keeps_it_for_as_long_again() -> None:
    folder = aged(local_bundle.bundle_folder("d" * 64), 15)
    assert local_bundle.write_bundle("d" * 64, {}) == folder
    assert garbage_collection.prune(NOW, AGE) == 0


def test_a_folder_used_at_the_last_moment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = aged(local_bundle.bundle_folder("d" * 64), 15)
    replace = Path.replace

    def used_meanwhile(source: Path, target: Path) -> Path:
        if source == folder:
            os.utime(source)
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", used_meanwhile)
    assert garbage_collection.prune(NOW, AGE) == 0
    assert (folder / "content").exists()


def test_a_removal_that_was_broken_off_is_finished() -> None:
    folder = aged(local_bundle.directories()[0] / ".going-d", 15)
    assert garbage_collection.prune(NOW, AGE) == 1
    assert not folder.exists()


def test_it_looks_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[datetime] = []
    monkeypatch.setattr(garbage_collection, "prune", lambda now, age: looks.append(now))
    due = garbage_collection.Pruning()
    for minutes in (0, 30, 59, 60, 61):
        due.when_due(NOW + timedelta(minutes=minutes))
    assert looks == [NOW, NOW + timedelta(hours=1)]


@pytest.mark.parametrize(
    ("state", "days", "stays"),
    [("RUNNING", None, True), ("FAILED", 6, True), ("CANCELLED", 8, False), ("SUCCEEDED", 0, False)],
)
def test_the_checkpoints_of_a_job_stay_while_it_can_be_run_again_from_there(
    backend: ObedientBackend, submit: Callable[..., Job], state: str, days: float | None, stays: bool
) -> None:
    job = submit()
    Job.objects.update(state=state, finished=None if days is None else NOW - timedelta(days=days))
    backend.kept = {str(job.pk)}
    assert garbage_collection.forget_jobs(NOW, timedelta(days=7)) == (not stays)
    assert backend.kept == ({str(job.pk)} if stays else set())


def test_the_checkpoints_of_a_job_that_is_no_more_go(backend: ObedientBackend) -> None:
    backend.kept = {"0" * 32}
    assert garbage_collection.forget_jobs(NOW, timedelta(days=7)) == 1


@pytest.mark.invariant("For a week after a restoration, checkpoints of jobs that the database does not know are kept.")
def test_after_a_restoration_checkpoints_of_unknown_jobs_stay_for_a_week(backend: ObedientBackend) -> None:
    at = restorations.record({}).at
    backend.kept = {"0" * 32}
    assert garbage_collection.forget_jobs(at + timedelta(days=6), timedelta(days=7)) == 0
    assert garbage_collection.forget_jobs(at + timedelta(days=8), timedelta(days=7)) == 1
