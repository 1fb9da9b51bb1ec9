"""Queries of accounts, namespaces, members and tokens."""

from __future__ import annotations

import hashlib
from datetime import datetime

from django.db.models import Q, QuerySet

from portal.common.errors import NotFound
from rbac import messages
from rbac.access import Actor
from rbac.models import ApiToken, Membership, Namespace, Role, User
from rbac.scopes import OF_NAMESPACES, SCOPES_OF_ROLE, Scope


def person_named(username: str) -> User:
    """Return the account of a person, open or closed. Raises NotFound."""
    user = User.objects.filter(username=username, service_of=None).first()
    if user is None:
        raise NotFound(messages.ACCOUNT_NOT_FOUND(name=f"{username!r}"))
    return user


def namespaces_of(actor: Actor) -> list[Namespace]:
    """Return the namespaces that the actor belongs to, by name, each with ``role``."""
    if not isinstance(actor, User):
        return []
    memberships = Membership.objects.filter(user=actor).select_related("namespace").order_by("namespace__name")
    if actor.granted_in is not None:
        memberships = memberships.filter(namespace=actor.granted_in)
    return [_with_role(membership) for membership in memberships]


def _with_role(membership: Membership) -> Namespace:
    namespace = membership.namespace
    namespace.role = membership.role  # type: ignore[attr-defined]
    return namespace


def members_of(namespace: Namespace) -> QuerySet[Membership]:
    """Return all members of the namespace, by name of account."""
    return namespace.memberships.select_related("user").order_by("user__username")


def people_of(namespace: Namespace) -> QuerySet[Membership]:
    """Return the members who are people, by name of account."""
    return members_of(namespace).filter(user__service_of=None)


def abilities_in(namespace: Namespace, user: User) -> tuple[str | None, frozenset[Scope]]:
    """Return the account's role in the namespace (None: no member) and its scopes there."""
    role = Membership.objects.filter(namespace=namespace, user=user).values_list("role", flat=True).first()
    if user.is_admin:
        return role, frozenset(OF_NAMESPACES)
    return role, SCOPES_OF_ROLE[role] if role else frozenset()


def owners_of(namespace: Namespace) -> QuerySet[Membership]:
    """Return the members who can change the namespace: active accounts with the role of owner."""
    return namespace.memberships.filter(role=Role.OWNER, user__is_active=True)


def user_named(username: str) -> User:
    """Return the active account of that name. Raises NotFound."""
    user = User.objects.filter(username=username, is_active=True, service_of=None).first()
    if user is None:
        raise NotFound(messages.ACCOUNT_NOT_FOUND_ASK_ADMIN(name=f"{username!r}"))
    return user


def tokens_of(user: User) -> QuerySet[ApiToken]:
    """Return the user's tokens that have not been revoked, newest first."""
    return ApiToken.objects.filter(user=user, revoked=None).order_by("-created", "-id")


def service_tokens_of(namespace: Namespace) -> QuerySet[ApiToken]:
    """Return the namespace's service tokens that have not been revoked, newest first."""
    tokens = ApiToken.objects.filter(user__service_of=namespace, revoked=None)
    return tokens.select_related("user", "created_by").order_by("-created", "-id")


def digest_of(token: str) -> str:
    """Return the digest under which a token is stored. A token has 256 random bits, so a plain SHA-256 resists a
    search."""
    return hashlib.sha256(token.encode()).hexdigest()


def token_behind(secret: str, now: datetime) -> ApiToken | None:
    """Return the token with this secret, if it is valid now and its account is active. Its account is limited to the
    scopes that the token is bound to."""
    valid = Q(revoked=None) & (Q(expires=None) | Q(expires__gt=now)) & Q(user__is_active=True)
    token = ApiToken.objects.filter(valid, digest=digest_of(secret)).select_related("user").first()
    if token is not None:
        token.user.granted = frozenset(token.scopes) or None
        token.user.granted_until = token.expires
        token.user.granted_in = token.namespace_id
    return token
