"""Authorisation. Every list starts from ``restrict``; every single object is got through selectors that start from it.

An object of somebody else does not exist: the answer is NotFound. A role that is too small for an object that the
actor may see is Forbidden. A token that is bound to some scopes narrows all of it.
"""

from __future__ import annotations

from typing import TypeVar

from django.contrib.auth.models import AnonymousUser
from django.db.models import Model, QuerySet

from portal.common.errors import Forbidden, NotFound, NotSignedIn
from rbac.models import Membership, Namespace, User
from rbac.scopes import Scope, roles_with

Row = TypeVar("Row", bound=Model)
Actor = User | AnonymousUser


def signed_in(actor: Actor) -> User:
    """The actor as an account. Raises NotSignedIn."""
    if not isinstance(actor, User):
        raise NotSignedIn("Sign in first.")
    return actor


def account_of(actor: Actor) -> User:
    """The actor, who may change what is their own. Raises NotSignedIn, Forbidden for a token that may not."""
    user = signed_in(actor)
    require_grant(user, Scope.ACCOUNT_ADMIN)
    return user


def require_admin(actor: User) -> None:
    """Raises Forbidden for everybody but admins of the platform."""
    if not actor.is_admin:
        raise Forbidden("Only admins of the platform may do this. Ask one of them.")
    require_grant(actor, Scope.PLATFORM_ADMIN)


def require_grant(actor: User, scope: Scope) -> None:
    """Raises Forbidden where the token behind the request is bound to other scopes."""
    if not is_granted(actor, scope):
        raise Forbidden(f"This token does not allow this ({scope}). Make one with that scope.")


def is_granted(actor: User, scope: Scope) -> bool:
    """Whether the token behind the request, if there is one, lets the scope through."""
    return actor.granted is None or scope in actor.granted


def restrict(queryset: QuerySet[Row], actor: Actor, scope: Scope, *, path: str = "namespace") -> QuerySet[Row]:
    """Only rows whose namespace (reached by ``path``) is open and the actor holds ``scope`` in. Admins of the platform
    see all that are open."""
    if not isinstance(actor, User) or not actor.is_active or not is_granted(actor, scope):
        return queryset.none()
    if actor.is_admin:
        return queryset.filter(**{"closed" if path == "pk" else f"{path}__closed": None})
    held = Membership.objects.filter(user=actor, role__in=roles_with(scope), namespace__closed=None)
    return queryset.filter(**{f"{path}__in": held.values("namespace_id")})


def may(actor: Actor, scope: Scope, namespace: Namespace) -> bool:
    """Whether the actor holds the scope in the namespace."""
    return restrict(Namespace.objects.filter(pk=namespace.pk), actor, scope, path="pk").exists()


def namespace_for(actor: Actor, name: str, scope: Scope) -> Namespace:
    """The namespace, if the actor may do ``scope`` in it.

    Raises NotFound where it is not there or the actor is no member, Forbidden where the role is too small.
    """
    seen, allowed = _seen(actor, name, scope)
    if seen is None:
        raise NotFound(f"There is no namespace {name!r} that you may see.")
    if not allowed:
        if isinstance(actor, User):
            require_grant(actor, scope)
        raise Forbidden(f"Your role in {name!r} does not allow this ({scope}). Ask one of its owners.")
    return seen


def _seen(actor: Actor, name: str, scope: Scope) -> tuple[Namespace | None, bool]:
    """The namespace, if the actor may see it, and whether it may do ``scope`` there: what ``restrict`` says, by one
    query where that takes two, for every request asks."""
    if not isinstance(actor, User) or not actor.is_active or not is_granted(actor, Scope.NAMESPACE_READ):
        return None, False
    if actor.is_admin:
        return Namespace.objects.filter(name=name, closed=None).first(), is_granted(actor, scope)
    rows = Membership.objects.filter(user=actor, namespace__name=name, namespace__closed=None)
    held = rows.select_related("namespace").first()
    if held is None or held.role not in roles_with(Scope.NAMESPACE_READ):
        return None, False
    return held.namespace, is_granted(actor, scope) and held.role in roles_with(scope)


def hold_open(namespace: Namespace) -> None:
    """Keep the namespace open until the present transaction ends. Raises NotFound where it has been closed."""
    if Namespace.objects.select_for_update().filter(pk=namespace.pk, closed=None).first() is None:
        raise NotFound(f"There is no namespace {namespace.name!r} that you may see.")
