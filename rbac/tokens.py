"""Tokens of accounts and service tokens of namespaces. Each change runs in one transaction, with its row in the audit
log."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db import transaction

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotFound, ValidationFailed
from rbac import messages, namespace_names
from rbac.access import hold_open, namespace_for
from rbac.audit import log as audit_log
from rbac.models import ApiToken, Membership, Namespace, Role, User
from rbac.scopes import OF_NAMESPACES, SCOPES_OF_ROLE, Scope, complete, unknown
from rbac.selectors import digest_of, service_tokens_of, tokens_of
from rbac.socket_revocation import wake_sockets

TOKEN_PREFIX = "rgt_"  # noqa: S105  the public prefix of every token, so that scanners find leaked ones
TOKENS_PER_ACCOUNT = 100
MAX_LIFETIME_DAYS = 3650
# A service token acts for a program that others may read: it never changes the members of the namespace.
SERVICE_ROLES = (Role.VIEWER, Role.DEVELOPER)
_TOKEN_BYTES = 32
_TOKEN_NOT_THERE = messages.TOKEN_NOT_FOUND()


# --- Tokens of accounts ----------------------------------------------------------------------------------------------
@transaction.atomic
def create_token(
    *,
    actor: User,
    name: str,
    scopes: Sequence[str] = (),
    expires: datetime | None = None,
) -> tuple[ApiToken, str]:
    """Create a personal token; return it and its secret, which is shown only once and not stored.

    Without scopes it may do all that its account may. A token that is made with a token gets at most the scopes and the
    expiry of that one.

    Raises ValidationFailed, and Conflict when the account has too many.
    """
    if tokens_of(actor).count() >= TOKENS_PER_ACCOUNT:
        raise Conflict(messages.TOKEN_LIMIT_REACHED(count=TOKENS_PER_ACCOUNT))
    chosen = _within_grant(actor, _checked(scopes), tuple(Scope))
    return _issue(actor, actor, name, chosen, _earlier(expires, actor.granted_until), None)


def _within_grant(actor: User, scopes: list[Scope], default: Sequence[Scope]) -> list[Scope]:
    """Return ``scopes``; when empty, those of ``default`` that the actor's token grants. Raises ValidationFailed."""
    if actor.granted is None:
        return scopes
    if beyond := [scope for scope in scopes if scope not in actor.granted]:
        held = ", ".join(scope for scope in Scope if scope in actor.granted)
        raise ValidationFailed({"scopes": [messages.SCOPE_NOT_GRANTED(scope=beyond[0], held=held)]})
    return scopes or [scope for scope in default if scope in actor.granted]


def _earlier(expires: datetime | None, limit: datetime | None) -> datetime | None:
    """Return the earlier of two expiries; None is never."""
    return min(expires, limit) if expires and limit else expires or limit


def _issue(
    actor: User,
    user: User,
    name: str,
    scopes: Sequence[Scope],
    expires: datetime | None,
    namespace: Namespace | None,
) -> tuple[ApiToken, str]:
    secret = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        digest=digest_of(secret),
        scopes=list(scopes),
        # A token that is made with a token does not leave the namespace of that one.
        namespace_id=actor.granted_in,
        expires=expires,
        created_by=actor,
    )
    detail = {"id": str(token.pk), "scopes": list(scopes), "expires": expires.isoformat() if expires else None}
    audit_log.record("token.create", name, actor=actor, namespace=namespace, detail=detail)
    return token, secret


def _checked(scopes: Sequence[str], allowed: Sequence[Scope] = tuple(Scope)) -> list[Scope]:
    """Return the scopes, each with those that it depends on. Raises ValidationFailed."""
    wrong = unknown(scopes) or sorted(set(scopes) - set(allowed))
    if wrong:
        raise ValidationFailed({"scopes": [messages.SCOPE_UNKNOWN(name=f"{wrong[0]!r}", names=", ".join(allowed))]})
    return complete(Scope(scope) for scope in scopes)


def in_days(days: int | None, now: datetime) -> datetime | None:
    """Return the moment ``days`` from now; None stays None. Raises ValidationFailed."""
    if days is None:
        return None
    if not 1 <= days <= MAX_LIFETIME_DAYS:
        raise ValidationFailed({"days": [messages.DAYS_OUT_OF_RANGE(most=MAX_LIFETIME_DAYS)]})
    return now + timedelta(days=days)


