"""What the pods of a PaddleJob are called, by their role and index. Pure."""

from __future__ import annotations

import re

_POD_NAME = re.compile(r"(?P<job>.+)-(?P<role>master|ps|worker|heter)-(?P<index>[0-9]+)")


def pod_name(job: str, role: str, index: int) -> str:
    return f"{job}-{role}-{index}"


def place(role: str, index: int) -> str:
    """One of a job's places, which pods of one name fill one after the other."""
    return f"{role}-{index}"


def role_and_index(name: str) -> tuple[str, int]:
    """Role and index in a pod's name; ``("", 0)`` where the name is not one of ours."""
    found = _POD_NAME.fullmatch(name)
    return (found["role"], int(found["index"])) if found else ("", 0)
