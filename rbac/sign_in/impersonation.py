"""Impersonation: an admin sees the portal as another account does, and can change nothing meanwhile."""

from __future__ import annotations

from django.contrib.auth import login
from django.http import HttpRequest

from portal.common.errors import Conflict
from rbac import messages
from rbac.access import require_admin
from rbac.audit import log as audit_log
from rbac.models import User
from rbac.selectors import person_named

# The session key that holds the admin's account while the admin impersonates another account.
IMPERSONATOR = "looking"
# The session of an impersonated account was not opened with a password of that account.
_SESSION_BACKEND = "django.contrib.auth.backends.ModelBackend"


def begin(*, actor: User, username: str, reason: str, request: HttpRequest) -> None:
    """Begin to see the portal as another account does; nothing can be changed meanwhile (``rbac.middleware``).

    Raises Forbidden, NotFound, ValidationFailed without a reason, and Conflict for admins and closed accounts.
    """
    require_admin(actor)
    stated_reason, user = audit_log.stated(reason), person_named(username)
    if user.is_admin or not user.is_active:
        raise Conflict(messages.ACCOUNT_NOT_VIEWABLE())
    audit_log.record("user.impersonate", username, actor=actor, reason=stated_reason)
    login(request, user, backend=_SESSION_BACKEND)
    request.session[IMPERSONATOR] = actor.pk


def end(request: HttpRequest) -> str:
    """End the impersonation; return the name of the impersonated account. Raises Conflict when there is none."""
    admin = getattr(request, "impersonator", None)
    if admin is None:
        raise Conflict(messages.NOT_VIEWING_AS_ANOTHER())
    name = request.user.get_username()
    login(request, admin, backend=_SESSION_BACKEND)
    audit_log.record("user.impersonate-end", name, actor=admin)
    return name
