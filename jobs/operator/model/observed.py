"""What there is of one job at a moment, and what the controller was started with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from jobs.operator.model import names
from jobs.operator.model.names import Object
from jobs.operator.model.pod_options import PodOptions


@dataclass(frozen=True)
class Settings:
    """``gang_timeout``: seconds that pods of a gang may hold nodes while others find none; 0: for ever.

    ``lost_after``: seconds after which a pod that should be gone, but whose node does not say so, is taken for gone; 0:
    it is waited for.
    """

    pods: PodOptions = field(default_factory=PodOptions)
    gang_timeout: float = 300.0
    lost_after: float = 120.0


@dataclass(frozen=True)
class Observed:
    """``foreign``: names of the job's pods and services that objects of others have, as ``(kind, name)``.
    ``refusals``: what the API server said when it last refused an object of the job. ``block``: ports that a job on its
    nodes' network may have."""

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
    """The attempt that an object was made for; what paddle-operator made counts as made for ``default``."""
    label = (item["metadata"].get("labels") or {}).get(names.ATTEMPT_LABEL)
    return int(label) if label else default


def start_number_of(item: Object) -> int:
    """Which pod of its name it is; 0 where nobody counts."""
    return int((item["metadata"].get("labels") or {}).get(names.START_NUMBER_LABEL, 0))


def is_finished(pod: Object) -> bool:
    return phase_of(pod) in ("Succeeded", "Failed")
