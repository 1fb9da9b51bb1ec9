"""Worker and sweep in an image without the system's time zones, as small base images are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[3]
HINT = f"from jobs.tasks import reconcile_job; reconcile_job.apply_async(('{uuid.uuid4()}',))"
SECONDS = 60.0


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a portal that finds no time zones outside of its packages."""
    own = {"DJANGO_SETTINGS_MODULE": "portal.settings", "REGATTA_DATA_DIR": str(tmp_path), "PYTHONTZPATH": ""}
    environment = {**os.environ, **own}
    done = subprocess.run(manage("migrate", "-v0"), cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return environment


def manage(*arguments: str) -> list[str]:
    return [sys.executable, "manage.py", *arguments]


@contextmanager
def started(environment: dict[str, str], output: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as file:
        process = subprocess.Popen(manage(*arguments), cwd=ROOT, env=environment, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_the_worker_takes_hints(environment: dict[str, str], tmp_path: Path) -> None:
    subprocess.run(manage("shell", "-c", HINT), cwd=ROOT, env=environment, check=True, capture_output=True)
    messages, output = tmp_path / "broker" / "messages", tmp_path / "work.log"
    assert list(messages.iterdir())
    with started(environment, output, "work") as worker:
        until(
            "the worker takes the hint",
            lambda: worker.poll() is not None or not list(messages.glob("*.celery.msg")),
            SECONDS,
            story=output.read_text,
        )
        assert worker.poll() is None, output.read_text()


def test_the_sweep_runs_until_it_is_asked_to_end(environment: dict[str, str], tmp_path: Path) -> None:
    output = tmp_path / "sweep.log"
    with started(environment, output, "sweep") as sweep:
        until(
            "the sweep waits for its end",
            lambda: sweep.poll() is not None or catches(sweep.pid, signal.SIGTERM),
            SECONDS,
            story=output.read_text,
        )
        sweep.terminate()
        assert (sweep.wait(SECONDS), output.read_text()) == (0, "")


def catches(process: int, number: signal.Signals) -> bool:
    """Return whether the process has a handler of the signal."""
    status = Path(f"/proc/{process}/status").read_text()
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")]
    return bool(int(mask, 16) >> (number - 1) & 1)
