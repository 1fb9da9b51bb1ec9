"""Exceptions of the runtime. Every message names what to do next."""

from __future__ import annotations

import errno

# Errors of system calls that are temporary: descriptors, memory or buffers of the process or the machine are used up.
TEMPORARY = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR})


class RegattaError(Exception):
    """Base class of the runtime's errors."""


class UsageError(RegattaError):
    """User code called the runtime in a way that cannot work. The message names what to write instead."""


class MixedReleases(RegattaError):
    """Two processes of a job run different releases of the runtime."""


class WireError(RegattaError):
    """Bytes that are not a valid frame, or a peer with another protocol."""


class Refused(RegattaError):
    """A peer understood the request and refused it. ``code`` is stable; ``why`` is for people."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class Lost(RegattaError):
    """A process that this one needs is gone, or this one has been replaced. Exit with ``contract.EXIT_RESTART``."""


class Leaving(RegattaError):
    """This process was asked to end (SIGTERM) while it waited for another process."""
