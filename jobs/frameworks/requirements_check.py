"""Whether a job asks for the packages that its framework needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from jobs.frameworks.definitions import TABLE


def lacking(framework: str, requirements: Iterable[str], *, has_module: bool) -> str:
    """What a job has to ask for before its scripts can import their framework; empty where it need not.

    Without any requirements it runs in the platform's own environment, of which ``has_module`` tells whether the
    framework is there; with some it has one that holds nothing else.
    """
    row, named = TABLE[framework], {canonicalize_name(Requirement(line).name) for line in requirements}
    if not row.packages or named & set(row.packages) or (not named and has_module):
        return ""
    return (
        f"The requirements do not name {row.packages[0]}, which a {framework} job imports. Add it, such as "
        f"{row.requirement}."
    )
