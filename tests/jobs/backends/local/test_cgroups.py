"""The local backend with cgroups: processes that no signal reaches, and that cannot be identified, are ended too."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.backends.base import LaunchFailed, LaunchPlan, Phase
from jobs.backends.local import cgroups
from jobs.backends.local.backend import FLUSH_TIMEOUT, LocalBackend
from jobs.backends.local.isolation import Policy
from runtime import contract
from runtime.contract import ReplicaState
from runtime.isolation import cgroup
from runtime.isolation.delegation import Home
from tests import cgroup_tree
from tests.contracts.backend_contract import GRACE, all_exited, all_running, make_plan, restart, wait_until
from tests.runtime.agent.ingest_server import IngestServer
from tests.waiting import until

pytestmark = [pytest.mark.processes, cgroup_tree.needed]

# Starts a process that ignores signals, in a session of its own and without the environment that identifies it.
LEAVES_A_DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.closerange(0, 64)
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"], {})
    os._exit(0)
time.sleep(300)
"""


@pytest.fixture
def home() -> Iterator[Home]:
    with cgroup_tree.delegated() as base:
        yield Home(base)


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "attempts"
    yield directory
    for path in directory.glob("*/*/state.json"):
        state = ReplicaState.load(path.parent)
        if state and contract.is_locked(path.parent):
            os.kill(state.pid, signal.SIGKILL)


@pytest.fixture
def portal() -> Iterator[IngestServer]:
    server = IngestServer()
    yield server
    server.close()


@pytest.fixture
def now() -> list[float]:
    return [1000.0]


@pytest.fixture
def backend(attempts: Path, home: Home, now: list[float]) -> LocalBackend:
    """A policy without namespaces, which would end all processes of a replica by themselves."""
    return LocalBackend(attempts, lambda: now[0], lambda: Policy(False, None, 0, cgroups=home))


@pytest.fixture
def plan(tmp_path: Path, portal: IngestServer) -> Callable[[str], LaunchPlan]:
    def make(script: str) -> LaunchPlan:
        bundle = tmp_path / "bundle"
        bundle.mkdir()
        (bundle / "train.py").write_text(script)
        whole = make_plan(bundle, {contract.INGEST_URL: portal.url})
        return replace(whole, replicas=whole.replicas[:1])

    return make


def state_of(attempts: Path) -> ReplicaState:
    state = ReplicaState.load(attempts / "attempt" / "trainer-0")
    assert state is not None
    return state


def left(home: Home) -> list[str]:
    return sorted(path.name for path in home.path.iterdir() if path.is_dir())


def with_daemon(backend: LocalBackend, plan: LaunchPlan, home: Home) -> list[int]:
    """Launch the attempt; return the processes in its cgroup, once they include the daemon."""
    backend.launch(plan)
    wait_until(backend, plan.ref, all_running)
    group = home.path / "attempt.trainer-0.1"
    until("the daemon runs", lambda: len(cgroup_tree.inside(group)) == 2 and any(map(bare, cgroup_tree.inside(group))))
    return cgroup_tree.inside(group)


def bare(pid: int) -> bool:
    """Whether the process has no environment."""
    with contextlib.suppress(OSError):
        return not Path(f"/proc/{pid}/environ").read_bytes() and os.getsid(pid) != os.getsid(0)
    return False


def runs(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())  # a zombie has no command line
    except OSError:
        return False


@pytest.mark.invariant(
    "With cgroups, every process that a replica started ends with the replica, even if its agent was killed."
)
def test_a_daemon_ends_although_its_agent_was_killed(
    backend: LocalBackend, plan: Callable, home: Home, attempts: Path
) -> None:
    attempt = plan(LEAVES_A_DAEMON)
    pids = with_daemon(backend, attempt, home)
    os.kill(state_of(attempts).pid, signal.SIGKILL)
    wait_until(backend, attempt.ref, lambda view: view.replicas[0].phase is Phase.LOST)
    assert not [pid for pid in pids if runs(pid)]
    assert left(home) == []


