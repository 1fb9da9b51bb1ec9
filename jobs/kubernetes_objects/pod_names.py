"""Names of the pods of a PaddleJob, by role and index. Pure."""

from __future__ import annotations

import re

_POD_NAME = re.compile(r"(?P<job>.+)-(?P<role>master|ps|worker|heter)-(?P<index>[0-9]+)")


def pod_name(job: str, role: str, index: int) -> str:
    return f"{job}-{role}-{index}"


def place(role: str, index: int) -> str:
    """Return the name of a place of the job, which pods of one name fill one after another."""
    return f"{role}-{index}"


def role_and_index(name: str) -> tuple[str, int]:
    """Return the role and index in a pod's name; ``("", 0)`` if it is not the name of a PaddleJob's pod."""
    found = _POD_NAME.fullmatch(name)
    return (found["role"], int(found["index"])) if found else ("", 0)
