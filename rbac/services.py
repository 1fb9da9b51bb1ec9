"""Changes of accounts, namespaces and members. Each runs in one transaction, with its row in the audit log."""

from __future__ import annotations

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as FieldError
from django.db import IntegrityError, transaction
from django.db.models import Q

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotFound, ValidationFailed
from rbac import messages, namespace_names
from rbac.access import namespace_for
from rbac.access import require_admin as require_admin
from rbac.audit import log as audit_log
from rbac.audit.context import NO_REQUEST
from rbac.models import Answer, ApiToken, Connection, Invitation, Membership, Namespace, Role, User
from rbac.namespaces.signals import namespace_closing
from rbac.scopes import Scope
from rbac.selectors import owners_of, user_named
from rbac.socket_revocation import wake_sockets


# --- Accounts --------------------------------------------------------------------------------------------------------
@transaction.atomic
def create_user(
    *,
    username: str,
    password: str,
    email: str = "",
    admin: bool = False,
    any_password: bool = False,
    actor: User | None,
) -> User:
    """Open an account. ``actor`` None: the platform itself, whose operator may choose ``any_password``.

    Raises Forbidden, ValidationFailed.
    """
    if actor is not None:
        require_admin(actor)
    user = User(username=username, email=email, is_superuser=admin)
    validate_account(user, None if any_password else password)
    user.set_password(password)
    user.save()
    audit_log.record("user.create", user.username, actor=actor, detail={"admin": admin})
    return user


def validate_account(user: User, password: str | None, *, known_address: bool = False) -> None:
    """Check whether such an account can be opened. ``known_address``: do not report that the address is in use.

    Raises ValidationFailed with the messages of each field.
    """
    errors: dict[str, list[str]] = {}
    try:
        user.full_clean(exclude=["password"], validate_constraints=False)
    except FieldError as error:
        errors.update(error.message_dict)
    alike = Q(username__iexact=user.username) | Q(skeleton=namespace_names.skeleton(user.username))
    if "username" not in errors and User.objects.filter(alike).exists():
        errors["username"] = [messages.ACCOUNT_NAME_LOOKS_TAKEN()]
    if user.email and not known_address and User.objects.filter(email__iexact=user.email).exists():
        errors["email"] = [messages.EMAIL_TAKEN()]
    try:
        if password is not None:
            validate_password(password, user)
    except FieldError as error:
        errors["password"] = error.messages
    if errors:
        raise ValidationFailed(errors)


def revoke_tokens_of(user: User) -> int:
    """Revoke the account's own tokens, and the grants whose token no computer has fetched yet. Return how many tokens
    there were."""
    Connection.objects.filter(user=user).delete()
    return ApiToken.objects.filter(user=user, revoked=None).update(revoked=wall_clock())


@transaction.atomic
def ensure_personal_namespace(user: User) -> Namespace:
    """Return the account's personal namespace; make it when it does not exist yet."""
    found = Namespace.objects.filter(personal_of=user).first()
    if found is not None:
        return found
    wanted = namespace_names.personal(user.username)
    if Namespace.objects.filter(name=wanted).exists():  # a team took the name before
        wanted = namespace_names.marked(user.username)
    namespace = Namespace.objects.create(name=wanted, personal_of=user)
    Membership.objects.create(namespace=namespace, user=user, role=Role.OWNER)
    # The platform makes it: the row has no origin, whichever request is the occasion.
    detail = {"personal": True}
    audit_log.record(
        "namespace.create", namespace.name, actor=user, namespace=namespace, detail=detail, context=NO_REQUEST
    )
    return namespace


# --- Namespaces and members ------------------------------------------------------------------------------------------
@transaction.atomic
def create_namespace(*, actor: User, name: str, owner: User | None = None) -> Namespace:
    """Create a team's namespace, owned by ``owner`` (default: the actor). For admins only: each namespace has a quota.

    Raises Forbidden, ValidationFailed, and Conflict when the name is in use.
    """
    require_admin(actor)
    if not namespace_names.is_free_choice(name):
        raise ValidationFailed({"name": [namespace_names.why_not(name)]})
    try:
        with transaction.atomic():
            namespace = Namespace.objects.create(name=name)
    except IntegrityError:
        raise Conflict(messages.NAMESPACE_NAME_TAKEN(name=f"{name!r}")) from None
    Membership.objects.create(namespace=namespace, user=owner or actor, role=Role.OWNER)
    audit_log.record("namespace.create", name, actor=actor, namespace=namespace)
    return namespace


@transaction.atomic
def set_member(*, actor: User, namespace_name: str, username: str, role: Role) -> Membership:
    """Add an account to a namespace, or change its role. Raises NotFound, Forbidden, Conflict for the last owner."""
    namespace = _locked(namespace_for(actor, namespace_name, Scope.NAMESPACE_ADMIN))
    user = user_named(username)
    before = Membership.objects.filter(namespace=namespace, user=user).first()
    if before is not None and role != Role.OWNER:
        _keep_an_owner(namespace, leaving=before)
    membership, created = Membership.objects.update_or_create(namespace=namespace, user=user, defaults={"role": role})
    detail = {"role": role, "before": before.role if before else None}
    action = "member.add" if created else "member.change"
    audit_log.record(action, username, actor=actor, namespace=namespace, detail=detail)
    wake_sockets([user.pk])
    return membership


