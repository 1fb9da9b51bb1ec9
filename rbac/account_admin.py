"""Administration of accounts by admins of the platform. Every action requires a reason and leaves a row in the audit
log."""

from __future__ import annotations

import secrets

from django.db import transaction

from portal.common.errors import Conflict, ValidationFailed
from rbac import messages
from rbac.access import require_admin
from rbac.audit import log as audit_log
from rbac.models import User
from rbac.selectors import person_named
from rbac.services import ensure_personal_namespace, revoke_tokens_of, validate_account
from rbac.sign_in.registration import send_welcome
from rbac.sign_in.sign_in import sessions_of
from rbac.socket_revocation import wake_sockets

_PASSWORD_BYTES = 12


@transaction.atomic
def open_account(
    *, actor: User, username: str, email: str, reason: str, by_email: bool, origin: str
) -> tuple[User, str]:
    """Open an account for a person: with a password, which is returned only once, or with an e-mail to its address that
    links to a page to choose a password. ``origin`` is the scheme and host of that link.

    Returns the account and the password (empty with an e-mail). Raises Forbidden, ValidationFailed.
    """
    require_admin(actor)
    stated_reason, username, email = audit_log.stated(reason), username.strip(), email.strip()
    user = User(username=username, email=email)
    validate_account(user, None)
    if by_email and not email:
        raise ValidationFailed({"email": [messages.WELCOME_EMAIL_ADDRESS_MISSING()]})
    password = "" if by_email else secrets.token_urlsafe(_PASSWORD_BYTES)
    user.set_password(password) if password else user.set_unusable_password()
    user.save()
    ensure_personal_namespace(user)
    detail = {"email": email, "letter": by_email}
    audit_log.record("user.create", username, actor=actor, detail=detail, reason=stated_reason)
    if by_email:
        send_welcome(user, origin)
    return user, password


@transaction.atomic
def set_active(*, actor: User, username: str, active: bool, reason: str) -> User:
    """Close an account, which ends its sessions, tokens and sockets at once, or open it again.

    Raises Forbidden, NotFound, ValidationFailed without a reason, and Conflict for the actor's own account and the last
    admin.
    """
    require_admin(actor)
    stated_reason, user = audit_log.stated(reason), _locked(username)
    if not active:
        _refuse_for_oneself(actor, user)
        _keep_an_admin(user)
    elif user.awaiting:
        raise Conflict(messages.ACCOUNT_AWAITING())
    before = user.is_active
    User.objects.filter(pk=user.pk).update(is_active=active)
    if not active:
        sessions_of(user).delete()
        wake_sockets([user.pk])
    action = "user.enable" if active else "user.disable"
    audit_log.record(
        action,
        username,
        actor=actor,
        before={"active": before},
        after={"active": active},
        reason=stated_reason,
    )
    return person_named(username)


@transaction.atomic
def set_admin(*, actor: User, username: str, admin: bool, reason: str) -> User:
    """Make an account an admin of the platform, or remove that role. Raises like ``set_active``."""
    require_admin(actor)
    stated_reason, user = audit_log.stated(reason), _locked(username)
    if not admin:
        _refuse_for_oneself(actor, user)
        _keep_an_admin(user)
    before = user.is_superuser
    User.objects.filter(pk=user.pk).update(is_superuser=admin)
    wake_sockets([user.pk])
    audit_log.record(
        "user.role",
        username,
        actor=actor,
        before={"admin": before},
        after={"admin": admin},
        reason=stated_reason,
    )
    return person_named(username)


@transaction.atomic
def reset_password(*, actor: User, username: str, reason: str) -> str:
    """Return a new password, only this once. The account is signed out everywhere, and its tokens are revoked.

    Raises like ``set_active``.
    """
    require_admin(actor)
    stated_reason, user = audit_log.stated(reason), _locked(username)
    fresh = secrets.token_urlsafe(_PASSWORD_BYTES)
    user.set_password(fresh)
    user.save(update_fields=["password"])
    sessions_of(user).delete()
    detail = {"tokens_revoked": revoke_tokens_of(user)}
    wake_sockets([user.pk])
    audit_log.record("user.reset-password", username, actor=actor, detail=detail, reason=stated_reason)
    return fresh


def _locked(username: str) -> User:
    """Return the account, with the rows of all admins locked first: of two admins who demote each other, one must
    fail."""
    list(User.objects.select_for_update().filter(is_superuser=True).order_by("pk"))
    return person_named(username)


def _refuse_for_oneself(actor: User, user: User) -> None:
    if actor.pk == user.pk:
        raise Conflict(messages.OWN_ACCOUNT_PROTECTED())


def _keep_an_admin(user: User) -> None:
    if user.is_superuser and not User.objects.filter(is_superuser=True, is_active=True).exclude(pk=user.pk).exists():
        raise Conflict(messages.LAST_ADMIN(name=f"{user.username!r}"))
