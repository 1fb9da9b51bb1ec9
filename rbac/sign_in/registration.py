"""Registration of accounts by their owners, and password resets."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.tokens import default_token_generator
from django.core import signing
from django.core.exceptions import ValidationError as FieldError
from django.db import transaction
from django.db.models import QuerySet
from django.utils.encoding import force_str
from django.utils.http import urlsafe_base64_decode

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, Forbidden, NotFound, ValidationFailed
from rbac import messages, throttle
from rbac.access import require_admin
from rbac.audit import context as audit_context
from rbac.audit import log as audit_log
from rbac.emails import mail
from rbac.models import Awaiting, Outcome, User
from rbac.services import ensure_personal_namespace, revoke_tokens_of, validate_account
from rbac.socket_revocation import wake_sockets

# Who may open an account: nobody, everybody, or everybody whom an admin approves.
CLOSED, OPEN, APPROVAL = SIGN_UPS = ("closed", "open", "approval")
CONFIRMATION_LIFETIME = timedelta(days=1)
# Limits per hour.
_EMAILS_PER_ADDRESS_AND_CALLER = 5
_EMAILS_PER_ADDRESS = 50
_EMAILS_PER_CALLER = 30
_LONGEST_ADDRESS = 254
_NO_ADDRESS = messages.EMAIL_MISSING()
_OVER = messages.LINK_EXPIRED()


def is_possible() -> bool:
    """Return whether people may open accounts themselves."""
    return bool(settings.SIGN_UP != CLOSED)


# --- Opening an account ----------------------------------------------------------------------------------------------
@transaction.atomic
def sign_up(*, username: str, email: str, password: str, origin: str) -> None:
    """Open an account whose address waits for confirmation, and queue the e-mail for that.

    Neither the response nor its duration reveals which addresses have accounts: the password is hashed in any case, and
    the owner of such an address gets another e-mail.

    Raises Forbidden when registration is closed, ValidationFailed, TooManyRequests.
    """
    if settings.SIGN_UP == CLOSED:
        raise Forbidden(messages.SIGN_UP_CLOSED())
    _forget_unconfirmed(username, email)
    user = User(username=username, is_active=False, awaiting=Awaiting.CONFIRMATION, email=email)
    known = User.objects.filter(email__iexact=email).first() if email else None
    validate_account(user, password, known_address=known is not None)
    if not email:
        raise ValidationFailed({"email": [_NO_ADDRESS]})
    _count_email(email)
    user.set_password(password)
    outcome = Outcome.DONE if known is None else Outcome.REFUSED
    audit_log.record("user.sign-up", username, actor=None, detail={"email": email}, outcome=outcome)
    if known is not None:
        mail.enqueue(origin, known.email, "known")
        return
    user.save()
    mail.enqueue(origin, email, "confirmation", user=user.pk)


def _count_email(email: str) -> None:
    """Limit the e-mails to an address and those that a caller causes. A caller uses up only the share of its own
    network: the owner of the address still gets theirs. Raises TooManyRequests."""
    caller, to = throttle.network_of(audit_context.current().address), email.lower()
    throttle.take("letter-from", caller, most=_EMAILS_PER_CALLER)
    throttle.take("letter-to-from", f"{to}\0{caller}", most=_EMAILS_PER_ADDRESS_AND_CALLER)
    throttle.take("letter-to", to, most=_EMAILS_PER_ADDRESS)


def _forget_unconfirmed(username: str, email: str) -> None:
    """Delete unconfirmed accounts: they block neither their address nor, after a day, their name."""
    unconfirmed = User.objects.filter(awaiting=Awaiting.CONFIRMATION)
    if email:
        unconfirmed.filter(email__iexact=email).delete()
    unconfirmed.filter(username__iexact=username, date_joined__lt=wall_clock() - CONFIRMATION_LIFETIME).delete()


def to_confirm(token: str) -> User:
    """Return the account of a link in an e-mail. Raises Conflict when it has expired or was used, NotFound when it is
    invalid."""
    try:
        payload = signing.loads(token, salt=mail.CONFIRMATION_SALT, max_age=CONFIRMATION_LIFETIME)
    except signing.SignatureExpired:
        raise Conflict(_OVER) from None
    except signing.BadSignature:
        raise NotFound(messages.LINK_INCOMPLETE()) from None
    user = User.objects.filter(pk=payload["user"], email=payload["email"], awaiting=Awaiting.CONFIRMATION).first()
    if user is None:
        raise Conflict(_OVER)
    return user


@transaction.atomic
def confirm(*, token: str, password: str, origin: str) -> User:
    """Confirm the address; this requires the password of the account too. Otherwise the owner of an address could be
    persuaded to confirm an account that belongs to somebody else.

    Raises like ``to_confirm``, and ValidationFailed, TooManyRequests.
    """
    user = to_confirm(token)
    throttle.take("confirm", str(user.pk), most=_EMAILS_PER_CALLER)
    if not user.check_password(password):
        raise ValidationFailed({"password": [messages.SIGN_UP_PASSWORD_WRONG()]})
    waits = settings.SIGN_UP == APPROVAL
    user.awaiting = Awaiting.APPROVAL if waits else ""
    user.is_active = not waits
    user.email_confirmed = wall_clock()
    user.save(update_fields=["awaiting", "is_active", "email_confirmed"])
    audit_log.record("user.confirm", user.username, actor=user)
    if waits:
        _notify_admins(user, origin)
    else:
        ensure_personal_namespace(user)
    return user


# --- Approval --------------------------------------------------------------------------------------------------------
def _notify_admins(user: User, origin: str) -> None:
    for admin in User.objects.filter(is_superuser=True, is_active=True).exclude(email=""):
        mail.enqueue(origin, admin.email, "waiting", username=user.username, email=user.email)


def waiting_accounts() -> QuerySet[User]:
    """Return the accounts that wait for approval by an admin, the longest wait first."""
    return User.objects.filter(awaiting=Awaiting.APPROVAL).order_by("email_confirmed", "pk")


@transaction.atomic
def approve(*, actor: User, username: str, origin: str) -> User:
    """Approve a waiting account. Raises Forbidden, NotFound."""
    user = _waiting(actor, username)
    user.awaiting, user.is_active = "", True
    user.save(update_fields=["awaiting", "is_active"])
    ensure_personal_namespace(user)
    audit_log.record("user.approve", username, actor=actor)
    mail.enqueue(origin, user.email, "approved", username=username)
    return user


@transaction.atomic
def refuse(*, actor: User, username: str) -> None:
    """Refuse a waiting account: it is closed, its name and address stay in use.

    Raises Forbidden, NotFound.
    """
    user = _waiting(actor, username)
    user.awaiting = ""
    user.save(update_fields=["awaiting"])
    audit_log.record("user.refuse", username, actor=actor)


def _waiting(actor: User, username: str) -> User:
    require_admin(actor)
    user = waiting_accounts().filter(username=username).first()
    if user is None:
        raise NotFound(messages.NOT_AWAITING_APPROVAL(name=f"{username!r}"))
    return user


# --- Passwords -------------------------------------------------------------------------------------------------------
@transaction.atomic
def send_reset(*, email: str, origin: str) -> None:
    """Queue the e-mail for a password reset. The account of the address is looked up when the e-mail is sent: the
    request does not depend on it.

    Raises ValidationFailed without an address, TooManyRequests.
    """
    if not email:
        raise ValidationFailed({"email": [_NO_ADDRESS]})
    if len(email) > _LONGEST_ADDRESS:
        return
    _count_email(email)
    audit_log.record("password.letter", email, actor=None)
    mail.enqueue(origin, email, "reset")


def send_welcome(user: User, origin: str) -> None:
    """Queue the e-mail with which the owner of an account that an admin has opened chooses a password."""
    mail.enqueue(origin, user.email, "welcome", user=user.pk)


def to_reset(who: str, token: str) -> User:
    """Return the account of a password link. Raises Conflict when it has expired or was used."""
    try:
        user = User.objects.filter(pk=int(force_str(urlsafe_base64_decode(who))), is_active=True).first()
    except (ValueError, OverflowError):
        user = None
    if user is None or not default_token_generator.check_token(user, token):
        raise Conflict(_OVER)
    return user


@transaction.atomic
def set_password(
    *,
    actor: User | None,
    user: User,
    password: str,
    keep_tokens: bool = False,
) -> None:
    """Set another password. Every session of the account ends, its sockets close, and its tokens are revoked unless
    ``keep_tokens`` is true, because an intruder may have created one. Raises ValidationFailed."""
    try:
        validate_password(password, user)
    except FieldError as error:
        raise ValidationFailed({"password": error.messages}) from None
    user.set_password(password)
    user.save(update_fields=["password"])
    revoked = 0 if keep_tokens else revoke_tokens_of(user)
    detail = {"tokens_revoked": revoked}
    audit_log.record("password.change", user.username, actor=actor, detail=detail)
    wake_sockets([user.pk])
