"""Changes of accounts, namespaces, members and tokens. Each in one transaction, with its row in the trail."""

from __future__ import annotations

import secrets
from datetime import datetime

from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as FieldError
from django.db import IntegrityError, transaction
from django.http import HttpRequest

from portal.common.errors import Conflict, Forbidden, NotFound, NotSignedIn, ValidationFailed
from portal.common.time import now as wall_clock
from rbac import audit, names, throttle
from rbac.access import namespace_for
from rbac.models import ApiToken, Membership, Namespace, Role, User
from rbac.scopes import Scope
from rbac.selectors import digest_of, owners_of, tokens_of, user_named

TOKEN_PREFIX = "rgt_"  # noqa: S105  the public beginning of every token, so that scanners find leaked ones
_TOKEN_BYTES = 32
_WRONG = "The name or the password is wrong."


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
    request: HttpRequest | None = None,
) -> User:
    """Open an account. ``actor`` None: the platform itself, whose operator may choose ``any_password``.

    Raises Forbidden, ValidationFailed.
    """
    if actor is not None:
        require_admin(actor)
    user = User(username=username, email=email, is_superuser=admin)
    _validate_account(user, None if any_password else password)
    user.set_password(password)
    user.save()
    audit.record("user.create", user.username, actor=actor, detail={"admin": admin}, request=request)
    return user


def require_admin(actor: User) -> None:
    """Raises Forbidden for everybody but admins of the platform."""
    if not actor.is_admin:
        raise Forbidden("Only admins of the platform may do this. Ask one of them.")


def _validate_account(user: User, password: str | None) -> None:
    errors: dict[str, list[str]] = {}
    try:
        user.full_clean(exclude=["password"])
    except FieldError as error:
        errors.update(error.message_dict)
    if "username" not in errors and User.objects.filter(username__iexact=user.username).exists():
        errors["username"] = ["There is such an account in other capital letters. Choose another name."]
    try:
        if password is not None:
            validate_password(password, user)
    except FieldError as error:
        errors["password"] = error.messages
    if errors:
        raise ValidationFailed(errors)


# --- Sign-in ---------------------------------------------------------------------------------------------------------
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
    """Check the password and begin a session with a fresh key. Raises like ``check_password``."""
    user = check_password(request, username, password)
    login(request, user)
    audit.record("sign-in", user.username, actor=user, request=request)
    return user


def sign_out(request: HttpRequest) -> None:
    """End the session: its row and its data are gone, the cookie is worth nothing."""
    if isinstance(request.user, User):
        audit.record("sign-out", request.user.username, actor=request.user, request=request)
    logout(request)


@transaction.atomic
def ensure_personal_namespace(user: User) -> Namespace:
    """The account's own namespace; made when it is not there yet."""
    found = Namespace.objects.filter(personal_of=user).first()
    if found is not None:
        return found
    wanted = names.personal(user.username)
    if Namespace.objects.filter(name=wanted).exists():  # somebody's team was called so before
        wanted = names.marked(user.username)
    namespace = Namespace.objects.create(name=wanted, personal_of=user)
    Membership.objects.create(namespace=namespace, user=user, role=Role.OWNER)
    audit.record("namespace.create", namespace.name, actor=user, namespace=namespace, detail={"personal": True})
    return namespace


# --- Tokens ----------------------------------------------------------------------------------------------------------
@transaction.atomic
def create_token(
    *, actor: User, name: str, expires: datetime | None = None, request: HttpRequest | None = None
) -> tuple[ApiToken, str]:
    """A personal token and its secret, which is shown this once and not kept."""
    secret = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    token = ApiToken.objects.create(user=actor, name=name, digest=digest_of(secret), expires=expires)
    audit.record("token.create", name, actor=actor, detail={"id": str(token.pk)}, request=request)
    return token, secret


@transaction.atomic
def revoke_token(*, actor: User, token_id: str, request: HttpRequest | None = None) -> None:
    """Make one of the actor's own tokens worthless at once. Raises NotFound."""
    token = tokens_of(actor).filter(pk=token_id).first()
    if token is None:
        raise NotFound("There is no such token of yours; it may have been revoked already.")
    token.revoked = wall_clock()
    token.save(update_fields=["revoked"])
    audit.record("token.revoke", token.name, actor=actor, detail={"id": str(token.pk)}, request=request)


# --- Namespaces and members ------------------------------------------------------------------------------------------
@transaction.atomic
def create_namespace(
    *, actor: User, name: str, owner: User | None = None, request: HttpRequest | None = None
) -> Namespace:
    """A team's namespace, owned by ``owner`` (the actor without one). For admins: each brings a quota with it.

    Raises Forbidden, ValidationFailed, Conflict when the name is taken.
    """
    require_admin(actor)
    if not names.is_free_choice(name):
        raise ValidationFailed({"name": [names.why_not(name)]})
    try:
        with transaction.atomic():
            namespace = Namespace.objects.create(name=name)
    except IntegrityError:
        raise Conflict(f"The name {name!r} is taken. Choose another one.") from None
    Membership.objects.create(namespace=namespace, user=owner or actor, role=Role.OWNER)
    audit.record("namespace.create", name, actor=actor, namespace=namespace, request=request)
    return namespace


@transaction.atomic
def set_member(
    *, actor: User, namespace_name: str, username: str, role: Role, request: HttpRequest | None = None
) -> Membership:
    """Add an account to a namespace, or change its role. Raises NotFound, Forbidden, Conflict for the last owner."""
    namespace = _locked(namespace_for(actor, namespace_name, Scope.NAMESPACE_ADMIN))
    user = user_named(username)
    before = Membership.objects.filter(namespace=namespace, user=user).first()
    if before is not None and role != Role.OWNER:
        _keep_an_owner(namespace, leaving=before)
    membership, created = Membership.objects.update_or_create(namespace=namespace, user=user, defaults={"role": role})
    detail = {"role": role, "before": before.role if before else None}
    action = "member.add" if created else "member.change"
    audit.record(action, username, actor=actor, namespace=namespace, detail=detail, request=request)
    return membership


@transaction.atomic
def remove_member(*, actor: User, namespace_name: str, username: str, request: HttpRequest | None = None) -> None:
    """Take an account out of a namespace; members may take out themselves. Raises NotFound, Forbidden, Conflict."""
    scope = Scope.NAMESPACE_READ if username == actor.username else Scope.NAMESPACE_ADMIN
    namespace = _locked(namespace_for(actor, namespace_name, scope))
    membership = Membership.objects.filter(namespace=namespace, user__username=username).first()
    if membership is None:
        raise NotFound(f"{username!r} is no member of {namespace_name!r}.")
    _keep_an_owner(namespace, leaving=membership)
    membership.delete()
    detail = {"before": membership.role}
    audit.record("member.remove", username, actor=actor, namespace=namespace, detail=detail, request=request)


def _locked(namespace: Namespace) -> Namespace:
    """The row, locked: two owners who remove each other at the same time must not both succeed."""
    return Namespace.objects.select_for_update().get(pk=namespace.pk)


def _keep_an_owner(namespace: Namespace, *, leaving: Membership) -> None:
    if namespace.personal_of_id == leaving.user_id:
        raise Conflict("This is the account's own namespace: its owner stays.")
    if leaving.role == Role.OWNER and not owners_of(namespace).exclude(pk=leaving.pk).exists():
        raise Conflict(
            f"{leaving.user.username!r} is the last owner of {namespace.name!r}. Make somebody else an owner first."
        )
