"""Deletion of pods and services when a job has ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from jobs.operator.model.conditions import Phase
from jobs.operator.model.spec import CleanPodPolicy

# Final phases of the job in which pods and services are deleted, by policy.
_GOES: Mapping[CleanPodPolicy, frozenset[Phase]] = {
    CleanPodPolicy.ALWAYS: frozenset({Phase.COMPLETED, Phase.FAILED}),
    CleanPodPolicy.ON_COMPLETION: frozenset({Phase.COMPLETED}),
    CleanPodPolicy.ON_FAILURE: frozenset({Phase.FAILED}),
    CleanPodPolicy.NEVER: frozenset(),
}


def cleans(policy: CleanPodPolicy, phase: Phase) -> bool:
    """Whether finished pods and services are deleted. Running pods are always deleted: an ended job holds no node."""
    return phase in _GOES[policy]
