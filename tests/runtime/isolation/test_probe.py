"""Isolation of the machine that runs the tests: CI's machine provides all of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.isolation import launch, network
from runtime.isolation.probe import Mode, network_problem, probe
from runtime.messages import isolation as messages
from tests.messages import mentions

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
    shutil.copytree(ROOT / "runtime", tmp_path / "runtime", ignore=shutil.ignore_patterns("__pycache__"))
    broken = tmp_path / "runtime" / "isolation" / "launcher.py"
    mapped = "syscalls.restrict_tree(descriptor, syscalls.MOUNT_ATTR_IDMAP, userns)"
    text = broken.read_text()
    assert mapped in text
    broken.write_text(text.replace(mapped, 'raise OSError("no ID-mapped mounts")'))
    monkeypatch.setattr(launch, "ROOT", str(tmp_path))
    (tmp_path / "data").mkdir()
    assert probe(ATTEMPTS_UID, [str(tmp_path / "data")]).mode is Mode.USER


MODES = [Mode.UID, Mode.USER] if os.geteuid() == 0 else [Mode.USER]


@pytest.mark.parametrize("mode", MODES)
def test_an_attempt_can_have_a_network_of_its_own(private_umask: None, tmp_path: Path, mode: Mode) -> None:
    assert network_problem(mode, ATTEMPTS_UID, str(tmp_path)) == ""


@pytest.mark.parametrize("mode", MODES)
def test_a_network_that_cannot_be_made_is_a_problem_with_a_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: Mode
) -> None:
    shutil.copytree(ROOT / "runtime", tmp_path / "runtime", ignore=shutil.ignore_patterns("__pycache__"))
    broken = tmp_path / "runtime" / "isolation" / "network.py"
    call = "fcntl.ioctl(any_socket, _SET_FLAGS"
    assert call in broken.read_text()
    broken.write_text(broken.read_text().replace(call, 'raise OSError("no loopback device")\n        (any_socket'))
    monkeypatch.setattr(network, "_ROOT", str(tmp_path))
    problem = network_problem(mode, ATTEMPTS_UID, str(tmp_path))
    assert "no loopback device" in problem
    assert mentions(problem, messages.NETWORK_NAMESPACES_UNAVAILABLE)


@pytest.mark.parametrize("mode", MODES)
def test_a_command_that_stays_on_the_network_of_the_machine_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: Mode
) -> None:
    shutil.copytree(ROOT / "runtime", tmp_path / "runtime", ignore=shutil.ignore_patterns("__pycache__"))
    broken = tmp_path / "runtime" / "isolation" / "launcher.py"
    call = "        _join_network(order)\n"
    assert call in broken.read_text()
    broken.write_text(broken.read_text().replace(call, ""))
    monkeypatch.setattr(launch, "ROOT", str(tmp_path))
    assert mentions(network_problem(mode, ATTEMPTS_UID, str(tmp_path)), messages.NETWORK_NAMESPACES_UNAVAILABLE)
