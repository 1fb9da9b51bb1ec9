"""Exceptions, and the exit code of the command for each.

PortalError                 1
├── NotSignedIn             3  no token, or one that is no longer valid
├── Missing                 4  the object does not exist or belongs to another account
├── QuotaExceeded           5  the job can never fit into the namespace
├── Unreachable             6  no response, or one that is not the portal's
│   └── ServerFailed        6  the portal reported a server error, also after retries
├── Refused                 1  the portal refused the request (validation, state, role)
│   └── TooOld              6  this release and the portal's are incompatible
├── BadFile                 2  a local file that cannot be used
├── NoSuchContext           2  a context that was named and is not in the configuration
├── NotInstalled            1  an optional package that this needs
└── NotFinished           101  the job was still running at the timeout
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# Exit code of the command by the final state of a job. Other states are not final.
EXIT_OF_STATE: Mapping[str, int] = {"SUCCEEDED": 0, "FAILED": 100, "CANCELLED": 103}
EXIT_NOT_FINISHED = 101


class PortalError(Exception):
    """Error to report to the caller. ``code`` is the portal's stable error code, ``detail`` a message."""

    exit_code = EXIT_ERROR

    def __init__(self, detail: str, *, code: str = "", status: int = 0, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.body = dict(body or {})

    @property
    def fields(self) -> dict[str, Sequence[str]]:
        """Messages for each invalid field if the portal refused the input."""
        errors = self.body.get("errors", {})
        return dict(errors) if isinstance(errors, Mapping) else {}

    def _render_traceback_(self) -> list[str]:
        """Lines that a notebook shows instead of the frames of this package."""
        fields = (f"  {name}: {' '.join(messages)}" for name, messages in self.fields.items())
        return [f"{type(self).__name__}: {self.detail}", *fields]


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
