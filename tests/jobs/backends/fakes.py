"""Backends without processes, named by how they fail. Each keeps what it was asked, so that a test can look."""

from __future__ import annotations

from datetime import timedelta

from jobs.backends.base import AttemptRef, AttemptView, LaunchFailed, LaunchPlan, Phase, ReplicaView


class WillingBackend:
    """Does what it is asked at once. Replicas run until ``set`` says otherwise or they are stopped."""

    rehearses = True

    def __init__(self) -> None:
        self.launched: list[LaunchPlan] = []
        self.stopped: list[tuple[AttemptRef, timedelta]] = []
        self.scaled: list[tuple[AttemptRef, str, int]] = []
        self._views: dict[str, dict[str, ReplicaView]] = {}

    def launch(self, plan: LaunchPlan) -> None:
        self.launched.append(plan)
        views = self._views.setdefault(plan.ref.attempt_id, {})
        for replica in plan.replicas:
            views.setdefault(replica.name, ReplicaView(replica.name, self.first_phase()))

    def observe(self, ref: AttemptRef) -> AttemptView:
        views = self._views.get(ref.attempt_id)
        return AttemptView(gone=True) if views is None else AttemptView(gone=False, replicas=tuple(views.values()))

    def scale(self, ref: AttemptRef, role: str, replicas: int) -> None:
        self.scaled.append((ref, role, replicas))

    def restart(self, ref: AttemptRef, name: str, life: int) -> None:
        self.set(ref, ReplicaView(name, self.first_phase(), life=life))

    def kill(self, ref: AttemptRef, name: str) -> None:
        self.set(ref, ReplicaView(name, Phase.EXITED, signal=9))

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        self.stopped.append((ref, grace))
        for name, view in self._views.get(ref.attempt_id, {}).items():
            if view.phase in (Phase.STARTING, Phase.RUNNING):
                self.set(ref, ReplicaView(name, Phase.EXITED, signal=15, why="was asked to stop"))

    def set(self, ref: AttemptRef, view: ReplicaView) -> None:
        """What will be seen of one replica from now on."""
        self._views[ref.attempt_id][view.name] = view

    def set_all(self, ref: AttemptRef, phase: Phase, code: int | None = None, why: str = "") -> None:
        """What will be seen of every replica from now on."""
        for name in self._views[ref.attempt_id]:
            self.set(ref, ReplicaView(name, phase, code=code, why=why))

    def first_phase(self) -> Phase:
        return Phase.RUNNING


class RefusingBackend(WillingBackend):
    """Cannot launch, for good or for now."""

    def __init__(self, why: str = "There is no room for it.", *, retryable: bool = False) -> None:
        super().__init__()
        self.why, self.retryable = why, retryable

    def launch(self, plan: LaunchPlan) -> None:
        self.launched.append(plan)
        raise LaunchFailed(self.why, retryable=self.retryable)


class NeverRegistersBackend(WillingBackend):
    """Launches processes that never get further than starting."""

    def first_phase(self) -> Phase:
        return Phase.STARTING


class LostBackend(WillingBackend):
    """Its processes vanish without a word right after the launch."""

    def first_phase(self) -> Phase:
        return Phase.LOST


class ForgetfulBackend(WillingBackend):
    """Launches, and then knows nothing of it: a machine that was set up anew."""

    def observe(self, ref: AttemptRef) -> AttemptView:
        return AttemptView(gone=True)


class DeafBackend(WillingBackend):
    """Takes the wish to stop and does not carry it out."""

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        self.stopped.append((ref, grace))


class BrokenBackend(WillingBackend):
    """Fails in a way that nobody has foreseen, at every call."""

    def launch(self, plan: LaunchPlan) -> None:
        raise RuntimeError("broken")

    def observe(self, ref: AttemptRef) -> AttemptView:
        raise RuntimeError("broken")

    def stop(self, ref: AttemptRef, grace: timedelta) -> None:
        raise RuntimeError("broken")
