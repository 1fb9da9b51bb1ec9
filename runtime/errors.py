"""What can go wrong in the runtime. Every message is a message that says what to do next."""

from __future__ import annotations

import errno

# Errors of system calls that pass: descriptors, memory or buffers are used up, for this process or the machine.
TEMPORARY = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR})


class RegattaError(Exception):
    """The root of the runtime's errors."""


class UsageError(RegattaError):
    """User code called the runtime in a way that cannot work; the message says what to write instead."""


class MixedReleases(RegattaError):
    """Two processes of a job run different releases of the runtime."""


class WireError(RegattaError):
    """Bytes that are no frame of ours, or a peer that speaks another protocol."""


class Refused(RegattaError):
    """A peer understood the request and said no. ``code`` is stable, ``why`` is for people."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class Lost(RegattaError):
    """A process that this one needs is gone, or this one has been replaced. End with ``contract.EXIT_RESTART``."""


class Leaving(RegattaError):
    """This process was asked to end (SIGTERM) while it waited for another."""
