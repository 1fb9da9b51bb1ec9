"""Contract of every backend."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.backends.base import (
    AttemptRef,
    AttemptView,
    ClusterBackend,
    ControlMissing,
    LaunchPlan,
    Phase,
    ReplicaPlan,
    ReplicaView,
)
from tests.runtime.agent.ingest_server import IngestServer
from tests.waiting import until

JOB = "0a1b2c3d-0000-4000-8000-000000000000"
# An attempt that was never launched, in a namespace in which none ever was.
NEVER = AttemptRef("job", "never", 1, "unused")
GRACE = timedelta(seconds=1)
NO_GRACE = timedelta(0)
# Time limit for starting or ending a replica, and for a call that returns immediately.
PATIENCE_SECONDS = 20.0
AT_ONCE_SECONDS = 0.5


class BackendContract:
    """Derive from it, and provide these fixtures.

    ``backend``; ``plan``, which returns a plan of two trainers that run a script; ``portal``, to which their agents
    report; and ``reopen``, which returns the same backend as seen by a portal that was just started.

    The scripts append a line to ``marker`` for every start, so that a second start is noticed.
    """

    ENDLESS = "mark(); import time; time.sleep(600)"
    IGNORES_SIGTERM = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); mark(); import time; time.sleep(600)"
    )
    SHORT = "mark()"
    FAILING = "mark(); raise SystemExit(3)"

    # --- Launching -------------------------------------------------------------------------------------------------
    def test_an_attempt_that_was_never_launched_is_gone(self, backend: ClusterBackend) -> None:
        assert backend.observe(NEVER) == AttemptView(gone=True)

    def test_every_replica_of_the_plan_runs_to_its_end(self, backend: ClusterBackend, plan: Any) -> None:
        attempt = plan(self.SHORT)
        backend.launch(attempt)
        view = wait_until(backend, attempt.ref, all_exited)
        assert [(one.name, one.code) for one in view.replicas] == [("trainer-0", 0), ("trainer-1", 0)]

    def test_a_launched_attempt_is_listed_until_it_is_removed(self, backend: ClusterBackend, plan: Any) -> None:
        attempt = plan(self.SHORT)
        backend.launch(attempt)
        assert attempt.ref in list(backend.attempts({attempt.namespace}))
        wait_until(backend, attempt.ref, all_exited)

        def removed() -> bool:
            backend.cleanup(attempt.ref)
            return backend.observe(attempt.ref).gone

        until("it is removed", removed)
        assert attempt.ref not in list(backend.attempts({attempt.namespace}))

    def test_a_second_launch_starts_nothing_again(self, backend: ClusterBackend, plan: Any, marker: Path) -> None:
        attempt = plan(self.SHORT)
        backend.launch(attempt)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, all_exited)
        backend.launch(attempt)
        assert sorted(marker.read_text().split()) == ["trainer-0", "trainer-1"]
        assert all_exited(backend.observe(attempt.ref))

    # --- Observing -------------------------------------------------------------------------------------------------
    def test_the_end_of_a_replica_is_reported(self, backend: ClusterBackend, plan: Any) -> None:
        attempt = plan(self.FAILING)
        backend.launch(attempt)
        view = wait_until(backend, attempt.ref, all_exited)
        assert [(one.code, one.why) for one in view.replicas] == [(3, "exited with code 3")] * 2

    def test_a_portal_that_starts_again_sees_the_same(
        self, backend: ClusterBackend, plan: Any, reopen: Callable[[], ClusterBackend]
    ) -> None:
        attempt = plan(self.ENDLESS)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, all_running)
        successor = reopen()
        assert all_running(successor.observe(attempt.ref))
        successor.stop(attempt.ref, GRACE)
        wait_until(successor, attempt.ref, all_exited)

    # --- Stopping --------------------------------------------------------------------------------------------------
    @pytest.mark.timed
    def test_stop_returns_at_once_and_ends_every_replica(
        self, backend: ClusterBackend, plan: Any, marker: Path
    ) -> None:
        attempt = plan(self.ENDLESS)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, lambda view: all_running(view) and len(started(marker)) == 2)
        began = time.monotonic()
        backend.stop(attempt.ref, timedelta(seconds=30))
        backend.stop(attempt.ref, timedelta(seconds=30))
        assert time.monotonic() - began < AT_ONCE_SECONDS
        view = wait_until(backend, attempt.ref, all_exited)
        assert {one.why for one in view.replicas} == {"was asked to stop"}

    def test_a_replica_that_ignores_sigterm_is_killed_after_the_grace(
        self, backend: ClusterBackend, plan: Any, marker: Path, portal: IngestServer
    ) -> None:
        """An agent's report of an end takes precedence over the observed end."""
        attempt = plan(self.IGNORES_SIGTERM)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, lambda view: all_running(view) and len(started(marker)) == 2)
        backend.stop(attempt.ref, timedelta(seconds=0.1))
        wait_until(backend, attempt.ref, all_exited)
        assert [one["signal"] for one in portal.reports if one["phase"] == "exited"] == [9, 9]

    def test_stopping_right_after_the_launch_leaves_nothing_running(self, backend: ClusterBackend, plan: Any) -> None:
        attempt = plan(self.ENDLESS)
        backend.launch(attempt)
        backend.stop(attempt.ref, NO_GRACE)
        wait_until(backend, attempt.ref, all_exited)

    def test_a_late_launch_does_not_start_a_stopped_attempt(
        self, backend: ClusterBackend, plan: Any, marker: Path
    ) -> None:
        attempt = plan(self.SHORT)
        backend.launch(replace(attempt, replicas=attempt.replicas[:1]))
        wait_until(backend, attempt.ref, all_exited)
        backend.stop(attempt.ref, NO_GRACE)
        backend.launch(attempt)
        assert marker.read_text().split() == ["trainer-0"]

    def test_stopping_a_missing_attempt_does_nothing(self, backend: ClusterBackend) -> None:
        backend.stop(NEVER, GRACE)

    def test_a_killed_replica_is_seen_with_its_signal(self, backend: ClusterBackend, plan: Any) -> None:
        attempt = plan(self.IGNORES_SIGTERM)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, all_running)
        backend.kill(attempt.ref, "trainer-1")
        view = wait_until(backend, attempt.ref, lambda view: len(_in(view, Phase.EXITED)) == 1)
        assert [(one.name, one.signal) for one in _in(view, Phase.EXITED)] == [("trainer-1", 9)]
        backend.kill(attempt.ref, "trainer-1")
        backend.stop(attempt.ref, NO_GRACE)
        wait_until(backend, attempt.ref, all_exited)

    def test_killing_a_missing_attempt_does_nothing(self, backend: ClusterBackend) -> None:
        backend.kill(NEVER, "trainer-0")

    # --- Control channel -------------------------------------------------------------------------------------------
    def test_a_running_replica_has_a_control_address_that_is_gone_with_it(
        self, backend: ClusterBackend, plan: Any, marker: Path
    ) -> None:
        attempt = replace(plan(self.ENDLESS), control_key="key")
        backend.launch(attempt)
        wait_until(backend, attempt.ref, lambda view: all_running(view) and len(started(marker)) == 2)
        names = [one.name for one in attempt.replicas]
        assert len({backend.control_address(attempt.ref, name) for name in names} - {None}) == len(names)
        backend.stop(attempt.ref, NO_GRACE)
        wait_until(backend, attempt.ref, all_exited)
        assert [backend.control_address(attempt.ref, name) for name in names] == [None, None]

    def test_an_agent_without_a_key_has_no_control_address(
        self, backend: ClusterBackend, plan: Any, marker: Path
    ) -> None:
        attempt = plan(self.ENDLESS)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, lambda view: all_running(view) and len(started(marker)) == 2)
        with pytest.raises(ControlMissing):
            backend.control_address(attempt.ref, "trainer-0")
        backend.stop(attempt.ref, NO_GRACE)
        wait_until(backend, attempt.ref, all_exited)

    def test_a_replica_that_never_was_has_no_control_address(self, backend: ClusterBackend) -> None:
        assert backend.control_address(NEVER, "trainer-0") is None

    # --- Scaling ---------------------------------------------------------------------------------------------------
    def test_scaling_adds_replicas_and_removes_the_highest(
        self, backend: ClusterBackend, plan: Any, reopen: Callable[[], ClusterBackend]
    ) -> None:
        attempt = plan(self.ENDLESS)
        backend.launch(attempt)
        reopen().scale(attempt.ref, "trainer", 3)
        wait_until(backend, attempt.ref, lambda view: len(view.replicas) == 3 and all_running(view))
        backend.scale(attempt.ref, "trainer", 1)
        view = wait_until(backend, attempt.ref, lambda view: len(_in(view, Phase.EXITED)) == 2)
        assert [one.name for one in _in(view, Phase.RUNNING)] == ["trainer-0"]
        backend.stop(attempt.ref, NO_GRACE)
        wait_until(backend, attempt.ref, all_exited)

    def test_an_ended_replica_starts_again_in_its_place(
        self, backend: ClusterBackend, plan: Any, marker: Path, reopen: Callable[[], ClusterBackend]
    ) -> None:
        attempt = plan(self.SHORT)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, all_exited)
        restart(backend, attempt.ref, "trainer-1", 2)
        view = wait_until(backend, attempt.ref, lambda view: all_exited(view) and view.replicas[1].start_number == 2)
        restart(reopen(), attempt.ref, "trainer-1", 2)
        backend.launch(attempt)
        assert [(one.start_number, one.code) for one in view.replicas] == [(1, 0), (2, 0)]
        assert sorted(marker.read_text().split()) == ["trainer-0", "trainer-1", "trainer-1"]

    def test_a_running_replica_is_not_started_again(self, backend: ClusterBackend, plan: Any, marker: Path) -> None:
        attempt = plan(self.ENDLESS)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, lambda view: all_running(view) and marker.exists())
        backend.restart(attempt.ref, "trainer-0", 2)
        assert [one.start_number for one in backend.observe(attempt.ref).replicas] == [1, 1]
        backend.stop(attempt.ref, NO_GRACE)
        wait_until(backend, attempt.ref, all_exited)
        backend.restart(attempt.ref, "trainer-0", 2)
        assert all_exited(backend.observe(attempt.ref)), "a stopped attempt stays stopped"

    def test_a_removed_replica_comes_back(self, backend: ClusterBackend, plan: Any) -> None:
        attempt = plan(self.ENDLESS)
        backend.launch(attempt)
        wait_until(backend, attempt.ref, all_running)
        backend.scale(attempt.ref, "trainer", 1)
        wait_until(backend, attempt.ref, lambda view: len(_in(view, Phase.EXITED)) == 1)
        backend.scale(attempt.ref, "trainer", 2)
        assert len(_in(backend.observe(attempt.ref), Phase.EXITED)) == 1
        restart(backend, attempt.ref, "trainer-1", 2)
        wait_until(backend, attempt.ref, all_running)
        backend.stop(attempt.ref, NO_GRACE)
        wait_until(backend, attempt.ref, all_exited)

    def test_scaling_a_missing_attempt_does_nothing(self, backend: ClusterBackend) -> None:
        backend.scale(NEVER, "trainer", 3)

    def test_restarting_a_replica_of_a_missing_attempt_does_nothing(self, backend: ClusterBackend) -> None:
        backend.restart(NEVER, "trainer-0", 2)

    # --- Cleaning up -----------------------------------------------------------------------------------------------
    def test_cleaning_up_a_missing_attempt_does_nothing(self, backend: ClusterBackend) -> None:
        backend.cleanup(NEVER)


