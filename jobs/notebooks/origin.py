"""The origin of a notebook: a host name of its own, which is never the portal's.

The pages of a notebook are code of users. On another origin they can neither read pages of the portal nor call its API
with the session of the person that looks at them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings

# A host and a port, as browsers write them. A name of an origin has no user, path or comment.
_HOST = re.compile(r"([A-Za-z0-9._-]{1,255})\.?(:[0-9]{1,5})?")
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Place:
    """A host below the domain of notebooks. ``notebook``: None if it is none of a notebook. ``host``: as requested."""

    host: str
    notebook: UUID | None


def place_of(host: str) -> Place | None:
    """Return the notebook that a Host header names; None for a host that is not below the domain of notebooks."""
    found = _HOST.fullmatch(host)
    if found is None:
        return None
    label, _, domain = found[1].lower().rstrip(".").partition(".")
    own = settings.NOTEBOOK_HOSTS.partition(".")[2]
    if domain != own and not domain.endswith(f".{own}"):
        return None
    is_notebook = domain == own and _ID.fullmatch(label) is not None and not found[0].endswith(".")
    return Place(host.lower(), UUID(label) if is_notebook else None)


def url_of(notebook_id: UUID, portal: str) -> str:
    """Return the origin of the notebook, with the scheme and the port of the portal's own origin."""
    parts = urlsplit(portal)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{settings.NOTEBOOK_HOSTS.replace('{id}', notebook_id.hex)}{port}"


def scheme() -> str:
    return "https" if settings.HTTPS else "http"


def cookie_name() -> str:
    """Return the name of the cookie of a notebook's session. With HTTPS no other host can set one of that name."""
    return "__Host-notebook" if settings.HTTPS else "regatta-notebook"
