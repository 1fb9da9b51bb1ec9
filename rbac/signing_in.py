"""Who is there: passwords, the sessions of browsers, and their end. Each change with its row in the trail."""

from __future__ import annotations

from django.contrib.auth import authenticate, login, logout
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from portal.common.errors import NotFound, NotSignedIn
from portal.common.time import now as wall_clock
from rbac import audit, throttle
from rbac.models import Session, User
from rbac.revocation import wake_sockets
from rbac.services import ensure_personal_namespace
from rbac.sessions import ORIGIN, handle_of

_WRONG = "The name or the password is wrong."
_AGENT_LENGTH = 200


def check_password(request: HttpRequest, username: str, password: str) -> User:
    """The account behind a name and a password, with its personal namespace.

    Raises NotSignedIn with one sentence for every kind of failure, TooManyRequests after too many of them.
    """
    address = audit.address_of(request) or ""
    throttle.check(username, address)
    user = authenticate(request, username=username, password=password)
    if not isinstance(user, User):
        throttle.note_failure(username, address)
        audit.record("sign-in.fail", username, actor=None, request=request)
        raise NotSignedIn(_WRONG)
    throttle.clear(username, address)
    ensure_personal_namespace(user)
    return user


def sign_in(request: HttpRequest, username: str, password: str) -> User:
    """Check the password and begin a session. Raises like ``check_password``."""
    user = check_password(request, username, password)
    begin_session(request, user)
    return user


def begin_session(request: HttpRequest, user: User) -> None:
    """A session with a fresh key for an account that has shown all that is asked of it; it remembers from where."""
    login(request, user)
    request.session[ORIGIN] = {
        "created": wall_clock().isoformat(),
        "address": audit.address_of(request),
        "agent": request.headers.get("User-Agent", "")[:_AGENT_LENGTH],
    }
    audit.record("sign-in", user.username, actor=user, request=request)


def sign_out(request: HttpRequest) -> None:
    """End the session: its row and its data are gone, the cookie is worth nothing."""
    if isinstance(request.user, User):
        audit.record("sign-out", request.user.username, actor=request.user, request=request)
    logout(request)


# --- Sessions --------------------------------------------------------------------------------------------------------
def sessions_of(user: User) -> QuerySet[Session]:
    """The account's sessions that are still good, the one seen last first."""
    return Session.objects.filter(user=user, expire_date__gt=wall_clock()).order_by("-seen", "handle")


def is_present(request: HttpRequest, session: Session) -> bool:
    """Whether this is the session that the request itself belongs to."""
    return session.handle == handle_of(request.session.session_key)


@transaction.atomic
def end_session(*, actor: User, handle: str, request: HttpRequest | None = None) -> None:
    """Sign one of the actor's own browsers out, maybe the present one; its sockets close. Raises NotFound."""
    ended, _ = sessions_of(actor).filter(handle=handle).delete()
    if not ended:
        raise NotFound("There is no such session of yours; it may have ended already.")
    audit.record("session.end", handle, actor=actor, request=request)
    if request is not None and handle == handle_of(request.session.session_key):
        request.session.flush()
    wake_sockets([actor.pk])


@transaction.atomic
def end_all_sessions(*, actor: User, user: User, request: HttpRequest | None = None) -> int:
    """Sign an account out everywhere; its sockets close. Returns how many sessions there were."""
    ended, _ = sessions_of(user).delete()
    audit.record("session.end-all", user.username, actor=actor, detail={"count": ended}, request=request)
    if request is not None and request.user == user:
        request.session.flush()
    wake_sockets([user.pk])
    return ended
