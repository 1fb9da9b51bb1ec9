"""Delivery of queued e-mails, separate from the requests that queued them.

An e-mail is claimed by moving its ``due`` ahead, sent, and removed: after a crash in between it is sent once more. One
that cannot be sent is tried again after growing pauses, and given up after ``TRIES_LIMIT``.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta

from django.db import close_old_connections, connection
from django.utils import translation

from portal.common.clock import now as wall_clock
from portal.common.monitoring import metrics
from rbac.emails import failed_emails, mail
from rbac.models import OutgoingEmail

# E-mails that are read and sent in one batch.
AT_ONCE = 500
TRIES_LIMIT = 10
# Longer than a mail server may take (EMAIL_TIMEOUT).
CLAIM = timedelta(minutes=2)
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=2)
_log = logging.getLogger(__name__)


class Outbox:
    """The sweep's part: sends due e-mails on a thread of its own, so that a mail server delays no sweep."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def when_due(self, now: datetime) -> None:
        """Start sending, when an e-mail is due and no thread is sending."""
        is_sending = self._thread is not None and self._thread.is_alive()
        if not is_sending and OutgoingEmail.objects.filter(due__lte=now).exists():
            self._thread = threading.Thread(target=_send_on_thread, name="outbox", daemon=True)
            self._thread.start()


def _send_on_thread() -> None:
    close_old_connections()
    try:
        send_due(wall_clock())
    except Exception:  # noqa: BLE001  the next sweep starts again
        _log.exception("Sending e-mails was cut short.")
    finally:
        connection.close()


def send_due(now: datetime) -> int:
    """Send due e-mails, the oldest first, at most ``AT_ONCE``; return how many were sent. The next sweep sends the
    rest."""
    return sum(_try(row, now) for row in OutgoingEmail.objects.filter(due__lte=now).order_by("pk")[:AT_ONCE])


def _try(row: OutgoingEmail, now: datetime) -> bool:
    mine = OutgoingEmail.objects.filter(pk=row.pk, due=row.due)
    if not mine.update(due=now + CLAIM, tries=row.tries + 1):
        return False  # another process sends it
    try:
        with translation.override(row.language):
            mail.deliver(row)
    except Exception as error:  # noqa: BLE001  whatever a mail server may raise
        _put_off(row, error, now)
        return False
    metrics.EMAILS.labels("sent").inc()
    if row.tries:
        failed_emails.record_success(row, now)
    OutgoingEmail.objects.filter(pk=row.pk).delete()
    return True


def _put_off(row: OutgoingEmail, error: Exception, now: datetime) -> None:
    given_up = row.tries + 1 >= TRIES_LIMIT
    metrics.EMAILS.labels("given_up" if given_up else "failed").inc()
    _log.warning("The e-mail %r could not be sent%s.", row.template, ", for good" if given_up else "", exc_info=True)
    next_try = None if given_up else now + min(FIRST_PAUSE * 2**row.tries, LONGEST_PAUSE)
    failed_emails.record_failure(row, error, now, next_try)
    if next_try is None:
        OutgoingEmail.objects.filter(pk=row.pk).delete()
    else:
        OutgoingEmail.objects.filter(pk=row.pk).update(due=next_try)
