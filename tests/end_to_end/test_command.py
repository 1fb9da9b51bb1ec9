"""The command line against a real portal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.support import code
from tests.end_to_end.support.portal import ADMIN, PASSWORD, ROOT, RunningPortal

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def regatta(running_portal: RunningPortal, tmp_path: Path) -> Run:
    """The command of a signed-in user."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "client")}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "regatta", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    signed_in = run("login", "--server", running_portal.address, "-u", ADMIN, "--password", PASSWORD)
    assert signed_in.returncode == 0, signed_in.stderr
    return run


def test_an_example_is_trained_followed_and_fetched(regatta: Run, tmp_path: Path) -> None:
    submitted = regatta("submit", "--example", "fit-a-line", "--trainers", "2", "-d")
    job_id = submitted.stdout.strip()
    followed = regatta("logs", "-f", job_id)
    assert (followed.returncode, regatta("wait", job_id).returncode) == (0, 0), followed.stderr
    assert "trainer-1" in followed.stdout
    assert job_id in regatta("jobs").stdout
    assert "SUCCEEDED" in regatta("get", job_id).stdout
    assert regatta("artifacts", job_id, "--all", "--to", str(tmp_path)).returncode == 0
    (model,) = tmp_path.glob("*.npz")
    assert np.load(model).files


def test_a_job_of_a_file_fails_with_100(regatta: Run, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(code.RAISES)
    (tmp_path / "job.yaml").write_text("name: from-a-file\nentrypoint: train.py\n")
    followed = regatta("submit", "job.yaml")
    assert followed.returncode == 100, followed.stderr
    assert "KeyError" in followed.stdout


def test_an_unknown_job_is_4(regatta: Run) -> None:
    assert regatta("get", "00000000-0000-4000-8000-000000000000").returncode == 4


def test_a_folder_goes_up_and_comes_back_bit_for_bit(regatta: Run, tmp_path: Path) -> None:
    directory = tmp_path / "pictures"
    for name, content in {"a.bin": b"a" * 10, "empty": b"", "deep/数据.bin": bytes(range(256)) * 4096 * 9}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    sent = regatta("data", "upload", "mine", "pictures")
    assert (sent.returncode, sent.stdout) == (0, f"{ADMIN}/mine@1\n"), sent.stderr
    assert regatta("data", "download", "mine", "copy").returncode == 0
    whole = {file.relative_to(directory): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    assert {path: (tmp_path / "copy" / path).read_bytes() for path in whole} == whole
    assert regatta("data", "ls", "mine", "-o", "name").stdout == "1\n"
    assert regatta("data", "rm", "mine", "-y").returncode == 0
