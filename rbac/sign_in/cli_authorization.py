"""Authorisation of the command on a computer by a person in the browser (RFC 8252 with the proof of RFC 7636).

The browser carries a code back to the command. It is valid once, for two minutes, and only together with the verifier
whose challenge came with the request: the code alone is useless to others.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from datetime import datetime, timedelta

from django.db import transaction

from portal.common.errors import Conflict, ValidationFailed
from rbac import messages, tokens
from rbac.models import ApiToken, Connection, User
from rbac.selectors import digest_of

LIFETIME = timedelta(minutes=2)
LONGEST_NAME = 100
# SHA-256 in unpadded base64url.
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_STALE = messages.LOGIN_CODE_SPENT()
_NOT_ONE_OF_OURS = messages.LOGIN_ADDRESS_INVALID()


def check(name: str, challenge: str) -> None:
    """Raise ValidationFailed for a request that the command cannot have made."""
    if not 0 < len(name) <= LONGEST_NAME or not _CHALLENGE.fullmatch(challenge):
        raise ValidationFailed({"challenge": [_NOT_ONE_OF_OURS]})


@transaction.atomic
def grant(*, actor: User, name: str, challenge: str, days: int | None, now: datetime) -> str:
    """Return the code for the command. The grant takes effect when the code is exchanged. Raises ValidationFailed."""
    check(name, challenge)
    tokens.in_days(days, now)
    Connection.objects.filter(expires__lte=now).delete()
    code = secrets.token_urlsafe(24)
    Connection.objects.create(
        digest=digest_of(code), challenge=challenge, user=actor, name=name, days=days, expires=now + LIFETIME
    )
    return code


def exchange(*, code: str, verifier: str, now: datetime) -> tuple[ApiToken, str]:
    """Exchange a code for its token. Raises Conflict. Any attempt uses up the code, whether it succeeds or not."""
    granted = _spend(code, now)
    if granted is None or not _VERIFIER.fullmatch(verifier) or _challenge_of(verifier) != granted.challenge:
        raise Conflict(_STALE)
    if not granted.user.is_active:
        raise Conflict(_STALE)
    expires = tokens.in_days(granted.days, now)
    return tokens.create_token(actor=granted.user, name=granted.name, expires=expires)


@transaction.atomic
def _spend(code: str, now: datetime) -> Connection | None:
    """Remove and return the grant: of two requests with one code, one finds it."""
    granted = Connection.objects.select_related("user").filter(digest=digest_of(code), expires__gt=now).first()
    if granted is None or not Connection.objects.filter(pk=granted.pk).delete()[0]:
        return None
    return granted


def _challenge_of(verifier: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
