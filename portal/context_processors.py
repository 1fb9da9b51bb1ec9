"""Template context of every page. Each value is computed only when a template uses it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from portal.system.overview import badge
from quota.selectors import quota_of
from rbac.models import Namespace
from rbac.selectors import namespaces_of

_SESSION_KEY = "namespace"
# The resources in the line of the header.
_HEADER_RESOURCES = ("cpu", "jobs")


def page_context(request: HttpRequest) -> dict[str, Any]:
    """Return ``csp_nonce``; ``namespaces`` [Namespace, with ``role``]; ``current_namespace`` (or None); ``quota_line``
    {"cpu": {"used", "limit"}, "jobs": {...}} of the current namespace, empty without one (limit None: no limit);
    ``system_attention``, how many entries of the page *System* need attention, for admins."""
    namespaces = SimpleLazyObject(lambda: namespaces_of(request.user))
    current = SimpleLazyObject(lambda: _current(request, list(namespaces)))
    return {
        "csp_nonce": getattr(request, "csp_nonce", ""),
        "namespaces": namespaces,
        "current_namespace": current,
        "quota_line": SimpleLazyObject(lambda: _quota_line(_current(request, list(namespaces)))),
        "system_attention": SimpleLazyObject(badge),
    }


def _current(request: HttpRequest, namespaces: list[Namespace]) -> Namespace | None:
    """Return the namespace of the address, else the one opened last, else the personal one, else the first."""
    match = request.resolver_match
    requested = match.kwargs.get("ns") or match.kwargs.get("namespace") if match else None
    requested = requested or request.session.get(_SESSION_KEY)
    by_name = {namespace.name: namespace for namespace in namespaces}
    own = next((namespace for namespace in namespaces if namespace.personal_of_id == request.user.pk), None)
    return by_name.get(str(requested)) or own or next(iter(namespaces), None)


def _quota_line(namespace: Namespace | None) -> dict[str, dict[str, float | None]]:
    if namespace is None:
        return {}
    quota = quota_of(namespace)
    return {name: {"used": quota["used"][name], "limit": quota["limits"][name]} for name in _HEADER_RESOURCES}
