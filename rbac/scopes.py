"""What may be done, as one table. Checks, the API document and the page "what may I do" derive from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rbac.models import Role


class Scope(StrEnum):
    """An ability inside one namespace."""

    NAMESPACE_READ = "namespace:read"
    NAMESPACE_ADMIN = "namespace:admin"
    JOB_READ = "job:read"
    JOB_WRITE = "job:write"
    QUOTA_READ = "quota:read"
    DATASET_READ = "dataset:read"


_VIEWER = frozenset({Scope.NAMESPACE_READ, Scope.JOB_READ, Scope.QUOTA_READ, Scope.DATASET_READ})
_DEVELOPER = _VIEWER | {Scope.JOB_WRITE}
_OWNER = _DEVELOPER | {Scope.NAMESPACE_ADMIN}

SCOPES_OF_ROLE: Mapping[str, frozenset[Scope]] = {
    Role.VIEWER: _VIEWER,
    Role.DEVELOPER: _DEVELOPER,
    Role.OWNER: _OWNER,
}

DESCRIPTIONS: Mapping[Scope, str] = {
    Scope.NAMESPACE_READ: "See the namespace and its members",
    Scope.NAMESPACE_ADMIN: "Change the namespace and its members",
    Scope.JOB_READ: "See jobs, their logs, charts and models",
    Scope.JOB_WRITE: "Submit, cancel and retry jobs",
    Scope.QUOTA_READ: "See what the namespace may use and uses",
    Scope.DATASET_READ: "See and read data sets",
}


def roles_with(scope: Scope) -> list[str]:
    """The roles that hold a scope."""
    return [role for role, scopes in SCOPES_OF_ROLE.items() if scope in scopes]
