"""Authentication: passwords, the sessions of browsers, and their end. Each change has its row in the audit log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from portal.common.clock import now as wall_clock
from portal.common.errors import Forbidden, NotFound, NotSignedIn, TooManyRequests
from rbac import messages
from rbac.audit import context as audit_context
from rbac.audit import log as audit_log
from rbac.models import Awaiting, Outcome, Session, User
from rbac.services import ensure_personal_namespace
from rbac.sign_in import password_guessing, second_factor
from rbac.sign_in.sessions import ORIGIN, handle_of
from rbac.socket_revocation import wake_sockets

_WRONG = messages.CREDENTIALS_WRONG()
_AWAITING: Mapping[str, str] = {
    Awaiting.CONFIRMATION: messages.CONFIRMATION_PENDING(),
    Awaiting.APPROVAL: messages.APPROVAL_PENDING(),
}
_FIRST = "first-session"
_PENDING = "pending-sign-in"
# Seconds for which a correct password waits for its second factor.
_PATIENCE = timedelta(minutes=10)
_AGENT_LENGTH = 200
_NAME_LIMIT = 150
_PASSWORD_LIMIT = 1024


def check_password(request: HttpRequest, username: str, password: str) -> User:
    """Return the account of a name and a password, with its personal namespace.

    Raises NotSignedIn with one message for every kind of failure, except that a person who opened an account and has
    its password gets the reason why it is not active. Raises TooManyRequests after too many failures for this name from
    this network, or for any names.
    """
    password_guessing.count(request)
    if len(username) > _NAME_LIMIT or len(password) > _PASSWORD_LIMIT:
        # No account has these, and django-axes would store the whole name.
        _record_failure(request, username)
        raise NotSignedIn(_WRONG)
    user = authenticate(request, username=username, password=password)
    if getattr(request, "axes_locked_out", False):
        _record_failure(request, username, locked_out=True)
        wait = math.ceil(settings.AXES_COOLOFF_TIME.total_seconds())
        raise TooManyRequests(messages.TOO_MANY_SIGN_INS(seconds=wait), retry_after=wait)
    if not isinstance(user, User):
        _record_failure(request, username)
        raise NotSignedIn(_why_not(username, password))
    password_guessing.uncount(request)
    ensure_personal_namespace(user)
    return user


def _record_failure(request: HttpRequest, username: str, **detail: bool) -> None:
    audit_log.record("sign-in.fail", username, actor=None, detail=detail, outcome=Outcome.REFUSED)


def _why_not(username: str, password: str) -> str:
    waiting = User.objects.filter(username=username, is_active=False).exclude(awaiting="").first()
    return _AWAITING[waiting.awaiting] if waiting and waiting.check_password(password) else _WRONG


def sign_in(request: HttpRequest, username: str, password: str, next_page: str = "") -> bool:
    """Check the password, then begin a session, or remember that a second factor is still required.

    Returns whether the session has begun. Raises like ``check_password``.
    """
    user = check_password(request, username, password)
    return admit(request, user, user.backend, next_page)


def admit(request: HttpRequest, user: User, backend: str, next_page: str = "") -> bool:
    """Begin the session of an account that has passed its first factor, unless it has a second one. Return whether it
    has begun."""
    if second_factor.device_of(user) is None:
        begin_session(request, user, backend)
        return True
    until = (wall_clock() + _PATIENCE).isoformat()
    request.session.cycle_key()
    request.session[_PENDING] = {"user": user.pk, "backend": backend, "until": until, "way_on": next_page}
    return False


def pending(request: HttpRequest) -> User | None:
    """Return the account that gave its password in this browser a short while ago and still needs its second factor."""
    pending_sign_in = request.session.get(_PENDING)
    if pending_sign_in is None or datetime.fromisoformat(pending_sign_in["until"]) < wall_clock():
        return None
    return User.objects.filter(pk=pending_sign_in["user"], is_active=True).first()


def finish(request: HttpRequest, code: str) -> str:
    """Check the second factor and begin the session. Returns the page to open next ("": no particular one).

    Raises NotSignedIn when no sign-in is pending or the code is wrong, TooManyRequests.
    """
    user = pending(request)
    if user is None:
        raise NotSignedIn(messages.SIGN_IN_TIMED_OUT())
    try:
        second_factor.verify(user, code)
    except NotSignedIn:
        audit_log.record("sign-in.fail", user.username, actor=None, outcome=Outcome.REFUSED)
        raise
    pending_sign_in = request.session.pop(_PENDING)
    begin_session(request, user, pending_sign_in["backend"])
    return str(pending_sign_in["way_on"])


def require_second_factor(user: User, code: str) -> None:
    """Check the second factor for a sign-in without a page in between. Raises NotSignedIn, TooManyRequests, and
    Forbidden when the platform requires a second factor that the account has not set up."""
    if second_factor.is_owed(user):
        raise Forbidden(messages.TWO_FACTOR_REQUIRED())
    if second_factor.device_of(user) is not None and not code:
        raise NotSignedIn(messages.TWO_FACTOR_CODE_MISSING())
    second_factor.verify(user, code)


def begin_session(request: HttpRequest, user: User, backend: str) -> None:
    """Begin a session with a fresh key for an account that has passed all factors; record its address and browser."""
    first = user.last_login is None
    login(request, user, backend=backend)
    if first and (user.email_confirmed or not user.has_usable_password()):
        request.session[_FIRST] = True
    request.session[ORIGIN] = {
        "created": wall_clock().isoformat(),
        "address": audit_context.current().address,
        "agent": request.headers.get("User-Agent", "")[:_AGENT_LENGTH],
    }
    audit_log.record("sign-in", user.username, actor=user)


def is_welcome_due(request: HttpRequest) -> bool:
    """Return whether this is the first session of a person who opened the account themselves. True once."""
    return bool(request.session.pop(_FIRST, False))


def sign_out(request: HttpRequest) -> None:
    """End the session: its row and its data are deleted, the cookie becomes invalid."""
    if isinstance(request.user, User):
        audit_log.record("sign-out", request.user.username, actor=request.user)
    logout(request)


# --- Sessions --------------------------------------------------------------------------------------------------------
def sessions_of(user: User) -> QuerySet[Session]:
    """Return the account's valid sessions, the one seen last first."""
    return Session.objects.filter(user=user, expire_date__gt=wall_clock()).order_by("-seen", "handle")


def is_present(request: HttpRequest, session: Session) -> bool:
    """Return whether this is the session of the request itself."""
    return session.handle == handle_of(request.session.session_key)


@transaction.atomic
def end_session(*, actor: User, handle: str, request: HttpRequest | None = None) -> None:
    """Sign one of the actor's own browsers out, possibly the current one; its sockets close. Raises NotFound."""
    ended, _ = sessions_of(actor).filter(handle=handle).delete()
    if not ended:
        raise NotFound(messages.SESSION_NOT_FOUND())
    audit_log.record("session.end", handle, actor=actor)
    if request is not None and handle == handle_of(request.session.session_key):
        request.session.flush()
    wake_sockets([actor.pk])


@transaction.atomic
def end_all_sessions(*, actor: User, user: User, request: HttpRequest | None = None) -> int:
    """Sign an account out everywhere; its sockets close. Returns how many sessions there were."""
    ended, _ = sessions_of(user).delete()
    audit_log.record("session.end-all", user.username, actor=actor, detail={"count": ended})
    if request is not None and request.user == user:
        request.session.flush()
    wake_sockets([user.pk])
    return ended
