"""External sign-in: the configured providers, and the account of a person who signs in for the first time.

An account is found by the provider's own id of the person, never by an e-mail address. Else the owner of an address at
some provider could open the account of another person. A person with both connects them while signed in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from social_core.exceptions import AuthPolicyError
from social_django.models import UserSocialAuth

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotFound
from rbac import messages, namespace_names
from rbac.audit import log as audit_log
from rbac.models import Awaiting, User
from rbac.services import ensure_personal_namespace
from rbac.sign_in.registration import APPROVAL, CLOSED

_LONGEST_NAME = 100
_NO_NAME_CHARACTER = re.compile(r"[^\w.@+-]+")
_PLAIN_NAME = "member"


class Provider(NamedTuple):
    """``name`` is used in addresses and settings, ``title`` on buttons."""

    name: str
    title: str


class SignUpClosed(AuthPolicyError):
    """People cannot open accounts themselves here."""


def configured() -> list[Provider]:
    """Return the providers that the operator has configured, in the order of the buttons."""
    return [Provider(name, title) for name, title in settings.SIGN_IN_PROVIDERS.items()]


# --- First sign-in ---------------------------------------------------------------------------------------------------
@transaction.atomic
def open_account(
    backend: Any, details: Mapping[str, Any], response: Mapping[str, Any], user: User | None = None, **more: Any
) -> dict[str, Any]:
    """Step of social-auth's pipeline: open the account of a new person. Raises SignUpClosed."""
    if user is not None:
        return {"is_new": False}
    if settings.SIGN_UP == CLOSED:
        raise SignUpClosed(backend)
    waits = settings.SIGN_UP == APPROVAL
    email = _own_address(details, response)
    fresh = User(
        username=_free_name(str(details.get("username") or details.get("email") or "")),
        email=email,
        email_confirmed=wall_clock() if email else None,
        is_active=not waits,
        awaiting=Awaiting.APPROVAL if waits else "",
    )
    fresh.set_unusable_password()
    fresh.save()
    audit_log.record("user.sign-up", fresh.username, actor=None, detail={"provider": backend.name})
    if not waits:
        ensure_personal_namespace(fresh)
    return {"is_new": True, "user": fresh}


def _own_address(details: Mapping[str, Any], response: Mapping[str, Any]) -> str:
    """Return the address, if the provider has verified it and no other account has it; else an empty text."""
    email = str(details.get("email") or "")
    if response.get("email_verified") is not True or User.objects.filter(email__iexact=email).exists():
        return ""
    return email


def _free_name(requested: str) -> str:
    """Return the requested name in a valid form, with a number when another account has it."""
    plain = _NO_NAME_CHARACTER.sub("-", User.normalize_username(requested.partition("@")[0]))[:_LONGEST_NAME]
    plain = plain.strip("-._+@")
    if not plain or namespace_names.fault_of_account(plain):
        plain = _PLAIN_NAME
    name, number = plain, 1
    while User.objects.filter(Q(username__iexact=name) | Q(skeleton=namespace_names.skeleton(name))).exists():
        number += 1
        name = f"{plain}-{number}"
    return name


# --- Connections -----------------------------------------------------------------------------------------------------
def connections_of(user: User) -> QuerySet[UserSocialAuth]:
    """Return the account's connections to providers."""
    return UserSocialAuth.objects.filter(user=user).order_by("provider", "pk")


@transaction.atomic
def disconnect(*, actor: User, connection_id: int) -> None:
    """Remove a connection. Raises NotFound, and Conflict when it is the only way to sign in."""
    found = connections_of(actor).filter(pk=connection_id).first()
    if found is None:
        raise NotFound(messages.CONNECTED_ACCOUNT_NOT_FOUND())
    if not actor.has_usable_password() and connections_of(actor).count() == 1:
        raise Conflict(messages.LAST_SIGN_IN_METHOD())
    audit_log.record("connection.remove", found.provider, actor=actor)
    found.delete()
