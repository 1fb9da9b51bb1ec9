"""Accounts that people open themselves, and passwords that they forgot."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.tokens import default_token_generator
from django.core import signing
from django.core.exceptions import ValidationError as FieldError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.encoding import force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode

from portal.common.errors import Conflict, Forbidden, NotFound, ValidationFailed
from portal.common.time import now as wall_clock
from rbac import audit, mail, throttle
from rbac.access import require_admin
from rbac.models import Awaiting, User
from rbac.revocation import wake_sockets
from rbac.services import ensure_personal_namespace, validate_account

# Who may open an account: nobody, everybody, or everybody whom an admin lets in.
CLOSED, OPEN, APPROVAL = SIGN_UPS = ("closed", "open", "approval")
CONFIRMATION_LIFE = timedelta(days=1)
_SALT = "rbac.confirm"
_LETTERS_PER_ADDRESS = 5
_LETTERS_PER_CALLER = 30
_NO_ADDRESS = "Write your e-mail address: the letter goes there."
_OVER = "This link has been used, or is too old. Begin anew."


def is_possible() -> bool:
    """Whether people may open accounts themselves."""
    return bool(settings.SIGN_UP != CLOSED)


# --- Opening an account ----------------------------------------------------------------------------------------------
@transaction.atomic
def sign_up(*, username: str, email: str, password: str, request: HttpRequest) -> None:
    """Open an account that waits for its address to be confirmed, and send the letter for that.

    Nobody learns here which addresses have accounts: the owner of such an address gets another letter. Raises Forbidden
    where accounts are not opened that way, ValidationFailed, TooManyRequests.
    """
    if settings.SIGN_UP == CLOSED:
        raise Forbidden("Nobody can open an account by themselves here. Ask an admin.")
    _forget_unconfirmed(username, email)
    user = User(username=username, is_active=False, awaiting=Awaiting.CONFIRMATION, email=email)
    known = User.objects.filter(email__iexact=email).first() if email else None
    validate_account(user, password, known_address=known is not None)
    if not email:
        raise ValidationFailed({"email": [_NO_ADDRESS]})
    _take_letter(request, email)
    if known is not None:
        mail.send(known.email, "known", username=known.username, link=mail.link(request, "sign-in"))
        return
    user.set_password(password)
    user.save()
    audit.record("user.sign-up", username, actor=None, detail={"email": email}, request=request)
    token = signing.dumps({"user": user.pk, "email": email}, salt=_SALT)
    mail.send(email, "confirmation", username=username, link=mail.link(request, "confirm", token=token))


def _take_letter(request: HttpRequest, email: str) -> None:
    throttle.take("letter-to", email.lower(), most=_LETTERS_PER_ADDRESS)
    throttle.take("letter-from", audit.address_of(request) or "", most=_LETTERS_PER_CALLER)


def _forget_unconfirmed(username: str, email: str) -> None:
    """What nobody confirmed blocks neither its address nor, after a day, its name."""
    unconfirmed = User.objects.filter(awaiting=Awaiting.CONFIRMATION)
    if email:
        unconfirmed.filter(email__iexact=email).delete()
    unconfirmed.filter(username__iexact=username, date_joined__lt=wall_clock() - CONFIRMATION_LIFE).delete()


def to_confirm(token: str) -> User:
    """The account that a letter's link opens. Raises Conflict where it is too old or done, NotFound for nonsense."""
    try:
        kept = signing.loads(token, salt=_SALT, max_age=CONFIRMATION_LIFE)
    except signing.SignatureExpired:
        raise Conflict(_OVER) from None
    except signing.BadSignature:
        raise NotFound("This is not a whole link. Copy all of it from the letter.") from None
    user = User.objects.filter(pk=kept["user"], email=kept["email"], awaiting=Awaiting.CONFIRMATION).first()
    if user is None:
        raise Conflict(_OVER)
    return user


