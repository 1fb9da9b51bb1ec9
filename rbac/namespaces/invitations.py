"""Invitations to namespaces: for an account by its name, or for an e-mail address by a link. They expire after a
week."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID, uuid4

from django.core.exceptions import ValidationError as FieldError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.crypto import salted_hmac

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotFound, ValidationFailed
from rbac import messages
from rbac.access import hold_open, namespace_for
from rbac.audit import log as audit_log
from rbac.models import Answer, Invitation, Membership, Namespace, Role, User
from rbac.scopes import Scope
from rbac.selectors import digest_of
from rbac.socket_revocation import wake_sockets

LIFETIME = timedelta(days=7)
OPEN_PER_NAMESPACE = 100
_SECRET_BYTES = 24
_SALT = "rbac.invitation"
_NOT_THERE = messages.INVITATION_NOT_FOUND()


class Invited(NamedTuple):
    """``secret`` is in the link for an address and is not stored; empty when an account is invited by its name."""

    invitation: Invitation
    secret: str


# --- Reading ---------------------------------------------------------------------------------------------------------
def open_in(namespace: Namespace) -> QuerySet[Invitation]:
    """Return the namespace's unanswered invitations, including expired ones; newest first."""
    rows = Invitation.objects.filter(namespace=namespace, ended=None)
    return rows.select_related("user", "invited_by").order_by("-created", "-id")


def open_for(user: User) -> QuerySet[Invitation]:
    """Return the invitations of the account, by its name, that it can still accept; newest first."""
    rows = Invitation.objects.filter(user=user, ended=None, expires__gt=wall_clock(), namespace__closed=None)
    return rows.select_related("namespace", "invited_by").order_by("-created", "-id")


def behind_link(secret: str) -> Invitation:
    """Return the invitation of a link. Raises NotFound, and Conflict when it has expired or was answered."""
    found = Invitation.objects.filter(digest=digest_of(secret), namespace__closed=None).exclude(digest="")
    invitation = found.select_related("namespace", "invited_by").first()
    if invitation is None or invitation.answer == Answer.WITHDRAWN:
        raise NotFound(_NOT_THERE)
    _refuse_what_is_over(invitation)
    return invitation


# --- Inviting --------------------------------------------------------------------------------------------------------
@transaction.atomic
def invite(*, actor: User, namespace_name: str, invitee: str, role: Role) -> Invited:
    """Offer a role to an account (by name) or to an address.

    Raises NotFound, Forbidden, ValidationFailed for a text that is neither, and Conflict for the actor, a member, or an
    invitee whose invitation is still open.
    """
    namespace = namespace_for(actor, namespace_name, Scope.NAMESPACE_ADMIN)
    hold_open(namespace)
    account, email = _invitee(invitee.strip())
    _refuse_member(actor, namespace, account, email)
    _end_expired(namespace, account, email)
    pk = uuid4()
    secret = "" if account else _secret_of(pk)
    invitation = Invitation.objects.create(
        pk=pk,
        namespace=namespace,
        user=account,
        email=email,
        role=role,
        digest=digest_of(secret) if secret else "",
        invited_by=actor,
        expires=wall_clock() + LIFETIME,
    )
    detail = {"role": role, "expires": invitation.expires.isoformat()}
    audit_log.record("invitation.create", invitee, actor=actor, namespace=namespace, detail=detail)
    return Invited(invitation, secret)


def secret_of(invitation: Invitation) -> str:
    """Return the secret of an invitation's link; it is not stored, because it is derived from the id and SECRET_KEY."""
    return _secret_of(invitation.pk)


def _secret_of(pk: UUID) -> str:
    return urlsafe_b64encode(salted_hmac(_SALT, str(pk), algorithm="sha256").digest()[:_SECRET_BYTES]).decode()


def _invitee(invitee: str) -> tuple[User | None, str]:
    """Return the account of that name, else the address. Raises ValidationFailed."""
    account = User.objects.filter(username=invitee, is_active=True, service_of=None).first()
    if account is not None:
        return account, ""
    try:
        validate_email(invitee)
    except FieldError:
        raise ValidationFailed({"who": [messages.INVITEE_UNKNOWN(name=f"{invitee!r}")]}) from None
    return None, invitee


