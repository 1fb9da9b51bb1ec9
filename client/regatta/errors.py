"""What can go wrong, as types, and the exit code that the command gives for each.

PortalError                 1
├── NotSignedIn             3  no token, or one that is no longer taken
├── Missing                 4  there is no such thing, or it belongs to somebody else
├── QuotaExceeded           5  it can never fit into the namespace
├── Unreachable             6  no answer, or one that is not the portal's
│   └── ServerFailed        6  the portal answered that it could not, and went on saying so
├── Refused                 1  the portal understood and said no (validation, state, role)
│   └── TooOld              6  this release and the portal's do not speak with each other
├── BadFile                 2  a file of the caller's that cannot be used
├── NoSuchContext           2  a context of the configuration that was named and is not there
├── NotInstalled            1  an optional package that is wanted for this
└── NotFinished           101  the job was still going when the time was up
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# How a job ended, as the command's exit code. A state that is not here is not an end.
EXIT_OF_STATE: Mapping[str, int] = {"SUCCEEDED": 0, "FAILED": 100, "CANCELLED": 103}
EXIT_NOT_FINISHED = 101


class PortalError(Exception):
    """Something that the caller should be told. ``code`` is the portal's stable name for it, ``detail`` a message."""

    exit_code = EXIT_ERROR

    def __init__(self, detail: str, *, code: str = "", status: int = 0, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.body = dict(body or {})

    @property
    def fields(self) -> dict[str, Sequence[str]]:
        """What is wrong with each field, where the portal refused the input."""
        errors = self.body.get("errors", {})
        return dict(errors) if isinstance(errors, Mapping) else {}


class NotSignedIn(PortalError):
    exit_code = 3


class Missing(PortalError):
    exit_code = 4


class QuotaExceeded(PortalError):
    exit_code = 5


class Unreachable(PortalError):
    exit_code = 6


class ServerFailed(Unreachable):
    pass


class TooOld(Unreachable):
    pass


class Refused(PortalError):
    pass


class BadFile(PortalError):
    exit_code = EXIT_USAGE


class NoSuchContext(PortalError):
    exit_code = EXIT_USAGE


class NotInstalled(PortalError):
    pass


class NotFinished(PortalError):
    exit_code = EXIT_NOT_FINISHED
