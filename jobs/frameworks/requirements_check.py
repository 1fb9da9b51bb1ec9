"""Check that the requirements of a job contain the packages of its framework. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from jobs.frameworks.definitions import TABLE
from jobs.messages import cluster as messages
from runtime.messages import paragraph


def lacking(framework: str, requirements: Iterable[str], *, has_module: bool) -> str:
    """Return a message naming the requirement that the job's framework lacks; empty if none is missing.

    A job without requirements runs in the platform's own environment; ``has_module``: whether the framework is
    installed there. A job with requirements has an environment that contains nothing else.
    """
    row, named = TABLE[framework], {canonicalize_name(Requirement(line).name) for line in requirements}
    if not row.packages or named & set(row.packages) or (not named and has_module):
        return ""
    return paragraph(
        messages.REQUIREMENT_MISSING(package=row.packages[0], framework=framework),
        messages.ADD_REQUIREMENT(requirement=row.requirement),
    )
