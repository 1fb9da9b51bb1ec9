"""What the controller may do to the cluster. Pure values; ``run/executor.py`` does them."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.operator.model.names import Object


@dataclass(frozen=True)
class Create:
    """Make an object. Where it is there already and belongs to the job, that is as good."""

    body: Object

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True)
class Delete:
    """Delete the object that has this UID, and no other of its name. ``grace``: seconds that a pod has to end, None:
    those of the pod itself; 0: it goes whatever its node says."""

    kind: str
    name: str
    uid: str
    grace: int | None = None


@dataclass(frozen=True)
class Patch:
    """Merge ``change`` into an object that is there."""

    kind: str
    name: str
    change: Object


@dataclass(frozen=True)
class DeleteJob:
    """The PaddleJob itself: its time is over."""


@dataclass(frozen=True)
class PatchJob:
    """Merge ``change`` into the PaddleJob."""

    change: Object


Action = Create | Delete | Patch | DeleteJob | PatchJob
