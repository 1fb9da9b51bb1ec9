"""Version of this client, and whether it is compatible with the portal."""

from __future__ import annotations

from collections.abc import Mapping

from regatta.errors import TooOld

VERSION = "0.1.0"
# Response headers of the portal; a portal without them is accepted.
THEIRS, OLDEST = "Regatta-Version", "Regatta-Oldest-Client"


def check(headers: Mapping[str, str]) -> None:
    """Raise TooOld if this release is older than the oldest that the portal supports, or a major release newer than the
    portal."""
    oldest, theirs = headers.get(OLDEST, ""), headers.get(THEIRS, "")
    if _numbers(VERSION) < _numbers(oldest):
        raise TooOld(
            f"This command is release {VERSION}, and the portal ({theirs}) needs {oldest} or newer. "
            "Install it from the portal's own sources: pip install --upgrade ./client"
        )
    if theirs and _numbers(VERSION)[:1] > _numbers(theirs)[:1]:
        raise TooOld(
            f"This command is release {VERSION}, and the portal is {theirs}, which is not compatible. "
            f"Install the release of the portal: pip install ./client"
        )


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release; empty if it is not a release."""
    parts = version.split("+")[0].split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()
