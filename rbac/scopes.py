"""The table of scopes. Authorisation, the API document and the page "what may I do" are derived from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from django.utils.translation import gettext_noop as _

from rbac.models import Role


class Scope(StrEnum):
    """An ability. Roles grant those of ``OF_NAMESPACES`` inside one namespace; the account itself holds the others."""

    NAMESPACE_READ = "namespace:read"
    NAMESPACE_ADMIN = "namespace:admin"
    JOB_READ = "job:read"
    JOB_WRITE = "job:write"
    JOB_EXEC = "job:exec"
    QUOTA_READ = "quota:read"
    DATASET_READ = "dataset:read"
    DATASET_WRITE = "dataset:write"
    ACCOUNT_ADMIN = "account:admin"
    PLATFORM_ADMIN = "platform:admin"


_VIEWER = frozenset({Scope.NAMESPACE_READ, Scope.JOB_READ, Scope.QUOTA_READ, Scope.DATASET_READ})
_DEVELOPER = _VIEWER | {Scope.JOB_WRITE, Scope.JOB_EXEC, Scope.DATASET_WRITE}
_OWNER = _DEVELOPER | {Scope.NAMESPACE_ADMIN}

SCOPES_OF_ROLE: Mapping[str, frozenset[Scope]] = {
    Role.VIEWER: _VIEWER,
    Role.DEVELOPER: _DEVELOPER,
    Role.OWNER: _OWNER,
}
OF_NAMESPACES = tuple(scope for scope in Scope if scope in _OWNER)

DESCRIPTIONS: Mapping[Scope, str] = {
    Scope.NAMESPACE_READ: _("See the namespace and its members"),
    Scope.NAMESPACE_ADMIN: _("Change the namespace, its members and its service tokens"),
    Scope.JOB_READ: _("See jobs, their logs, charts and models"),
    Scope.JOB_WRITE: _("Submit, scale, cancel and retry jobs"),
    Scope.JOB_EXEC: _("Open terminals in running replicas and run commands there"),
    Scope.QUOTA_READ: _("See what the namespace may use and uses"),
    Scope.DATASET_READ: _("See and read datasets"),
    Scope.DATASET_WRITE: _("Upload, share and delete datasets"),
    Scope.ACCOUNT_ADMIN: _("Change your own account: tokens, sessions, invitations"),
    Scope.PLATFORM_ADMIN: _("Do what admins of the platform do, for an admin"),
}

# Scopes that a token needs in addition, so that it can find what it may change.
_BRINGS: Mapping[Scope, frozenset[Scope]] = {
    Scope.JOB_WRITE: frozenset({Scope.JOB_READ, Scope.QUOTA_READ, Scope.DATASET_READ}),
    Scope.JOB_EXEC: frozenset({Scope.JOB_READ}),
    Scope.DATASET_WRITE: frozenset({Scope.DATASET_READ}),
}


def roles_with(scope: Scope) -> list[str]:
    """Return the roles that hold a scope."""
    return [role for role, scopes in SCOPES_OF_ROLE.items() if scope in scopes]


def complete(scopes: Iterable[Scope]) -> list[Scope]:
    """Return the scopes with those that they depend on, in the order of the table. An empty list stays empty."""
    chosen = set(scopes)
    for scope in tuple(chosen):
        chosen |= _BRINGS.get(scope, frozenset()) | ({Scope.NAMESPACE_READ} if scope in OF_NAMESPACES else set())
    return [scope for scope in Scope if scope in chosen]


def unknown(names: Iterable[str]) -> list[str]:
    """Return the names that are no scopes."""
    return sorted(set(names) - set(Scope))
