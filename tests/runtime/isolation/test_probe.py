"""What the machine that runs the tests provides: CI's provides all of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.isolation import launcher
from runtime.isolation.probe import Mode, probe

pytestmark = pytest.mark.processes
ATTEMPTS_UID = 2_000_000_123
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def private_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


def test_a_portal_whose_files_are_private_isolates_jobs(private_umask: None, tmp_path: Path) -> None:
    found = probe(ATTEMPTS_UID, [str(tmp_path)])
    assert (found.mode, found.missing) == (Mode.UID if os.geteuid() == 0 else Mode.USER, ())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives attempts a user id of their own")
def test_where_private_data_cannot_be_shown_to_another_user_jobs_keep_the_portals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "launcher.py"
    broken.write_text(
        Path(launcher.__file__)
        .read_text()
        .replace(
            "kernel.restrict_tree(descriptor, kernel.MOUNT_ATTR_IDMAP, userns)", 'raise OSError("no ID-mapped mounts")'
        )
        .replace("os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))", repr(str(ROOT)))
    )
    monkeypatch.setattr(launcher, "__file__", str(broken))
    (tmp_path / "data").mkdir()
    assert probe(ATTEMPTS_UID, [str(tmp_path / "data")]).mode is Mode.USER
