"""Password hashing with bounded load: few hashes at once, each on one core."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from django.contrib.auth.hashers import Argon2PasswordHasher

from portal.common.errors import TooManyRequests
from rbac import messages

# Half of the cores stay free for other requests of the process.
AT_ONCE = max(1, len(os.sched_getaffinity(0)) // 2)
WAIT_SECONDS = 15.0
_slots = threading.BoundedSemaphore(AT_ONCE)


@contextlib.contextmanager
def slot() -> Iterator[None]:
    """Hold one of ``AT_ONCE`` slots. Raises TooManyRequests when none is free within ``WAIT_SECONDS``."""
    if not _slots.acquire(timeout=WAIT_SECONDS):
        raise TooManyRequests(messages.TOO_MANY_PASSWORD_CHECKS(seconds=f"{WAIT_SECONDS:g}"), retry_after=WAIT_SECONDS)
    try:
        yield
    finally:
        _slots.release()


class BoundedArgon2PasswordHasher(Argon2PasswordHasher):
    """Argon2id with Django's cost in time and memory, but one lane: eight would be eight threads for each sign-in."""

    parallelism = 1

    def encode(self, *args: Any, **options: Any) -> str:
        with slot():
            return str(super().encode(*args, **options))

    def verify(self, *args: Any, **options: Any) -> bool:
        with slot():
            return bool(super().verify(*args, **options))