@transaction.atomic
def remove_member(*, actor: User, namespace_name: str, username: str) -> None:
    """Remove an account from a namespace; members may remove themselves. Raises NotFound, Forbidden, Conflict."""
    scope = Scope.NAMESPACE_READ if username == actor.username else Scope.NAMESPACE_ADMIN
    namespace = _locked(namespace_for(actor, namespace_name, scope))
    membership = _membership(namespace, username)
    _keep_an_owner(namespace, leaving=membership)
    membership.delete()
    detail = {"before": membership.role}
    audit_log.record("member.remove", username, actor=actor, namespace=namespace, detail=detail)
    wake_sockets([membership.user_id])


@transaction.atomic
def set_terminal_recording(*, actor: User, namespace_name: str, record: bool) -> None:
    """Record the terminals of the namespace's jobs from now on, or stop. Raises NotFound and Forbidden."""
    namespace = _locked(namespace_for(actor, namespace_name, Scope.NAMESPACE_ADMIN))
    before = {"record_terminals": namespace.record_terminals}
    namespace.record_terminals = record
    namespace.save(update_fields=["record_terminals"])
    after = {"record_terminals": record}
    audit_log.record("namespace.change", namespace.name, actor=actor, namespace=namespace, before=before, after=after)


@transaction.atomic
def hand_over(*, actor: User, namespace_name: str, username: str) -> None:
    """Make another member the owner in place of the actor, who stays as a developer.

    Raises NotFound, Forbidden, and Conflict for a personal namespace, for the actor, and for an actor who is no owner.
    """
    namespace = _locked(namespace_for(actor, namespace_name, Scope.NAMESPACE_ADMIN))
    if namespace.personal_of_id is not None:
        raise Conflict(messages.PERSONAL_NAMESPACE(namespace=f"{namespace_name!r}"))
    new_owner = _membership(namespace, username)
    own = Membership.objects.filter(namespace=namespace, user=actor, role=Role.OWNER).first()
    if own is None:
        raise Conflict(messages.NOT_AN_OWNER(namespace=f"{namespace_name!r}"))
    if new_owner.pk == own.pk:
        raise Conflict(messages.ALREADY_OWNER())
    Membership.objects.filter(pk=new_owner.pk).update(role=Role.OWNER)
    Membership.objects.filter(pk=own.pk).update(role=Role.DEVELOPER)
    detail = {"from": actor.username, "before": new_owner.role}
    audit_log.record("namespace.hand-over", username, actor=actor, namespace=namespace, detail=detail)
    wake_sockets([new_owner.user_id, actor.pk])


def _membership(namespace: Namespace, username: str) -> Membership:
    """Return a person's membership. Raises NotFound."""
    people = Membership.objects.filter(namespace=namespace, user__service_of=None).select_related("user")
    found = people.filter(user__username=username).first()
    if found is None:
        raise NotFound(messages.NOT_A_MEMBER(name=f"{username!r}", namespace=f"{namespace.name!r}"))
    return found


@transaction.atomic
def close_namespace(*, actor: User, namespace_name: str, confirmation: str) -> None:
    """Close a team's namespace with its members, tokens and invitations. Its name is never assigned again.

    ``confirmation`` repeats the name: the path of a request may have been normalised (``members/..``) on its way.
    Raises NotFound, Forbidden, ValidationFailed for another confirmation, and Conflict for a personal namespace and
    while a receiver of the signal objects, such as one for jobs.
    """
    namespace = _locked(namespace_for(actor, namespace_name, Scope.NAMESPACE_ADMIN))
    if confirmation != namespace.name:
        raise ValidationFailed({"name": [messages.NAMESPACE_NOT_CONFIRMED()]})
    if namespace.personal_of_id is not None:
        raise Conflict(messages.PERSONAL_NAMESPACE(namespace=f"{namespace_name!r}"))
    namespace_closing.send(sender=Namespace, namespace=namespace)
    now = wall_clock()
    Namespace.objects.filter(pk=namespace.pk).update(closed=now)
    members = list(namespace.memberships.values_list("user_id", "user__username", "role"))
    namespace.memberships.all().delete()
    User.objects.filter(service_of=namespace).update(is_active=False)
    ApiToken.objects.filter(user__service_of=namespace, revoked=None).update(revoked=now)
    Invitation.objects.filter(namespace=namespace, ended=None).update(ended=now, answer=Answer.WITHDRAWN)
    detail = {"members": {name: role for _, name, role in members}}
    audit_log.record("namespace.close", namespace.name, actor=actor, namespace=namespace, detail=detail)
    wake_sockets(user_id for user_id, _, _ in members)


def _locked(namespace: Namespace) -> Namespace:
    """Return the locked row: of two owners who remove each other at the same time, one must fail."""
    return Namespace.objects.select_for_update().get(pk=namespace.pk)


def _keep_an_owner(namespace: Namespace, *, leaving: Membership) -> None:
    if namespace.personal_of_id == leaving.user_id:
        raise Conflict(messages.PERSONAL_NAMESPACE_OWNER())
    if leaving.role == Role.OWNER and not owners_of(namespace).exclude(pk=leaving.pk).exists():
        raise Conflict(messages.LAST_OWNER(name=f"{leaving.user.username!r}", namespace=f"{namespace.name!r}"))
