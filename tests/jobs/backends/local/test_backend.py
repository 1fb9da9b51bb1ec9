"""The local backend: the contract of all backends, and its own tests."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.backends.base import LaunchFailed, LaunchPlan, Phase, ReplicaPlan
from jobs.backends.local import gpus
from jobs.backends.local.backend import FLUSH_TIMEOUT, LocalBackend
from jobs.messages import cluster as messages
from runtime import contract
from runtime.contract import ReplicaState
from tests.contracts.backend_contract import (
    GRACE,
    NO_GRACE,
    BackendContract,
    all_exited,
    all_running,
    make_plan,
    restart,
    wait_until,
)
from tests.runtime.agent.ingest_server import IngestServer
from tests.waiting import until

pytestmark = pytest.mark.processes

MARK = """
import os
def mark():
    with open({marker!r}, "a") as file:
        file.write(os.environ[{replica!r}] + "\\n")
"""


PRINTS_SECRET = f"""
from pathlib import Path
Path("said").write_text(os.environ[{contract.WIRE_SECRET!r}])
"""


@pytest.fixture
def portal() -> Iterator[IngestServer]:
    server = IngestServer()
    yield server
    server.close()


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "attempts"
    for state in (tmp_path / "attempts").glob("*/*/state.json"):
        known = ReplicaState.load(state.parent)
        if known and contract.is_locked(state.parent):
            os.kill(known.pid, signal.SIGKILL)


@pytest.fixture
def backend(attempts: Path) -> LocalBackend:
    return LocalBackend(attempts)


@pytest.fixture
def reopen(attempts: Path) -> Callable[[], LocalBackend]:
    return lambda: LocalBackend(attempts)


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "marker"


@pytest.fixture
def plan(tmp_path: Path, portal: IngestServer, marker: Path) -> Callable[[str], LaunchPlan]:
    def make(script: str) -> LaunchPlan:
        bundle = tmp_path / "bundle"
        bundle.mkdir()
        (bundle / "train.py").write_text(MARK.format(marker=str(marker), replica=contract.REPLICA) + script)
        # The marker is outside the directories that a sandboxed trainer may write.
        return make_plan(bundle, {contract.INGEST_URL: portal.url, contract.SANDBOX: "none"})

    return make


class TestLocalBackend(BackendContract):
    """The contract of all backends, of which one test is timed."""


def directory(attempts: Path, name: str = "trainer-0") -> Path:
    return attempts / "attempt" / name


def test_a_killed_agent_is_observed_as_lost(backend: LocalBackend, plan: Callable, attempts: Path) -> None:
    attempt = plan(BackendContract.ENDLESS)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_running)
    state = ReplicaState.load(directory(attempts))
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)
    view = wait_until(backend, attempt.ref, lambda view: view.replicas[0].phase is Phase.LOST)
    assert view.replicas[0].why == messages.AGENT_GONE()
    backend.stop(attempt.ref, NO_GRACE)


def kill_agent(attempts: Path) -> None:
    state = ReplicaState.load(directory(attempts))
    assert state is not None
    os.kill(state.pid, signal.SIGKILL)


def launch_unsent(
    backend: LocalBackend, attempt: LaunchPlan, attempts: Path, portal: IngestServer, last_line: str
) -> LaunchPlan:
    """Launch the first replica, and wait until its line is in the spool of the agent, which reaches no portal."""
    attempt = replace(attempt, replicas=attempt.replicas[:1])
    portal.fail = 1_000_000
    backend.launch(attempt)
    spool = directory(attempts) / "logs.spool"
    wait_until(backend, attempt.ref, lambda view: spool.exists() and last_line in spool.read_text())
    return attempt


@pytest.mark.invariant("The log spool of a killed agent is delivered, and each line once.")
def test_the_spool_of_a_killed_agent_is_delivered_once(
    backend: LocalBackend, plan: Callable, attempts: Path, portal: IngestServer
) -> None:
    endless = plan("for n in range(500): print('line', n, flush=True)\nimport time; time.sleep(600)")
    attempt = launch_unsent(backend, endless, attempts, portal, "line 499")
    kill_agent(attempts)
    portal.fail = 0
    view = wait_until(backend, attempt.ref, lambda view: view.replicas[0].phase is Phase.LOST)
    assert portal.texts("stdout") == [f"line {number}" for number in range(500)]
    assert ["killed" in text for text in portal.texts("agent")] == [True]
    assert view.replicas[0].why == messages.AGENT_GONE()
    state = ReplicaState.load(directory(attempts))
    assert state is not None
    assert (state.handed_over, state.delivered) == (True, True)


@pytest.mark.parametrize(("gpu", "visible"), [(1, "'4'"), (2, "'4,7'"), (0, "''")])
def test_a_process_is_limited_to_the_gpus_of_its_replica(
    plan: Callable, attempts: Path, portal: IngestServer, gpu: int, visible: str
) -> None:
    backend = LocalBackend(attempts, present_gpus=lambda: [4, 7])
    attempt = plan("print(repr(os.environ['CUDA_VISIBLE_DEVICES']))")
    attempt = replace(attempt, replicas=(replace(attempt.replicas[0], gpu=gpu),))
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_exited)
    assert portal.texts("stdout") == [visible]


def with_gpu(attempt: LaunchPlan, other: str | None = None) -> LaunchPlan:
    """Return the plan with one trainer that requests a GPU; as another attempt if it gets a name."""
    ref = replace(attempt.ref, attempt_id=other) if other else attempt.ref
    return replace(attempt, ref=ref, replicas=(replace(attempt.replicas[0], gpu=1),))


def test_a_replica_whose_gpu_another_attempt_got_is_restarted_with_a_free_one(plan: Callable, attempts: Path) -> None:
    backend = LocalBackend(attempts, present_gpus=lambda: [4, 7])
    attempt = with_gpu(plan(""))
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_exited)
    backend.scale(attempt.ref, contract.TRAINER, 0)
    until("the agent has ended", lambda: not contract.is_locked(directory(attempts)))
    backend.launch(with_gpu(attempt, "other"))
    backend.restart(attempt.ref, "trainer-0", 2)
    wait_until(backend, attempt.ref, lambda view: view.replicas[0].start_number == 2 and all_exited(view))
    assert [gpus.of(attempts / name) for name in ("attempt", "other")] == [{"trainer-0": [7]}, {"trainer-0": [4]}]


def test_a_trainer_for_which_no_gpu_is_free_is_added_once_one_is(plan: Callable, attempts: Path) -> None:
    present = [0]
    backend = LocalBackend(attempts, present_gpus=lambda: present)
    attempt = with_gpu(plan(BackendContract.ENDLESS))
    backend.launch(attempt)
    with pytest.raises(LaunchFailed):
        backend.scale(attempt.ref, contract.TRAINER, 2)
    assert [one.name for one in backend.observe(attempt.ref).replicas] == ["trainer-0"]
    present.append(1)
    backend.scale(attempt.ref, contract.TRAINER, 2)
    view = wait_until(backend, attempt.ref, all_running)
    backend.stop(attempt.ref, NO_GRACE)
    assert [one.name for one in view.replicas] == ["trainer-0", "trainer-1"]


def test_an_attempt_whose_launch_failed_ends_when_it_is_stopped(plan: Callable, attempts: Path) -> None:
    backend = LocalBackend(attempts, present_gpus=list)
    attempt = plan("")
    attempt = replace(attempt, replicas=(replace(attempt.replicas[0], gpu=1),))
    with pytest.raises(LaunchFailed):
        backend.launch(attempt)
    assert [one.phase for one in backend.observe(attempt.ref).replicas] == [Phase.STARTING]
    backend.stop(attempt.ref, GRACE)
    (view,) = backend.observe(attempt.ref).replicas
    assert (view.phase, view.why) == (Phase.LOST, messages.NEVER_STARTED())
    backend.cleanup(attempt.ref)
    assert backend.observe(attempt.ref).gone


class AgentsEndDuringObservation(LocalBackend):
    """Kills the agent of ``victim`` while it observes: after it has decided whether to start a second agent."""

    victim: ReplicaState | None = None

    def _redeliver(self, attempt: Path, plan: LaunchPlan, replica: ReplicaPlan) -> bool:
        handed_over = super()._redeliver(attempt, plan, replica)
        if self.victim is not None:
            os.kill(self.victim.pid, signal.SIGKILL)
            until("the agent is gone", lambda: not contract.is_locked(attempt / replica.name))
            self.victim = None
        return handed_over


def test_a_replica_counts_as_lost_only_after_its_spool_was_handed_over(
    plan: Callable, attempts: Path, portal: IngestServer
) -> None:
    backend = AgentsEndDuringObservation(attempts)
    endless = plan("print('said', flush=True)\nimport time; time.sleep(600)")
    attempt = launch_unsent(backend, endless, attempts, portal, "said")
    portal.fail = 0
    backend.victim = ReplicaState.load(directory(attempts))
    wait_until(backend, attempt.ref, lambda view: view.replicas[0].phase is Phase.LOST)
    assert portal.texts("stdout") == ["said"]


def test_what_an_agent_gave_up_to_deliver_is_delivered_with_its_last_report(
    backend: LocalBackend, plan: Callable, attempts: Path, portal: IngestServer
) -> None:
    endless = plan("print('said', flush=True)\nimport time; time.sleep(600)")
    attempt = launch_unsent(backend, endless, attempts, portal, "said")
    backend.stop(attempt.ref, NO_GRACE)
    until("the agent has ended", lambda: not contract.is_locked(directory(attempts)))
    portal.fail = 0
    wait_until(backend, attempt.ref, lambda view: view.replicas[0].phase is Phase.EXITED)
    assert portal.texts("stdout") == ["said"]
    assert portal.last_report()["why"] in (messages.STOPPED(), "did not stop when it was asked to, and was killed")


def test_what_a_killed_agent_left_running_is_ended(
    backend: LocalBackend, plan: Callable, attempts: Path, marker: Path
) -> None:
    script = (
        "import time\nif os.fork() == 0:\n    os.setsid()\n    open({!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)"
    )
    daemon = marker.with_name("daemon")
    attempt = plan(script.format(str(daemon)))
    attempt = replace(attempt, replicas=attempt.replicas[:1])
    backend.launch(attempt)
    wait_until(backend, attempt.ref, lambda view: daemon.exists() and daemon.read_text() != "")
    kill_agent(attempts)
    wait_until(backend, attempt.ref, lambda view: view.replicas[0].phase is Phase.LOST)
    assert not runs(int(daemon.read_text()))


def runs(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())  # a zombie has no command line
    except OSError:
        return False


def test_a_second_request_to_stop_may_shorten_the_grace(backend: LocalBackend, plan: Callable, marker: Path) -> None:
    attempt = plan(BackendContract.IGNORES_SIGTERM)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, lambda view: marker.exists() and len(marker.read_text().split()) == 2)
    backend.stop(attempt.ref, timedelta(minutes=10))
    backend.stop(attempt.ref, NO_GRACE)
    view = wait_until(backend, attempt.ref, all_exited)
    assert [one.signal for one in view.replicas] == [9, 9]


def test_an_agent_that_cannot_start_is_observed_with_its_error(
    backend: LocalBackend, plan: Callable, attempts: Path
) -> None:
    attempt = plan(BackendContract.SHORT)
    broken = replace(attempt.replicas[0], environment={**attempt.replicas[0].environment, contract.SEED: "many"})
    backend.launch(replace(attempt, replicas=(broken,)))
    view = wait_until(backend, attempt.ref, lambda view: view.replicas[0].phase is Phase.LOST)
    assert view.replicas[0].why.startswith("its agent did not start: A variable of the contract could not be read")


def test_an_agent_that_does_not_answer_is_killed_with_all_its_processes(
    plan: Callable, attempts: Path, portal: IngestServer
) -> None:
    now = [1000.0]
    backend = LocalBackend(attempts, clock=lambda: now[0])
    attempt = plan("import os; print(os.getpid(), flush=True); " + BackendContract.ENDLESS)
    attempt = replace(attempt, replicas=attempt.replicas[:1])
    backend.launch(attempt)
    portal.wait_until(lambda: bool(portal.texts("stdout")))
    state = ReplicaState.load(directory(attempts))
    assert state is not None
    os.kill(state.pid, signal.SIGSTOP)
    backend.stop(attempt.ref, GRACE)
    now[0] += (GRACE + FLUSH_TIMEOUT).total_seconds() + 1
    backend.stop(attempt.ref, GRACE)
    wait_until(backend, attempt.ref, lambda view: view.replicas[0].phase is Phase.LOST)
    process = Path(f"/proc/{portal.texts('stdout')[0]}")
    until("its process is gone", lambda: not process.exists(), 5)


def test_launches_of_one_attempt_by_several_threads_are_one(
    attempts: Path, plan: Callable, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, attempt, together = LocalBackend(attempts), plan(BackendContract.SHORT), threading.Barrier(8)
    exists = Path.exists

    def at_once(path: Path) -> bool:
        there = exists(path)
        if path.name == "plan.json" and not together.broken:
            with contextlib.suppress(threading.BrokenBarrierError):
                together.wait(5)
                together.abort()
        return there

    monkeypatch.setattr(Path, "exists", at_once)
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(backend.launch, attempt) for _ in range(8)]:
            done.result()
    wait_until(backend, attempt.ref, all_exited)
    assert sorted(marker.read_text().split()) == ["trainer-0", "trainer-1"]


def test_the_token_is_in_no_plan_and_readable_to_nobody_else(
    backend: LocalBackend, plan: Callable, attempts: Path
) -> None:
    attempt = plan(BackendContract.SHORT)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_exited)
    stored = attempts / "attempt"
    assert attempt.ingest_token not in (stored / "plan.json").read_text()
    assert {stat.S_IMODE((stored / name).stat().st_mode) for name in ("plan.json", "token")} == {0o600}


def test_of_two_launches_the_first_decides_on_the_secret_of_the_wire(
    backend: LocalBackend, plan: Callable, attempts: Path, reopen: Callable[[], LocalBackend]
) -> None:
    attempt = replace(plan(PRINTS_SECRET), wire_secret="wired")
    backend.launch(attempt)
    (attempts / "attempt" / "plan.json").unlink()  # as if the portal was killed before it wrote the file
    reopen().launch(replace(attempt, wire_secret="second"))
    wait_until(backend, attempt.ref, all_exited)
    stored = attempts / "attempt"
    assert {(stored / one.name / "work" / "said").read_text() for one in attempt.replicas} == {"wired"}
    assert "wired" not in (stored / "plan.json").read_text()
    assert stat.S_IMODE((stored / "wire-secret").stat().st_mode) == 0o600


def test_another_start_of_a_replica_has_the_secret_of_the_first(
    backend: LocalBackend, plan: Callable, attempts: Path, reopen: Callable[[], LocalBackend]
) -> None:
    attempt = replace(plan(PRINTS_SECRET), wire_secret="wired")
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_exited)
    restart(reopen(), attempt.ref, "trainer-0", 2)
    wait_until(backend, attempt.ref, all_exited)
    assert (directory(attempts) / "work" / "said").read_text() == "wired"


def test_a_replica_gets_a_private_copy_of_the_code_and_platform_roles_get_none(
    backend: LocalBackend, plan: Callable, attempts: Path
) -> None:
    attempt = plan(BackendContract.SHORT)
    master = replace(attempt.replicas[0], name="master-0", role="master", command=("/bin/ls",))
    backend.launch(replace(attempt, replicas=(attempt.replicas[0], master)))
    wait_until(backend, attempt.ref, all_exited)
    assert [path.name for path in (directory(attempts) / "work").iterdir()] == ["train.py"]
    assert list((directory(attempts, "master-0") / "work").iterdir()) == []


def test_only_the_platforms_roles_get_the_checkpoint_directory(
    backend: LocalBackend, plan: Callable, attempts: Path
) -> None:
    attempt = plan("")
    program = (
        sys.executable,
        "-c",
        f"import os; open('reported', 'w').write(os.environ.get({contract.CHECKPOINT_DIR!r}, ''))",
    )
    plans = [
        replace(attempt.replicas[0], name=f"{role}-0", role=role, command=program) for role in ("trainer", "pserver")
    ]
    backend.launch(replace(attempt, replicas=tuple(plans)))
    wait_until(backend, attempt.ref, all_exited)
    directories = {one.name: (directory(attempts, one.name) / "work" / "reported").read_text() for one in plans}
    assert directories == {"trainer-0": "", "pserver-0": str(attempts / "checkpoints" / attempt.ref.job_id)}


def test_checkpoints_outlive_the_attempts_until_the_job_is_forgotten(
    backend: LocalBackend, plan: Callable, attempts: Path
) -> None:
    attempt = plan(BackendContract.SHORT)
    stored = attempts / "checkpoints" / attempt.ref.job_id
    stored.mkdir(parents=True)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_exited)
    backend.cleanup(attempt.ref)
    assert list(backend.checkpoint_sizes()) == [attempt.ref.job_id]
    for _ in range(2):
        backend.forget(attempt.ref.job_id)
    assert list(backend.checkpoint_sizes()) == []


def test_replicas_can_import_the_runtime_and_nothing_else_of_the_project(
    backend: LocalBackend, plan: Callable, portal: IngestServer
) -> None:
    attempt = plan(
        "import importlib.util\n"
        "for name in ('runtime', 'jobs', 'portal'): print(name, importlib.util.find_spec(name) is not None)"
    )
    backend.launch(replace(attempt, replicas=attempt.replicas[:1]))
    wait_until(backend, attempt.ref, all_exited)
    assert portal.texts("stdout") == ["runtime True", "jobs False", "portal False"]


def test_after_cleaning_up_the_attempt_is_gone(backend: LocalBackend, plan: Callable, attempts: Path) -> None:
    attempt = plan(BackendContract.ENDLESS)
    backend.launch(attempt)
    backend.cleanup(attempt.ref)
    assert not backend.observe(attempt.ref).gone
    backend.stop(attempt.ref, timedelta(0))
    wait_until(backend, attempt.ref, all_exited)
    backend.cleanup(attempt.ref)
    assert backend.observe(attempt.ref).gone
    assert not (attempts / "attempt").exists()


def test_the_first_request_to_stop_is_kept(backend: LocalBackend, plan: Callable, attempts: Path) -> None:
    attempt = plan(BackendContract.SHORT)
    backend.launch(attempt)
    backend.stop(attempt.ref, timedelta(seconds=3))
    backend.stop(attempt.ref, timedelta(seconds=9))
    assert json.loads((directory(attempts) / contract.STOP_FILE).read_text())["grace"] == 3
    wait_until(backend, attempt.ref, all_exited)


# --- Full disk -------------------------------------------------------------------------------------------------------
@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """After the call this process can write no files."""

    def fill() -> None:
        def refuse(path: Path, *arguments: object, **options: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        monkeypatch.setattr(Path, "write_text", refuse)

    return fill


def test_on_a_full_disk_an_attempt_without_its_agent_is_observed(
    backend: LocalBackend, plan: Callable, attempts: Path, full_disk: Callable[[], None]
) -> None:
    attempt = plan(BackendContract.ENDLESS)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_running)
    kill_agent(attempts)
    full_disk()
    view = wait_until(backend, attempt.ref, lambda view: view.replicas[0].phase is Phase.LOST)
    assert view.replicas[1].phase is Phase.RUNNING
    backend.stop(attempt.ref, NO_GRACE)


@pytest.mark.invariant("An attempt can be stopped while the disk is full.")
def test_on_a_full_disk_an_attempt_can_be_stopped_and_leaves_no_drafts(
    attempts: Path, plan: Callable, full_disk: Callable[[], None]
) -> None:
    now = [1000.0]
    backend = LocalBackend(attempts, lambda: now[0])
    attempt = plan("import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nmark()\ntime.sleep(60)")
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_running)
    full_disk()
    backend.stop(attempt.ref, NO_GRACE)
    now[0] += (FLUSH_TIMEOUT + NO_GRACE).total_seconds() + 1
    backend.stop(attempt.ref, NO_GRACE)
    wait_until(backend, attempt.ref, lambda view: not any(one.phase is Phase.RUNNING for one in view.replicas))
    assert [path.name for path in attempts.rglob(".stop.json.*")] == []


def test_agents_have_sessions_of_their_own_and_no_token_in_their_environment(
    backend: LocalBackend, plan: Callable, attempts: Path
) -> None:
    attempt = plan(BackendContract.ENDLESS)
    backend.launch(attempt)
    wait_until(backend, attempt.ref, all_running)
    states = [ReplicaState.load(directory(attempts, f"trainer-{index}")) for index in range(2)]
    agents = [state.pid for state in states if state is not None]
    assert [os.getsid(pid) for pid in agents] == agents
    assert len(set(agents)) == 2
    for index, pid in enumerate(agents):
        assert b"attempt-token" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert Path(f"/proc/{pid}/cwd").readlink() == directory(attempts, f"trainer-{index}")
        held = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
        assert [path for path in held if path.endswith(contract.LOCK_FILE)] == [
            str(directory(attempts, f"trainer-{index}") / contract.LOCK_FILE)
        ]
    backend.stop(attempt.ref, NO_GRACE)
