"""Record of e-mails whose sending failed, for the operator. It holds no address, no content and no text of an error.

One row per e-mail, updated at each try. The newest ``MOST_ROWS`` of the last ``KEEP`` stay.
"""

from __future__ import annotations

import logging
import smtplib
from datetime import datetime, timedelta

from django.db import transaction

from rbac.models import FailedEmail, OutgoingEmail

KEEP = timedelta(days=30)
MOST_ROWS = 1000
_ERROR_LENGTH = 100
_log = logging.getLogger(__name__)


def record_failure(row: OutgoingEmail, error: Exception, now: datetime, next_try: datetime | None) -> None:
    """Record a failed try of an e-mail of the queue. ``next_try``: None if it was given up.

    A failure to record is logged; the e-mail is tried again in any case.
    """
    values = {"last": now, "tries": row.tries + 1, "error": class_of(error), "next_try": next_try}
    new = {**values, "first": now, "template": row.template, "domain": domain_of(row.to)}
    try:
        with transaction.atomic():
            FailedEmail.objects.update_or_create(email=row, defaults=values, create_defaults={**new, "email": row})
    except Exception:  # noqa: BLE001  whatever a database may raise
        _log.warning("The failure of an e-mail could not be recorded.", exc_info=True)


def record_success(row: OutgoingEmail, now: datetime) -> None:
    """Record that an e-mail was sent after it had failed."""
    FailedEmail.objects.filter(email=row).update(sent=now, next_try=None)


def record_trial(to: str, error: Exception, now: datetime) -> None:
    """Record that a test e-mail, which is not queued, failed."""
    FailedEmail.objects.create(
        template="trial", domain=domain_of(to), first=now, last=now, tries=1, error=class_of(error)
    )


def send_again(failure_id: int, now: datetime) -> bool:
    """Make a waiting e-mail due now. Return False if it no longer waits, or if a process is sending it: nothing is sent
    twice."""
    failure = FailedEmail.objects.filter(pk=failure_id, sent=None).first()
    if failure is None or failure.email_id is None or failure.next_try is None:
        return False
    with transaction.atomic():
        waits = OutgoingEmail.objects.filter(pk=failure.email_id, due=failure.next_try)
        if not waits.update(due=now):
            return False
        FailedEmail.objects.filter(pk=failure.pk).update(next_try=now)
    return True


def prune(now: datetime) -> None:
    """Remove old rows, and the oldest beyond ``MOST_ROWS``."""
    FailedEmail.objects.filter(last__lt=now - KEEP).delete()
    beyond = list(FailedEmail.objects.order_by("-pk").values_list("pk", flat=True)[MOST_ROWS : MOST_ROWS + 1])
    if beyond:
        FailedEmail.objects.filter(pk__lte=beyond[0]).delete()


def domain_of(address: str) -> str:
    """Return the domain of an address."""
    return address.rpartition("@")[2].lower()[:254]


def class_of(error: Exception) -> str:
    """Return the class of an error, with the mail server's status if it has one."""
    status = f" {error.smtp_code}" if isinstance(error, smtplib.SMTPResponseException) else ""
    return f"{type(error).__name__}{status}"[:_ERROR_LENGTH]
