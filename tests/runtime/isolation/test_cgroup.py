"""Cgroup of one replica: its end on the real kernel, its limits on files in place of the kernel's."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.isolation import cgroup
from tests import cgroup_tree
from tests.waiting import until

pytestmark = pytest.mark.processes

# Leaves 30 processes in sessions of their own, which ignore every signal that they can. None of them forks: without the
# guard that is tested here nothing would end them.
RUNS_AWAY = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
for step in range(30):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
time.sleep(60)
"""


@pytest.fixture
def base() -> Iterator[Path]:
    with cgroup_tree.delegated() as path:
        yield path


@contextlib.contextmanager
def running(path: Path, program: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program in the cgroup."""
    entrance = cgroup.entrance(path)
    try:
        process = subprocess.Popen([sys.executable, "-c", program], preexec_fn=lambda: cgroup.enter(entrance))
    finally:
        os.close(entrance)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@cgroup_tree.needed
def test_processes_that_left_every_group_and_session_end_with_their_cgroup(base: Path) -> None:
    path = base / "trainer"
    cgroup.make(path, 0, 0, ())
    with running(path, RUNS_AWAY) as leader:
        until("there are many", lambda: len(cgroup_tree.inside(path)) > 20)
        pids = cgroup_tree.inside(path)
        assert len({os.getsid(pid) for pid in pids if pid != leader.pid}) > 1
        cgroup.end(path)
        assert not path.exists()
        leader.wait(60)
    assert not [pid for pid in pids if runs(pid)]


def runs(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())  # a zombie has no command line
    except OSError:
        return False


@cgroup_tree.needed
def test_remains_of_an_interrupted_start_are_ended_before_another(base: Path) -> None:
    path = base / "trainer"
    cgroup.make(path, 0, 0, ())
    with running(path, "import time; time.sleep(300)") as left:
        until("it is inside", lambda: cgroup_tree.inside(path) == [left.pid])
        cgroup.make(path, 0, 0, ())
        assert left.wait(60) == -9
    assert cgroup_tree.inside(path) == []


@cgroup_tree.needed
def test_a_limit_that_the_kernel_does_not_take_leaves_no_cgroup(base: Path) -> None:
    (base / "with").mkdir()
    if not (base / "with" / "memory.max").exists():
        with pytest.raises(FileNotFoundError):
            cgroup.make(base / "trainer", 1, 0, {cgroup.MEMORY})
    else:
        with pytest.raises(OSError, match="Invalid argument"):
            cgroup.make(base / "trainer", -5, 0, {cgroup.MEMORY})
    assert not (base / "trainer").exists()


def test_a_cgroup_that_is_not_there_has_ended(tmp_path: Path) -> None:
    cgroup.end(tmp_path / "gone")


def test_the_end_of_a_cgroup_that_cannot_be_removed_is_an_error(tmp_path: Path) -> None:
    """With a directory in place of the cgroup: the kernel accepts the kill, and the directory stays."""
    (tmp_path / "cgroup.kill").touch()
    with pytest.raises(OSError, match="not empty"):
        cgroup.end(tmp_path)
    assert (tmp_path / "cgroup.kill").read_text() == "1"


FILES = ("memory.max", "memory.oom.group", "memory.swap.max", "pids.max")


class FilesForCgroupfs:
    """Replacement of cgroupfs: every new directory has the kernel's files, which accept writes."""

    def __init__(self, files: tuple[str, ...], patch: pytest.MonkeyPatch) -> None:
        mkdir = Path.mkdir

        def with_files(path: Path) -> None:
            mkdir(path)
            for name in files:
                (path / name).touch()

        patch.setattr(Path, "mkdir", with_files)

    def written(self, path: Path) -> dict[str, str]:
        return {file.name: text for file in path.iterdir() if (text := file.read_text())}


def test_a_replica_gets_the_limits_of_the_controllers_that_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = FilesForCgroupfs(FILES, monkeypatch)
    made = {}
    for name, controllers in (("both", {"memory", "pids"}), ("memory", {"memory"}), ("none", set[str]())):
        cgroup.make(tmp_path / name, 512, 40, controllers)
        made[name] = kernel.written(tmp_path / name)
    memory = {"memory.max": "512", "memory.oom.group": "1", "memory.swap.max": "0"}
    assert made == {"both": {**memory, "pids.max": "80"}, "memory": memory, "none": {}}


def test_without_a_limit_of_the_replica_none_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = FilesForCgroupfs(FILES, monkeypatch)
    cgroup.make(tmp_path / "trainer", 0, 0, {"memory", "pids"})
    assert kernel.written(tmp_path / "trainer") == {}


def test_a_kernel_that_does_not_count_swap_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = FilesForCgroupfs(("memory.max", "memory.oom.group"), monkeypatch)
    cgroup.make(tmp_path / "trainer", 512, 0, {"memory"})
    assert kernel.written(tmp_path / "trainer") == {"memory.max": "512", "memory.oom.group": "1"}


@pytest.mark.parametrize(
    ("events", "killed"),
    [
        ("low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 1\n", True),
        ("low 0\nhigh 0\nmax 12\noom 1\noom_kill 0\n", False),
        (None, False),
    ],
)
def test_the_kernel_reports_whether_it_has_killed_for_memory(tmp_path: Path, events: str | None, killed: bool) -> None:
    if events is not None:
        (tmp_path / "memory.events").write_text(events)
    assert cgroup.killed_for_memory(tmp_path) is killed