@transaction.atomic
def confirm(*, token: str, password: str, request: HttpRequest) -> User:
    """Confirm the address, by who knows the password of the account too: else the owner of an address could be talked
    into confirming an account that somebody else holds.

    Raises like ``to_confirm``, and ValidationFailed, TooManyRequests.
    """
    user = to_confirm(token)
    throttle.take("confirm", str(user.pk), most=_LETTERS_PER_CALLER)
    if not user.check_password(password):
        raise ValidationFailed({"password": ["This is not the password that the account was opened with."]})
    waits = settings.SIGN_UP == APPROVAL
    user.awaiting = Awaiting.APPROVAL if waits else ""
    user.is_active = not waits
    user.email_confirmed = wall_clock()
    user.save(update_fields=["awaiting", "is_active", "email_confirmed"])
    audit.record("user.confirm", user.username, actor=user, request=request)
    if waits:
        _tell_admins(user, request)
    else:
        ensure_personal_namespace(user)
    return user


# --- Approval --------------------------------------------------------------------------------------------------------
def _tell_admins(user: User, request: HttpRequest) -> None:
    link = mail.link(request, "waiting-accounts")
    for admin in User.objects.filter(is_superuser=True, is_active=True).exclude(email=""):
        mail.send(admin.email, "waiting", username=user.username, email=user.email, link=link)


def waiting_accounts() -> QuerySet[User]:
    """Those that an admin has to let in, the one that waits longest first."""
    return User.objects.filter(awaiting=Awaiting.APPROVAL).order_by("email_confirmed", "pk")


@transaction.atomic
def approve(*, actor: User, username: str, request: HttpRequest) -> User:
    """Let an account in that waits for it. Raises Forbidden, NotFound."""
    user = _waiting(actor, username)
    user.awaiting, user.is_active = "", True
    user.save(update_fields=["awaiting", "is_active"])
    ensure_personal_namespace(user)
    audit.record("user.approve", username, actor=actor, request=request)
    mail.send(user.email, "approved", username=username, link=mail.link(request, "sign-in"))
    return user


@transaction.atomic
def refuse(*, actor: User, username: str, request: HttpRequest) -> None:
    """Keep an account out that waits to be let in: it is closed, its name and address stay taken.

    Raises Forbidden, NotFound.
    """
    user = _waiting(actor, username)
    user.awaiting = ""
    user.save(update_fields=["awaiting"])
    audit.record("user.refuse", username, actor=actor, request=request)


def _waiting(actor: User, username: str) -> User:
    require_admin(actor)
    user = waiting_accounts().filter(username=username).first()
    if user is None:
        raise NotFound(f"No account {username!r} waits to be let in.")
    return user


# --- Passwords -------------------------------------------------------------------------------------------------------
def send_reset(*, email: str, request: HttpRequest) -> None:
    """Send the letter with which a password is chosen anew, if an account has this address.

    Raises ValidationFailed without one, TooManyRequests.
    """
    if not email:
        raise ValidationFailed({"email": [_NO_ADDRESS]})
    _take_letter(request, email)
    user = User.objects.filter(email__iexact=email, is_active=True, service_of=None).first()
    if user is None:
        return
    mail.send(user.email, "reset", username=user.username, link=_password_link(user, request))
    audit.record("password.letter", user.username, actor=None, request=request)


def send_welcome(user: User, request: HttpRequest) -> None:
    """Send the letter with which the owner of an account that an admin has opened chooses a password."""
    again = mail.link(request, "reset-password")
    mail.send(user.email, "welcome", username=user.username, link=_password_link(user, request), again=again)


def _password_link(user: User, request: HttpRequest) -> str:
    """It works once, and for as long as PASSWORD_RESET_TIMEOUT says."""
    names = {"who": urlsafe_base64_encode(str(user.pk).encode()), "token": default_token_generator.make_token(user)}
    return mail.link(request, "new-password", **names)


def to_reset(who: str, token: str) -> User:
    """The account whose letter this link was in. Raises Conflict where it is too old or was used."""
    try:
        user = User.objects.filter(pk=int(force_str(urlsafe_base64_decode(who))), is_active=True).first()
    except (ValueError, OverflowError):
        user = None
    if user is None or not default_token_generator.check_token(user, token):
        raise Conflict(_OVER)
    return user


@transaction.atomic
def set_password(*, actor: User | None, user: User, password: str, request: HttpRequest | None = None) -> None:
    """Another password: every session of the account ends, and its sockets close. Raises ValidationFailed."""
    try:
        validate_password(password, user)
    except FieldError as error:
        raise ValidationFailed({"password": error.messages}) from None
    user.set_password(password)
    user.save(update_fields=["password"])
    audit.record("password.change", user.username, actor=actor, request=request)
    wake_sockets([user.pk])
