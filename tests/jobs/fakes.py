"""Fake backends for tests of the reconciler, named by how they fail. They run nothing and record their calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

from jobs.backends.base import (
    AttemptRef,
    AttemptView,
    ControlAddress,
    LaunchFailed,
    LaunchPlan,
    Machine,
    Phase,
    ReplicaView,
)


class ObedientBackend:
    """Backend that starts and stops replicas at once, on request. A test changes their phase by ``becomes``."""

    rehearses = True
    outlives_the_portal = False

    def __init__(self) -> None:
        self.plans: dict[str, LaunchPlan] = {}
        self.views: dict[str, dict[str, ReplicaView]] = {}
        self.calls: list[str] = []
        self.graces: list[timedelta] = []
        self.kept: set[str] = set()
        self.checkpoints: dict[str, int] = {}  # by job: the highest number of an attempt with checkpoints

    def launch(self, plan: LaunchPlan) -> None:
        self.calls.append("launch")
        if plan.ref.attempt_id not in self.plans:
            self.plans[plan.ref.attempt_id] = plan
            self.views[plan.ref.attempt_id] = {one.name: ReplicaView(one.name, Phase.STARTING) for one in plan.replicas}

    def observe(self, ref: AttemptRef) -> AttemptView:
        views = self.views.get(ref.attempt_id)
        return AttemptView(gone=True) if views is None else AttemptView(False, tuple(views.values()))

    def scale(self, ref: AttemptRef, role: str, replicas: int) -> None:
        self.calls.append(f"scale to {replicas}")
        views = self.views[ref.attempt_id]
        for index in range(replicas):
            views.setdefault(f"{role}-{index}", ReplicaView(f"{role}-{index}", Phase.STARTING))
        surplus = [name for name in views if name.startswith(role) and int(name.split("-")[1]) >= replicas]
        for name in surplus:
            if views[name].phase not in (Phase.EXITED, Phase.LOST):
                self.becomes(ref.attempt_id, name, Phase.EXITED, code=75, start_number=views[name].start_number)

    def restart(self, ref: AttemptRef, name: str, start_number: int) -> None:
        self.calls.append(f"restart {name} as {start_number}")
        self.becomes(ref.attempt_id, name, Phase.STARTING, start_number=start_number)

    def kill(self, ref: AttemptRef, name: str) -> None:
        self.calls.append(f"kill {name}")

    def control_address(self, ref: AttemptRef, name: str) -> ControlAddress | None:
        return None

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        self.calls.append("stop")
        self.graces.append(grace)
        for name, view in self.views.get(ref.attempt_id, {}).items():
            if view.phase not in (Phase.EXITED, Phase.LOST):
                self.becomes(ref.attempt_id, name, Phase.LOST)

    def cleanup(self, ref: AttemptRef) -> None:
        self.calls.append("cleanup")
        self.views.pop(ref.attempt_id, None)

    def attempts(self, namespaces: Collection[str]) -> Iterator[AttemptRef]:
        plans = (plan for attempt, plan in self.plans.items() if attempt in self.views)
        return (plan.ref for plan in plans if plan.namespace in namespaces)

    def last_checkpoint(self, job_id: str) -> int:
        return self.checkpoints.get(job_id, 0)

    def checkpoint_sizes(self) -> dict[str, int]:
        return dict.fromkeys(sorted(self.kept), 1000)

    def forget(self, job_id: str) -> None:
        self.kept.discard(job_id)

    def becomes(self, attempt_id: str, name: str, phase: Phase, **fields: object) -> None:
        self.views[attempt_id][name] = ReplicaView(name, phase, **fields)


class IndependentBackend(ObedientBackend):
    """Backend whose cluster replaces lost replicas by itself, within the starts granted in advance."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: dict[str, int] = {}

    def observe(self, ref: AttemptRef) -> AttemptView:
        seen = super().observe(ref)
        return replace(
            seen, replicas=tuple(replace(one, granted=self.limits.get(one.name, 0)) for one in seen.replicas)
        )

    def grant_starts(self, ref: AttemptRef, limits: Mapping[str, int]) -> None:
        self.calls.append(f"grant {dict(limits)}")
        self.limits.update(limits)


class MachineBackend(ObedientBackend):
    """Backend that reports its machine."""

    def __init__(self, cores: float = 8) -> None:
        super().__init__()
        self.cores = cores

    def machine(self) -> Machine:
        return Machine("this machine", self.cores, 64 * 1024**3)


class RefusingBackend(ObedientBackend):
    """Backend that cannot start anything."""

    def __init__(self, *, retryable: bool = False) -> None:
        super().__init__()
        self.retryable = retryable

    def launch(self, plan: LaunchPlan) -> None:
        self.calls.append("launch")
        raise LaunchFailed("This machine has no free capacity.", retryable=self.retryable)


class ForgetfulBackend(ObedientBackend):
    """Backend that has lost all replicas that it started, as after the loss of its machine."""

    def observe(self, ref: AttemptRef) -> AttemptView:
        return AttemptView(gone=True)


class StubbornBackend(ObedientBackend):
    """Backend with processes that cannot be stopped."""

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        self.calls.append("stop")
        self.graces.append(grace)


class BrokenBackend(ObedientBackend):
    """Backend that raises an unexpected error."""

    def observe(self, ref: AttemptRef) -> AttemptView:
        raise RuntimeError("the backend is broken")


class MeddlingBackend(ObedientBackend):
    """Backend that calls a function during a launch, to interleave another change."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self.meanwhile = meanwhile

    def launch(self, plan: LaunchPlan) -> None:
        super().launch(plan)
        self.meanwhile()