def _refuse_member(actor: User, namespace: Namespace, account: User | None, email: str) -> None:
    if account == actor or (email and email.lower() == actor.email.lower()):
        raise Conflict(messages.SELF_INVITATION())
    member = Membership.objects.filter(namespace=namespace, user=account).first() if account else None
    if member is not None:
        raise Conflict(messages.ALREADY_MEMBER(name=f"{member.user.username!r}", namespace=f"{namespace.name!r}"))


def _end_expired(namespace: Namespace, account: User | None, email: str) -> None:
    """End the expired invitations. Raises Conflict when one is still open, or too many are."""
    now = wall_clock()
    opened = Invitation.objects.filter(namespace=namespace, ended=None)
    opened.filter(expires__lte=now).update(ended=now, answer=Answer.WITHDRAWN)
    same = Q(user=account) if account else Q(email__iexact=email)
    if opened.filter(same).exists():
        raise Conflict(messages.INVITATION_ALREADY_OPEN())
    if opened.count() >= OPEN_PER_NAMESPACE:
        raise Conflict(messages.INVITATION_LIMIT_REACHED(count=OPEN_PER_NAMESPACE))


@transaction.atomic
def withdraw(*, actor: User, namespace_name: str, invitation_id: str) -> None:
    """Withdraw an invitation. Raises NotFound, Forbidden."""
    namespace = namespace_for(actor, namespace_name, Scope.NAMESPACE_ADMIN)
    invitation = open_in(namespace).filter(pk=invitation_id).first()
    if invitation is None:
        raise NotFound(messages.OPEN_INVITATION_NOT_FOUND(namespace=f"{namespace_name!r}"))
    _end(invitation, Answer.WITHDRAWN, actor)


# --- Answering -------------------------------------------------------------------------------------------------------
@transaction.atomic
def accept(*, actor: User, invitation: Invitation) -> Namespace:
    """Become a member. An existing member keeps the role. Raises NotFound, and Conflict when the invitation has
    expired."""
    namespace = invitation.namespace
    hold_open(namespace)
    _refuse_what_is_over(Invitation.objects.get(pk=invitation.pk))
    membership, joined = Membership.objects.get_or_create(
        namespace=namespace, user=actor, defaults={"role": invitation.role}
    )
    _end(invitation, Answer.ACCEPTED, actor)
    if joined:
        detail = {"role": membership.role, "invited_by": invitation.invited_by.username}
        audit_log.record("member.add", actor.username, actor=actor, namespace=namespace, detail=detail)
        wake_sockets([actor.pk])
    return namespace


@transaction.atomic
def decline(*, actor: User, invitation: Invitation) -> None:
    """Decline an invitation. Raises Conflict when it was answered or has expired."""
    hold_open(invitation.namespace)
    _refuse_what_is_over(Invitation.objects.get(pk=invitation.pk))
    _end(invitation, Answer.DECLINED, actor)


def own(actor: User, invitation_id: str) -> Invitation:
    """Return an open invitation of the actor's account. Raises NotFound."""
    invitation = Invitation.objects.filter(user=actor, pk=invitation_id, namespace__closed=None)
    found = invitation.exclude(answer=Answer.WITHDRAWN).select_related("namespace", "invited_by").first()
    if found is None:
        raise NotFound(_NOT_THERE)
    return found


def _refuse_what_is_over(invitation: Invitation) -> None:
    if invitation.ended is not None:
        raise Conflict(messages.INVITATION_ANSWERED())
    if invitation.expires <= wall_clock():
        raise Conflict(
            messages.INVITATION_EXPIRED(day=f"{invitation.expires:%Y-%m-%d}", name=invitation.invited_by.username)
        )


def _end(invitation: Invitation, answer: Answer, actor: User) -> None:
    Invitation.objects.filter(pk=invitation.pk).update(ended=wall_clock(), answer=answer)
    invitee = invitation.user.username if invitation.user else invitation.email
    audit_log.record(f"invitation.{answer}", invitee, actor=actor, namespace=invitation.namespace)
