"""The second factor: codes of an authenticator app (TOTP, RFC 6238, by django-otp), and recovery codes for a lost
telephone. A code is valid once; a growing pause slows down guessing."""

from __future__ import annotations

import secrets
from base64 import b32encode

from django.conf import settings
from django.db import transaction
from django_otp.plugins.otp_totp.models import TOTPDevice

from portal.common.clock import now as wall_clock
from portal.common.errors import Conflict, NotSignedIn, TooManyRequests, ValidationFailed
from rbac import messages
from rbac.audit import log as audit_log
from rbac.models import RecoveryCode, User
from rbac.selectors import digest_of

RECOVERY_CODES = 10
_ISSUER = "Regatta"
_PAUSE_SECONDS = 30.0
# 80 random bits: a fast digest is enough for codes that cannot be guessed, even from a copy of the table. A key in the
# settings would only add that codes are lost when it is replaced. Codes of earlier versions (40 bits) stay valid.
_CODE_BYTES = 10
_THERE_IS_ONE = messages.TWO_FACTOR_ALREADY_ON()
_WRONG = messages.TWO_FACTOR_CODE_WRONG()


# --- Reading ---------------------------------------------------------------------------------------------------------
def device_of(user: User) -> TOTPDevice | None:
    """Return the account's authenticator; None without a second factor."""
    device: TOTPDevice | None = TOTPDevice.objects.filter(user=user, confirmed=True).first()
    return device


def is_owed(user: User) -> bool:
    """Return whether the platform requires a second factor that this account does not have yet."""
    return bool(settings.ADMIN_SECOND_FACTOR) and user.is_admin and device_of(user) is None


def codes_left(user: User) -> int:
    """Return how many recovery codes have not been used."""
    return RecoveryCode.objects.filter(user=user, used=None).count()


def key_of(device: TOTPDevice) -> str:
    """Return the key as people type it: base32 in groups of four."""
    plain = b32encode(device.bin_key).decode().rstrip("=")
    return " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))


def picture_of(device: TOTPDevice) -> str:
    """Return the QR code for an app, as the address of an image (``data:image/svg+xml``)."""
    import segno  # only this page needs it

    code = segno.make(device.config_url, error="m")
    return str(code.svg_data_uri(scale=5, border=3, dark="#17202c", light="#ffffff"))


# --- Setting up ------------------------------------------------------------------------------------------------------
@transaction.atomic
def begin(*, actor: User) -> TOTPDevice:
    """Return a new authenticator to set up, with a new key: an earlier key becomes invalid. No code is required before
    ``confirm``.

    Raises Conflict when the account has a second factor already.
    """
    _lock(actor)
    if device_of(actor) is not None:
        raise Conflict(_THERE_IS_ONE)
    TOTPDevice.objects.filter(user=actor, confirmed=False).delete()
    device: TOTPDevice = TOTPDevice.objects.create(user=actor, confirmed=False, name=_ISSUER)
    return device


def _lock(user: User) -> None:
    """Serialise the calls of one account until the transaction of the first ends."""
    User.objects.select_for_update().get(pk=user.pk)


def begun(actor: User) -> TOTPDevice:
    """Return the authenticator that is being set up. Raises Conflict when there is none."""
    device: TOTPDevice | None = TOTPDevice.objects.filter(user=actor, confirmed=False).first()
    if device is None:
        raise Conflict(messages.TWO_FACTOR_KEY_MISSING())
    return device


@transaction.atomic
def confirm(*, actor: User, code: str) -> list[str]:
    """Switch the second factor on, once the app shows the right code. Returns the recovery codes, only this once.

    Raises Conflict, ValidationFailed for a wrong code.
    """
    _lock(actor)
    if device_of(actor) is not None:
        raise Conflict(_THERE_IS_ONE)
    device = begun(actor)
    # Guessing the key of the own account needs no delay.
    device.throttle_reset()
    if not device.verify_token(_digits(code)):
        raise ValidationFailed({"code": [messages.TWO_FACTOR_CODE_NOT_CURRENT()]})
    device.confirmed = True
    device.save(update_fields=["confirmed"])
    audit_log.record("second-factor.on", actor.username, actor=actor)
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
    """Use one code, of the app or a recovery code. Raises NotSignedIn for a wrong code, TooManyRequests after wrong
    ones."""
    device = device_of(user)
    if device is None:
        return
    if not device.verify_is_allowed()[0]:
        raise TooManyRequests(messages.TOO_MANY_WRONG_CODES(), retry_after=_PAUSE_SECONDS)
    if _use_recovery_code(user, code):
        device.throttle_reset()
    elif not device.verify_token(_digits(code)):
        raise NotSignedIn(_WRONG)


def _use_recovery_code(user: User, code: str) -> bool:
    plain = code.replace("-", "").replace(" ", "").lower()
    unused = RecoveryCode.objects.filter(user=user, used=None, digest=_digest(user, plain))
    return unused.update(used=wall_clock()) == 1


@transaction.atomic
def renew_codes(*, actor: User) -> list[str]:
    """Return new recovery codes; the old ones become invalid. Raises Conflict without a second factor."""
    if device_of(actor) is None:
        raise Conflict(messages.TWO_FACTOR_NOT_ON())
    audit_log.record("second-factor.codes", actor.username, actor=actor)
    return _fresh_codes(actor)


@transaction.atomic
def switch_off(*, actor: User, user: User) -> None:
    """Delete the authenticator and the recovery codes. An admin may do it for a person who lost theirs.

    Raises Conflict for an admin's own second factor when the platform requires one of admins.
    """
    if actor == user and settings.ADMIN_SECOND_FACTOR and user.is_admin:
        raise Conflict(messages.TWO_FACTOR_MANDATORY())
    TOTPDevice.objects.filter(user=user).delete()
    RecoveryCode.objects.filter(user=user).delete()
    audit_log.record("second-factor.off", user.username, actor=actor)
