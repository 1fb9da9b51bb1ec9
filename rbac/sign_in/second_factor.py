"""The second factor: codes of an authenticator app (TOTP, RFC 6238, by django-otp), and recovery codes for the day on
which the telephone is lost. A code is good once; guessing is slowed down by a growing pause."""

from __future__ import annotations

import secrets
from base64 import b32encode

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest
from django_otp.plugins.otp_totp.models import TOTPDevice

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotSignedIn, TooManyRequests, ValidationFailed
from rbac.audit import log as audit_log
from rbac.models import RecoveryCode, User
from rbac.selectors import digest_of

RECOVERY_CODES = 10
_ISSUER = "Regatta"
_PAUSE_SECONDS = 30.0
# 80 random bits: a fast digest is enough for what cannot be guessed, with the table at hand too. A key in the settings
# would add nothing but codes that are lost when it is replaced. Codes of earlier versions (40 bits) stay good.
_CODE_BYTES = 10
_THERE_IS_ONE = "You have a second factor. Switch it off before you set up another one."
_WRONG = "The code is wrong, or it was used already. Wait for the next one."


# --- Reading ---------------------------------------------------------------------------------------------------------
def device_of(user: User) -> TOTPDevice | None:
    """The account's authenticator; None where it has no second factor."""
    device: TOTPDevice | None = TOTPDevice.objects.filter(user=user, confirmed=True).first()
    return device


def is_owed(user: User) -> bool:
    """Whether the platform asks this account for a second factor that it does not have yet."""
    return bool(settings.ADMIN_SECOND_FACTOR) and user.is_admin and device_of(user) is None


def codes_left(user: User) -> int:
    """How many recovery codes have not been used."""
    return RecoveryCode.objects.filter(user=user, used=None).count()


def key_of(device: TOTPDevice) -> str:
    """The key as people type it: base32 in groups of four."""
    plain = b32encode(device.bin_key).decode().rstrip("=")
    return " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))


def picture_of(device: TOTPDevice) -> str:
    """The QR code that an app reads, as the address of a picture (``data:image/svg+xml``)."""
    import segno  # only this page needs it

    code = segno.make(device.config_url, error="m")
    return str(code.svg_data_uri(scale=5, border=3, dark="#17202c", light="#ffffff"))


# --- Setting up ------------------------------------------------------------------------------------------------------
@transaction.atomic
def begin(*, actor: User) -> TOTPDevice:
    """An authenticator to set up, with a new key: one that was shown before is worth nothing any more. It asks for
    nothing before ``confirm``.

    Raises Conflict where there is one already.
    """
    _lock(actor)
    if device_of(actor) is not None:
        raise Conflict(_THERE_IS_ONE)
    TOTPDevice.objects.filter(user=actor, confirmed=False).delete()
    device: TOTPDevice = TOTPDevice.objects.create(user=actor, confirmed=False, name=_ISSUER)
    return device


def _lock(user: User) -> None:
    """Two calls of one account come one after the other, until the transaction of the first ends."""
    User.objects.select_for_update().get(pk=user.pk)


def begun(actor: User) -> TOTPDevice:
    """The authenticator that is being set up. Raises Conflict where none is."""
    device: TOTPDevice | None = TOTPDevice.objects.filter(user=actor, confirmed=False).first()
    if device is None:
        raise Conflict("Make a key first, on the page of the second factor.")
    return device


@transaction.atomic
def confirm(*, actor: User, code: str, request: HttpRequest | None = None) -> list[str]:
    """Switch the second factor on, once the app shows the right code. Returns the recovery codes, told this once.

    Raises Conflict, ValidationFailed for a wrong code.
    """
    _lock(actor)
    if device_of(actor) is not None:
        raise Conflict(_THERE_IS_ONE)
    device = begun(actor)
    # Trying one's own key needs no slowing down.
    device.throttle_reset()
    if not device.verify_token(_digits(code)):
        raise ValidationFailed({"code": ["This is not the code that the app shows now. Try the next one."]})
    device.confirmed = True
    device.save(update_fields=["confirmed"])
    audit_log.record("second-factor.on", actor.username, actor=actor, request=request)
    return _fresh_codes(actor)


def _fresh_codes(user: User) -> list[str]:
    RecoveryCode.objects.filter(user=user).delete()
    codes = [b32encode(secrets.token_bytes(_CODE_BYTES)).decode().lower() for _ in range(RECOVERY_CODES)]
    RecoveryCode.objects.bulk_create(RecoveryCode(user=user, digest=_digest(user, code)) for code in codes)
    return ["-".join(code[at : at + 4] for at in range(0, len(code), 4)) for code in codes]


def _digest(user: User, code: str) -> str:
    return digest_of(f"{user.pk}:{code}")


def _digits(code: str) -> str:
    return "".join(code.split())


# --- Using -----------------------------------------------------------------------------------------------------------
def verify(user: User, code: str) -> None:
    """Take one code, of the app or a recovery code. Raises NotSignedIn where it is wrong, TooManyRequests after wrong
    ones."""
    device = device_of(user)
    if device is None:
        return
    if not device.verify_is_allowed()[0]:
        raise TooManyRequests("Too many wrong codes. Wait half a minute, then try again.", retry_after=_PAUSE_SECONDS)
    if _use_recovery_code(user, code):
        device.throttle_reset()
    elif not device.verify_token(_digits(code)):
        raise NotSignedIn(_WRONG)


def _use_recovery_code(user: User, code: str) -> bool:
    plain = code.replace("-", "").replace(" ", "").lower()
    unused = RecoveryCode.objects.filter(user=user, used=None, digest=_digest(user, plain))
    return unused.update(used=wall_clock()) == 1


@transaction.atomic
def renew_codes(*, actor: User, request: HttpRequest | None = None) -> list[str]:
    """New recovery codes; the old ones are worth nothing any more. Raises Conflict without a second factor."""
    if device_of(actor) is None:
        raise Conflict("You have no second factor.")
    audit_log.record("second-factor.codes", actor.username, actor=actor, request=request)
    return _fresh_codes(actor)


@transaction.atomic
def switch_off(*, actor: User, user: User, request: HttpRequest | None = None) -> None:
    """Do without: the authenticator and the recovery codes are forgotten. An admin may do it for who lost theirs.

    Raises Conflict where the platform asks admins for one and it is their own.
    """
    if actor == user and settings.ADMIN_SECOND_FACTOR and user.is_admin:
        raise Conflict("Admins need a second factor here. Ask another admin to switch yours off if you lost it.")
    TOTPDevice.objects.filter(user=user).delete()
    RecoveryCode.objects.filter(user=user).delete()
    audit_log.record("second-factor.off", user.username, actor=actor, request=request)
