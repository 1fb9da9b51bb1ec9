"""Limits on password guessing: by name and network (django-axes), and by network alone.

A guess costs the portal a slow hash, and one network with many names would never reach the limit of a single name.
"""

from __future__ import annotations

import contextlib
import logging
from datetime import datetime, timedelta

from axes.models import AccessAttempt
from django.conf import settings
from django.http import HttpRequest

from portal.common.errors import TooManyRequests, ValidationFailed
from rbac import messages, throttle
from rbac.audit import log as audit_log
from rbac.audit.context import address_of
from rbac.models import Outcome, User

EVERY = timedelta(hours=1)
# An attempt counts for AXES_COOLOFF_TIME, and is stored somewhat longer for investigations.
STORED = timedelta(days=1)
# Wrong attempts at an account's current password, per hour.
PRESENT_PASSWORD_TRIES = 10
_KIND = "sign-in-from"
_PRESENT = "present-password"
_log = logging.getLogger(__name__)


def network_of(request: HttpRequest | None) -> str | None:
    """Return the network of a request, as django-axes stores it."""
    address = address_of(request.META.get("REMOTE_ADDR", "")) if request is not None else None
    return throttle.network_of(address) or None


def count(request: HttpRequest) -> None:
    """Count one attempt of the request's network. Raises TooManyRequests; only the first refusal leaves a row in the
    audit log."""
    network = network_of(request) or ""
    _most, window = settings.SIGN_IN_NETWORK_RATE
    try:
        throttle.take_of(_KIND, network, settings.SIGN_IN_NETWORK_RATE)
    except TooManyRequests:
        with contextlib.suppress(TooManyRequests):
            throttle.take(f"{_KIND}-noted", network, most=1, seconds=window.total_seconds())
            audit_log.record("sign-in.throttle", network, actor=None, outcome=Outcome.REFUSED)
        raise


def uncount(request: HttpRequest) -> None:
    """Uncount this attempt: it was no guess."""
    throttle.refund(_KIND, network_of(request) or "")


def check_present_password(user: User, password: str) -> None:
    """Check the current password of an account.

    Raises ValidationFailed for a wrong password, and TooManyRequests after ``PRESENT_PASSWORD_TRIES`` of them in an
    hour: a session that was left open, or stolen, must not allow guessing.
    """
    throttle.take(_PRESENT, str(user.pk), most=PRESENT_PASSWORD_TRIES)
    if not user.check_password(password):
        raise ValidationFailed({"old": [messages.OLD_PASSWORD_WRONG()]})
    throttle.refund(_PRESENT, str(user.pk))


def prune_attempts(now: datetime) -> int:
    """Delete the attempts of django-axes that no longer count; return how many."""
    age = max(STORED, settings.AXES_COOLOFF_TIME)
    deleted, _ = AccessAttempt.objects.filter(attempt_time__lt=now - age).delete()
    return int(deleted)


class SignInAttempts:
    """The sweep's part; it runs at most every hour, however often it is called. Never raises."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def when_due(self, now: datetime) -> None:
        if self._next is not None and now < self._next:
            return
        self._next = now + EVERY
        try:
            prune_attempts(now)
        except Exception:  # noqa: BLE001  this must not stop the sweep; it is tried again in an hour
            _log.exception("Old attempts to sign in could not be deleted.")
