"""Authorisation. Every list starts from ``restrict``; every single object is read through selectors that start from it.

An object of another namespace does not exist for the caller: the answer is NotFound. A role that is too small for a
visible object is Forbidden. A token that is bound to scopes, or to a namespace, restricts both.
"""

from __future__ import annotations

from typing import TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db.models import Model, QuerySet

from portal.common.errors import Forbidden, NotFound, NotSignedIn
from rbac import messages
from rbac.models import Membership, Namespace, User
from rbac.scopes import Scope, roles_with

Row = TypeVar("Row", bound=Model)
Actor = User | AnonymousUser


def signed_in(actor: Actor) -> User:
    """Return the actor as an account. Raises NotSignedIn."""
    if not isinstance(actor, User):
        raise NotSignedIn(messages.SIGN_IN_REQUIRED())
    return actor


def account_of(actor: Actor) -> User:
    """Return the account of an actor who may change their own account. Raises NotSignedIn, and Forbidden for a token
    that may not."""
    user = signed_in(actor)
    require_grant(user, Scope.ACCOUNT_ADMIN)
    return user


def require_admin(actor: User) -> None:
    """Raise Forbidden for everybody but admins of the platform."""
    if not actor.is_admin:
        raise Forbidden(messages.ADMINS_ONLY())
    require_grant(actor, Scope.PLATFORM_ADMIN)


def require_grant(actor: User, scope: Scope) -> None:
    """Raise Forbidden when the token of the request is bound to other scopes."""
    if not is_granted(actor, scope):
        raise Forbidden(messages.TOKEN_SCOPE_INSUFFICIENT(scope=scope))


def is_granted(actor: User, scope: Scope) -> bool:
    """Return whether the token of the request, if there is one, grants the scope."""
    return actor.granted is None or scope in actor.granted


def restrict(queryset: QuerySet[Row], actor: Actor, scope: Scope, *, path: str = "namespace") -> QuerySet[Row]:
    """Return only rows whose namespace (reached by ``path``) is open and grants ``scope`` to the actor. Admins of the
    platform see all open ones."""
    if not isinstance(actor, User) or not actor.is_active or not is_granted(actor, scope):
        return queryset.none()
    if actor.granted_in is not None:
        queryset = queryset.filter(**{path: actor.granted_in})
    if actor.is_admin:
        return queryset.filter(**{"closed" if path == "pk" else f"{path}__closed": None})
    held = Membership.objects.filter(user=actor, role__in=roles_with(scope), namespace__closed=None)
    return queryset.filter(**{f"{path}__in": held.values("namespace_id")})


def may(actor: Actor, scope: Scope, namespace: Namespace) -> bool:
    """Return whether the actor holds the scope in the namespace."""
    return restrict(Namespace.objects.filter(pk=namespace.pk), actor, scope, path="pk").exists()


def namespace_for(actor: Actor, name: str, scope: Scope) -> Namespace:
    """Return the namespace, if the actor holds ``scope`` in it.

    Raises NotFound when it does not exist or the actor is no member, Forbidden when the role is too small.
    """
    seen, allowed = _seen(actor, name, scope)
    if seen is None:
        raise NotFound(messages.NAMESPACE_NOT_VISIBLE(namespace=f"{name!r}"))
    if not allowed:
        if isinstance(actor, User):
            require_grant(actor, scope)
        raise Forbidden(messages.ROLE_INSUFFICIENT(namespace=f"{name!r}", scope=scope))
    return seen


def _seen(actor: Actor, name: str, scope: Scope) -> tuple[Namespace | None, bool]:
    """Return the namespace, if the actor may see it, and whether it grants ``scope``.

    The same result as ``restrict``, by one query instead of two, because every request needs it.
    """
    if not isinstance(actor, User) or not actor.is_active or not is_granted(actor, Scope.NAMESPACE_READ):
        return None, False
    within = {} if actor.granted_in is None else {"pk": actor.granted_in}
    if actor.is_admin:
        return Namespace.objects.filter(name=name, closed=None, **within).first(), is_granted(actor, scope)
    rows = Membership.objects.filter(user=actor, namespace__name=name, namespace__closed=None)
    if actor.granted_in is not None:
        rows = rows.filter(namespace=actor.granted_in)
    held = rows.select_related("namespace").first()
    if held is None or held.role not in roles_with(Scope.NAMESPACE_READ):
        return None, False
    return held.namespace, is_granted(actor, scope) and held.role in roles_with(scope)


def hold_open(namespace: Namespace) -> None:
    """Keep the namespace open until the current transaction ends. Raises NotFound when it has been closed."""
    if Namespace.objects.select_for_update().filter(pk=namespace.pk, closed=None).first() is None:
        raise NotFound(messages.NAMESPACE_NOT_VISIBLE(namespace=f"{namespace.name!r}"))
