"""Keys of the control channel, derived per attempt from the portal's secret keys and stored nowhere in the database."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.utils.crypto import salted_hmac

_SALT = "jobs.control-key"


def current(attempt_id: str) -> str:
    """Return the key for an attempt that is launched now."""
    return _derived(attempt_id, settings.SECRET_KEY)


def accepted(attempt_id: str) -> Iterator[str]:
    """Yield the keys that an agent may hold: of the present secret key, then of the earlier ones.

    So a rotation of the secret key does not cut off running jobs.
    """
    for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        yield _derived(attempt_id, secret)


def _derived(attempt_id: str, secret: str) -> str:
    return salted_hmac(_SALT, attempt_id, secret=secret, algorithm="sha256").hexdigest()