def test_a_daemon_ends_when_its_agent_does_not_answer_to_the_stop(
    backend: LocalBackend, plan: Callable, home: Home, attempts: Path, now: list[float]
) -> None:
    attempt = plan(LEAVES_A_DAEMON)
    pids = with_daemon(backend, attempt, home)
    os.kill(state_of(attempts).pid, signal.SIGSTOP)
    backend.stop(attempt.ref, GRACE)
    now[0] += (GRACE + FLUSH_TIMEOUT).total_seconds() + 1
    backend.stop(attempt.ref, GRACE)
    assert not [pid for pid in pids if runs(pid)]
    assert left(home) == []


@pytest.mark.invariant(
    "With cgroups, every process that a replica started ends with the replica, even if its agent was killed."
)
def test_a_daemon_ends_with_the_stop_of_its_job(backend: LocalBackend, plan: Callable, home: Home) -> None:
    attempt = plan(LEAVES_A_DAEMON)
    pids = with_daemon(backend, attempt, home)
    backend.stop(attempt.ref, timedelta(0))
    wait_until(backend, attempt.ref, all_exited)
    assert not [pid for pid in pids if runs(pid)]
    assert left(home) == []


def test_another_start_of_a_replica_has_a_cgroup_of_its_own(
    backend: LocalBackend, plan: Callable, home: Home, attempts: Path
) -> None:
    attempt = plan(LEAVES_A_DAEMON)
    pids = with_daemon(backend, attempt, home)
    os.kill(state_of(attempts).pid, signal.SIGKILL)
    restart(backend, attempt.ref, "trainer-0", 2)
    assert left(home) == ["attempt.trainer-0.2"]
    assert not [pid for pid in pids if runs(pid)]
    backend.stop(attempt.ref, timedelta(0))
    wait_until(backend, attempt.ref, all_exited)


def test_leftovers_of_an_earlier_start_are_removed_by_the_next(
    backend: LocalBackend, plan: Callable, home: Home, attempts: Path
) -> None:
    attempt = plan("")
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_exited)
    leave(home, attempts)
    restart(backend, attempt.ref, "trainer-0", 2)
    wait_until(backend, attempt.ref, all_exited)
    assert left(home) == []


def leave(home: Home, attempts: Path) -> None:
    """Simulate a kill of the agent between its last report and the end of the cgroup."""
    path = home.path / "attempt.trainer-0.1"
    path.mkdir(exist_ok=True)
    (attempts / "attempt" / "trainer-0" / cgroups.CGROUP_FILE).write_text(str(path))


def test_what_an_attempt_has_left_goes_when_it_is_removed(
    backend: LocalBackend, plan: Callable, home: Home, attempts: Path
) -> None:
    attempt = plan("")
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_exited)
    leave(home, attempts)
    backend.cleanup(attempt.ref)
    assert left(home) == []


def test_known_returns_the_cgroups_of_existing_attempts(
    backend: LocalBackend, plan: Callable, home: Home, attempts: Path
) -> None:
    attempt = plan(LEAVES_A_DAEMON)
    with_daemon(backend, attempt, home)
    assert cgroups.known(attempts) == {"attempt.trainer-0.1"}
    backend.stop(attempt.ref, timedelta(0))
    wait_until(backend, attempt.ref, all_exited)


def test_a_replica_whose_cgroup_cannot_be_made_is_not_started(
    attempts: Path, plan: Callable, portal: IngestServer
) -> None:
    backend = LocalBackend(attempts, policy=lambda: Policy(False, None, 0, cgroups=Home(attempts / "nowhere")))
    with pytest.raises(LaunchFailed) as failed:
        backend.launch(plan("print('ran')"))
    assert failed.value.retryable
    assert not (attempts / "attempt" / "trainer-0" / contract.STATE_FILE).exists()


def test_only_processes_that_run_user_code_get_limits_of_the_kernel(
    tmp_path: Path, plan: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {}
    monkeypatch.setattr(cgroup, "make", lambda path, *limits: made.update({path.name: limits}))
    trainer = replace(plan("").replicas[0], processes=40)
    server = replace(trainer, name="pserver-0", role="pserver")
    home = Home(tmp_path, frozenset({"memory", "pids"}))
    for one in (trainer, server):
        (tmp_path / "attempt" / one.name).mkdir(parents=True)
        cgroups.make(home, tmp_path / "attempt" / one.name, one, 1)
    assert made == {
        "attempt.trainer-0.1": (trainer.memory, 40, home.controllers),
        "attempt.pserver-0.1": (0, 0, home.controllers),
    }