@transaction.atomic
def revoke_token(*, actor: User, token_id: str) -> None:
    """Revoke one of the actor's own tokens at once; its sockets close. Raises NotFound."""
    token = tokens_of(actor).filter(pk=token_id).first()
    if token is None:
        raise NotFound(_TOKEN_NOT_THERE)
    _revoke(token, actor=actor, namespace=None)


@transaction.atomic
def create_bound_token(*, user: User, namespace: Namespace, name: str, secret: str) -> ApiToken:
    """Create a token with which a program acts for the user in one namespace, with the scopes of a developer. Repeated
    calls with the same secret return the same token.

    The platform makes it, with a secret that it can derive again; the token ends with the program (``end_token``).
    """
    scopes = [scope for scope in Scope if scope in SCOPES_OF_ROLE[Role.DEVELOPER]]
    fields = {"user": user, "name": name, "scopes": scopes, "namespace": namespace}
    token, created = ApiToken.objects.get_or_create(digest=digest_of(secret), defaults=fields)
    if created:
        detail = {"id": str(token.pk), "scopes": scopes, "expires": None}
        audit_log.record("token.create", name, actor=user, namespace=namespace, detail=detail)
    return token


@transaction.atomic
def end_token(token: ApiToken) -> None:
    """Revoke a token whose program has ended; its sockets close. Does nothing if it was revoked before."""
    if token.revoked is None:
        _revoke(token, actor=None, namespace=token.namespace)


def _revoke(token: ApiToken, *, actor: User | None, namespace: Namespace | None) -> None:
    token.revoked = wall_clock()
    token.save(update_fields=["revoked"])
    detail = {"id": str(token.pk)}
    audit_log.record("token.revoke", token.name, actor=actor, namespace=namespace, detail=detail)
    wake_sockets([token.user_id])


# --- Service tokens of namespaces ------------------------------------------------------------------------------------
@transaction.atomic
def create_service_token(
    *,
    actor: User,
    namespace_name: str,
    name: str,
    role: Role,
    scopes: Sequence[str] = (),
    expires: datetime | None = None,
) -> tuple[ApiToken, str]:
    """Create a token for a program of the namespace. It outlasts the account of its creator, acts as an account of its
    own (``<namespace>/<name>``), and cannot leave the namespace. Limits as in ``create_token``.

    Raises NotFound, Forbidden, ValidationFailed, and Conflict when the name is in use.
    """
    namespace = namespace_for(actor, namespace_name, Scope.NAMESPACE_ADMIN)
    hold_open(namespace)
    if not namespace_names.is_label(name):
        raise ValidationFailed({"name": [namespace_names.not_a_label(name)]})
    if role not in SERVICE_ROLES:
        raise ValidationFailed({"role": [messages.SERVICE_TOKEN_ROLE_INVALID()]})
    chosen = _within_grant(actor, _checked(scopes, OF_NAMESPACES), OF_NAMESPACES) or list(OF_NAMESPACES)
    user = _service_account(namespace, name)
    Membership.objects.create(namespace=namespace, user=user, role=role)
    return _issue(actor, user, name, chosen, _earlier(expires, actor.granted_until), namespace)


def _service_account(namespace: Namespace, name: str) -> User:
    username = f"{namespace.name}/{name}"
    if User.objects.filter(username=username).exists():
        raise Conflict(messages.SERVICE_TOKEN_NAME_TAKEN(name=f"{name!r}", namespace=f"{namespace.name!r}"))
    user = User(username=username, service_of=namespace)
    user.set_unusable_password()
    user.save()
    return user


@transaction.atomic
def revoke_service_token(*, actor: User, namespace_name: str, token_id: str) -> None:
    """Revoke a service token and close its account; the work of the account stays. Raises NotFound, Forbidden."""
    namespace = namespace_for(actor, namespace_name, Scope.NAMESPACE_ADMIN)
    token = service_tokens_of(namespace).filter(pk=token_id).first()
    if token is None:
        raise NotFound(messages.SERVICE_TOKEN_NOT_FOUND(namespace=f"{namespace_name!r}"))
    end_service_account(token.user)
    _revoke(token, actor=actor, namespace=namespace)


def end_service_account(user: User) -> None:
    """Disable the service account permanently."""
    Membership.objects.filter(user=user).delete()
    User.objects.filter(pk=user.pk).update(is_active=False)
