"""Actions of the controller on the cluster. Pure values; ``run/executor.py`` executes them."""

from __future__ import annotations

from dataclasses import dataclass

from jobs.operator.model.names import Object


@dataclass(frozen=True)
class Create:
    """Create an object. An existing object that belongs to the job counts as created."""

    body: Object

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


@dataclass(frozen=True)
class Delete:
    """Delete the object with this UID, and no other with its name.

    ``grace``: seconds that a pod has to end. None: the pod's own grace period. 0: delete without waiting for its node.
    """

    kind: str
    name: str
    uid: str
    grace: int | None = None


@dataclass(frozen=True)
class Patch:
    """Merge ``change`` into an existing object."""

    kind: str
    name: str
    change: Object


@dataclass(frozen=True)
class DeleteJob:
    """Delete the PaddleJob itself, after its time to live."""


@dataclass(frozen=True)
class PatchJob:
    """Merge ``change`` into the PaddleJob."""

    change: Object


Action = Create | Delete | Patch | DeleteJob | PatchJob