def make_plan(bundle: Path, environment: dict[str, str], attempt_id: str = "attempt") -> LaunchPlan:
    """Return a plan of two trainers that run the bundle's ``train.py``."""
    replicas = tuple(
        ReplicaPlan(f"trainer-{index}", "trainer", index, (sys.executable, "train.py"), environment, 1, 512 * 2**20)
        for index in range(2)
    )
    return LaunchPlan(AttemptRef(JOB, attempt_id, 1, "team"), "team", bundle, replicas, GRACE, 2**20, "attempt-token")


def restart(backend: ClusterBackend, ref: AttemptRef, name: str, start_number: int) -> None:
    """Restart a replica, repeatedly: an ended start may hold its place for a moment."""

    def begun(view: AttemptView) -> bool:
        backend.restart(ref, name, start_number)
        return any((one.name, one.start_number) == (name, start_number) for one in view.replicas)

    wait_until(backend, ref, begun)


def started(marker: Path) -> list[str]:
    """Return the replica of every start so far."""
    return marker.read_text().split() if marker.exists() else []


def all_exited(view: AttemptView) -> bool:
    return bool(view.replicas) and len(_in(view, Phase.EXITED)) == len(view.replicas)


def all_running(view: AttemptView) -> bool:
    return bool(view.replicas) and len(_in(view, Phase.RUNNING)) == len(view.replicas)


def _in(view: AttemptView, phase: Phase) -> list[ReplicaView]:
    return [one for one in view.replicas if one.phase is phase]


def wait_until(backend: ClusterBackend, ref: AttemptRef, condition: Callable[[AttemptView], bool]) -> AttemptView:
    seen: list[AttemptView] = []

    def is_so() -> bool:
        seen.append(backend.observe(ref))
        return condition(seen[-1])

    until("it comes to that", is_so, PATIENCE_SECONDS, story=lambda: f"last seen: {seen[-1]}")
    return seen[-1]
