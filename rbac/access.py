"""Authorisation. Every list starts from ``restrict``; every single object is got through selectors that start from it.

An object of somebody else does not exist: the answer is NotFound. A role that is too small for an object that the
actor may see is Forbidden.
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


def restrict(queryset: QuerySet[Row], actor: Actor, scope: Scope, *, path: str = "namespace") -> QuerySet[Row]:
    """Only rows whose namespace (reached by ``path``) the actor holds ``scope`` in. Admins of the platform see all."""
    if not isinstance(actor, User) or not actor.is_active:
        return queryset.none()
    if actor.is_admin:
        return queryset
    held = Membership.objects.filter(user=actor, role__in=roles_with(scope)).values("namespace_id")
    return queryset.filter(**{f"{path}__in": held})


def may(actor: Actor, scope: Scope, namespace: Namespace) -> bool:
    """Whether the actor holds the scope in the namespace."""
    return restrict(Namespace.objects.filter(pk=namespace.pk), actor, scope, path="pk").exists()


def namespace_for(actor: Actor, name: str, scope: Scope) -> Namespace:
    """The namespace, if the actor may do ``scope`` in it.

    Raises NotFound where it is not there or the actor is no member, Forbidden where the role is too small.
    """
    seen = restrict(Namespace.objects.filter(name=name), actor, Scope.NAMESPACE_READ, path="pk").first()
    if seen is None:
        raise NotFound(f"There is no namespace {name!r} that you may see.")
    if not may(actor, scope, seen):
        raise Forbidden(f"Your role in {name!r} does not allow this ({scope}). Ask one of its owners.")
    return seen
