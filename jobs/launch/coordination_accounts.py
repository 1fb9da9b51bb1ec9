"""Accounts of attempts in the coordination store: the installation's etcd, or a store that the backend creates.

In the package ``jobs`` only this module connects to the coordination store, and only to open and close an attempt's
account and to clean up: jobs have no access to the whole of etcd. All operations are idempotent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from django.utils.crypto import salted_hmac

from jobs.backends.base import AttemptRef, LaunchFailed
from jobs.lifecycle.states import TERMINAL
from jobs.messages import cluster as messages
from jobs.models import Attempt, Job
from runtime.messages import paragraph

# Interval of the clean-up. The history in etcd covers at least this time, and at most twice as much.
EVERY = timedelta(minutes=5)
# Seconds before a store that did not answer is called again: otherwise each job in turn would wait for it.
RETRY_AFTER_SECONDS = 5.0

_log = logging.getLogger(__name__)


def guard() -> bool:
    """Enable authentication in the installation's etcd if the settings contain an account. False: nothing to do.

    Raises CoordinationError.
    """
    if "@" not in settings.COORDINATION:
        return False
    from runtime.coordination import etcd_accounts

    return etcd_accounts.guard(settings.COORDINATION)


def change_password(password: str) -> None:
    """Give the account of the settings another password in etcd. The settings must get it afterwards.

    Raises CoordinationError.
    """
    from runtime.coordination import etcd_accounts

    etcd_accounts.change_password(settings.COORDINATION, password)


def unpatched() -> dict[str, str]:
    """Return the servers of the installation's etcd that obey callers without an account, with their versions."""
    if "@" not in settings.COORDINATION:
        return {}
    from runtime.coordination import etcd_probe

    return etcd_probe.open_servers(settings.COORDINATION)


def arrange(ref: AttemptRef) -> str:
    """Return the store's address for the attempt's agents, with a user of the attempt if etcd requires one.

    Empty if the backend creates the store. Raises LaunchFailed with a message.
    """
    if not settings.COORDINATION:
        return ""
    # Imported here and below: a portal without etcd needs no client of it.
    from runtime.coordination.base import CoordinationError, StoreUnavailable
    from runtime.coordination.etcd_accounts import open_account

    try:
        _OUTAGE.check(settings.COORDINATION)
        return open_account(settings.COORDINATION, ref.job_id, ref.number, _password(ref), settings.COORDINATION_JOBS)
    except CoordinationError as error:
        passing = isinstance(error, StoreUnavailable)
        if passing:
            _OUTAGE.note(settings.COORDINATION, str(error))
        raise LaunchFailed(paragraph(messages.COORDINATION_STORE_UNUSABLE(), error), retryable=passing) from error


class _RecentOutage:
    """The last store that did not answer, and the error message."""

    def __init__(self) -> None:
        self._last = ("", "", 0.0)  # address, message, when

    def note(self, address: str, why: str) -> None:
        known, _, at = self._last
        if known != address or time.monotonic() > at + RETRY_AFTER_SECONDS:
            self._last = (address, why, time.monotonic())

    def check(self, address: str) -> None:
        """Raises StoreUnavailable."""
        from runtime.coordination.base import StoreUnavailable

        known, why, at = self._last
        if known == address and time.monotonic() <= at + RETRY_AFTER_SECONDS:
            raise StoreUnavailable(why)


_OUTAGE = _RecentOutage()


def clear(ref: AttemptRef) -> None:
    """Remove the attempt's account and keys from the installation's etcd. A later sweep removes what is left."""
    if settings.COORDINATION:
        _close(ref.job_id, ref.number)


class AccountCleanup:
    """Removes the accounts of ended attempts from etcd and compacts its history, at most every five minutes."""

    def __init__(self) -> None:
        self._next: datetime | None = None
        self._revision = 0

    def when_due(self, now: datetime) -> None:
        """Clean up if it is due. If etcd is not available, the next interval tries again."""
        if not settings.COORDINATION or (self._next is not None and now < self._next):
            return
        self._next = now + EVERY
        from runtime.coordination.base import CoordinationError
        from runtime.coordination.etcd_accounts import known_attempts
        from runtime.coordination.etcd_compaction import compact

        try:
            for job_id, number in ended(known_attempts(settings.COORDINATION)):
                _close(job_id, number)
            self._revision = compact(settings.COORDINATION, self._revision)
        except CoordinationError as error:
            _log.warning("etcd could not be tidied up. %s", error)


def left_by_unknown_attempts() -> list[tuple[str, int]]:
    """Remove from etcd what attempts have left that the database does not have, although it has their jobs.

    Return them as (job id, number). An etcd that does not answer is left as it is.
    """
    if not settings.COORDINATION:
        return []
    from runtime.coordination.base import CoordinationError
    from runtime.coordination.etcd_accounts import known_attempts

    try:
        known = known_attempts(settings.COORDINATION)
    except CoordinationError as error:
        _log.warning("What unknown attempts have in etcd could not be removed. %s", error)
        return []
    jobs = {str(pk) for pk in Job.objects.values_list("pk", flat=True)}
    present = {(str(job), number) for job, number in Attempt.objects.values_list("job_id", "number")}
    found = sorted(one for one in known if one[0] in jobs and one not in present)
    for job_id, number in found:
        _close(job_id, number)
    return found


def ended(attempts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the attempts, (job id, number), that are over. Unknown attempts may belong to another portal."""
    known = {
        (str(attempt.job_id), attempt.number): attempt.job.state in TERMINAL or attempt.number < attempt.job.attempt
        for attempt in Attempt.objects.select_related("job").filter(number__in={number for _, number in attempts})
    }
    return sorted(attempt for attempt in attempts if known.get(attempt))


def _close(job_id: str, number: int) -> None:
    from runtime.coordination.base import CoordinationError
    from runtime.coordination.etcd_accounts import close_account

    try:
        close_account(settings.COORDINATION, job_id, number)
    except CoordinationError as error:
        _log.warning("What attempt %d of job %s has in etcd could not be removed. %s", number, job_id, error)


def _password(ref: AttemptRef) -> str:
    """Return the attempt's password. It is derived, so that a second launch gives the agents the same one."""
    return salted_hmac("jobs.attempt-coordination", ref.attempt_id, algorithm="sha256").hexdigest()
