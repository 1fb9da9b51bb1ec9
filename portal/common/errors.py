"""The errors that a person may see, as one tree, each with a stable code and an HTTP status. ``portal.common.problems``
maps them.

RegattaError
├── ValidationFailed   422  validation_failed   fields and what is wrong with each
├── NotSignedIn        401  not_signed_in
├── Forbidden          403  forbidden           the role is too small for something the actor may see
├── NotFound           404  not_found           also for everything that belongs to somebody else
├── Conflict           409  conflict            the thing's state does not allow it now
│   ├── QuotaExceeded  409  quota_exceeded      can never fit; with the numbers
│   └── StaleAttempt   409  stale_attempt       a report from an attempt that has been replaced
├── TooLarge           413  too_large
├── TooManyRequests    429  throttled           with retry_after in seconds
└── Unavailable        503  unavailable         the database cannot serve it now; with retry_after in seconds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from portal.common.messages import requests as requests_messages
from runtime.messages.composition import prefixed


class RegattaError(Exception):
    """Base of the errors that callers see. ``detail`` is a message that says what to do next."""

    code = "error"
    status = 400

    def __init__(self, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = extra


class ValidationFailed(RegattaError):
    """The input is invalid. ``errors`` maps a field's path (``roles.trainer.memory``) to its messages."""

    code = "validation_failed"
    status = 422

    def __init__(self, errors: Mapping[str, Sequence[str]], detail: str = "") -> None:
        first = next(
            (prefixed(field, messages[0]) for field, messages in errors.items()), requests_messages.INPUT_INVALID()
        )
        super().__init__(detail or first)
        self.errors = {field: list(messages) for field, messages in errors.items()}


class NotSignedIn(RegattaError):
    code = "not_signed_in"
    status = 401


class Forbidden(RegattaError):
    code = "forbidden"
    status = 403


class NotFound(RegattaError):
    code = "not_found"
    status = 404


class Conflict(RegattaError):
    code = "conflict"
    status = 409


class QuotaExceeded(Conflict):
    code = "quota_exceeded"


class StaleAttempt(Conflict):
    code = "stale_attempt"


class TooLarge(RegattaError):
    code = "too_large"
    status = 413


class TooManyRequests(RegattaError):
    code = "throttled"
    status = 429

    def __init__(self, detail: str, *, retry_after: float) -> None:
        super().__init__(detail, retry_after=retry_after)


class Unavailable(RegattaError):
    code = "unavailable"
    status = 503

    def __init__(self, detail: str, *, retry_after: float) -> None:
        super().__init__(detail, retry_after=retry_after)
