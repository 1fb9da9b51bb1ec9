"""Where the processes of an attempt meet: in the installation's etcd, or in a store that the backend makes for them.

Of the room ``jobs`` only this module speaks to the coordination store, and only to open and to close what an attempt
has there. Both may be done twice.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.utils.crypto import salted_hmac

from jobs.backends.base import AttemptRef, LaunchFailed

_log = logging.getLogger(__name__)


def arrange(ref: AttemptRef) -> str:
    """The address for the attempt's agents, with a user of its own where etcd asks for one.

    Empty where the backend is to see to it. Raises LaunchFailed with a sentence.
    """
    if not settings.COORDINATION:
        return ""
    # Here and below, since a portal without etcd needs no client of it.
    from runtime.coordination.accounts import open_account
    from runtime.coordination.base import CoordinationError, StoreUnavailable

    try:
        return open_account(settings.COORDINATION, ref.job_id, ref.number, _password(ref))
    except CoordinationError as error:
        passing = isinstance(error, StoreUnavailable)
        raise LaunchFailed(f"The coordination store cannot be used. {error}", retryable=passing) from error


def clear(ref: AttemptRef) -> None:
    """Remove what the attempt has in the installation's etcd. What cannot be removed now stays and does no harm."""
    if not settings.COORDINATION:
        return
    from runtime.coordination.accounts import close_account
    from runtime.coordination.base import CoordinationError

    try:
        close_account(settings.COORDINATION, ref.job_id, ref.number)
    except CoordinationError as error:
        _log.warning("What attempt %d of job %s has in etcd could not be removed. %s", ref.number, ref.job_id, error)


def _password(ref: AttemptRef) -> str:
    """Derived, so that a second launch gives the agents the same one."""
    return salted_hmac("jobs.attempt-coordination", ref.attempt_id, algorithm="sha256").hexdigest()
