"""The observed objects of one job, and the settings of the controller. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jobs.operator.model import names
from jobs.operator.model.names import Object
from jobs.operator.model.pod_options import PodOptions


@dataclass(frozen=True)
class Settings:
    """Settings of the controller.

    ``gang_timeout``: seconds that pods of a gang may hold nodes while others find none; 0: no limit. ``lost_after``:
    seconds after which a pod that is being deleted is deleted by force if its node has not confirmed; 0: never.
    ``replace_after``: seconds that the creator of a job has to decide about a lost pod, before ``spec.maxStarts``
    applies.
    """

    pods: PodOptions = field(default_factory=PodOptions)
    gang_timeout: float = 300.0
    lost_after: float = 120.0
    replace_after: float = 8.0


@dataclass(frozen=True)
class Observed:
    """Observed objects of a job.

    ``foreign``: names that the job needs but objects of others have, as ``(kind, name)``. ``refusals``: messages of
    the API server when it last refused objects of the job. ``block``: first of the ports assigned to a job on its
    nodes' network.
    """

    pods: Sequence[Object] = ()
    services: Sequence[Object] = ()
    config_map: Object | None = None
    pod_group: Object | None = None
    foreign: frozenset[tuple[str, str]] = frozenset()
    refusals: Sequence[str] = ()
    block: int | None = None

    @cached_property
    def pods_by_name(self) -> Mapping[str, Object]:
        return {names.name_of(pod): pod for pod in self.pods}


def phase_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def address_of(pod: Object) -> str:
    return str((pod.get("status") or {}).get("podIP") or "")


def attempt_of(item: Object, default: int) -> int:
    """Return the attempt that an object was created for; ``default`` for objects of paddle-operator."""
    label = (item["metadata"].get("labels") or {}).get(names.ATTEMPT_LABEL)
    return int(label) if label else default


def start_number_of(item: Object) -> int:
    """Return the start number of the pod; 0 where starts are not counted."""
    return int((item["metadata"].get("labels") or {}).get(names.START_NUMBER_LABEL, 0))


def is_finished(pod: Object) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")
