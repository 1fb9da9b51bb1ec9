"""Which pods go when a job has ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.operator.model.conditions import Phase
from jobs.operator.model.spec import CleanPodPolicy

# By policy and by how the job ended.
_GOES: Mapping[CleanPodPolicy, frozenset[Phase]] = {
    CleanPodPolicy.ALWAYS: frozenset({Phase.COMPLETED, Phase.FAILED}),
    CleanPodPolicy.ON_COMPLETION: frozenset({Phase.COMPLETED}),
    CleanPodPolicy.ON_FAILURE: frozenset({Phase.FAILED}),
    CleanPodPolicy.NEVER: frozenset(),
}


def cleans(policy: CleanPodPolicy, phase: Phase) -> bool:
    """Whether pods and services go. Pods that still run go in any case: a job that has ended holds no node."""
    return phase in _GOES[policy]
