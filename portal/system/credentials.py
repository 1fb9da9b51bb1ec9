"""Expiry of the portal's own credentials: the service account's token and those of image registries."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings

from portal.system import observations as seen

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
# Fields of an entry of a Docker configuration file that hold a token.
_TOKEN_FIELDS = ("identitytoken", "registrytoken", "password")
_LARGEST_FILE = 1 << 20


def credentials() -> list[seen.Observation]:
    """Return the credentials that this process can read. Their values are not returned."""
    found: list[seen.Observation] = []
    if token := _read(SERVICE_ACCOUNT):
        found.append(seen.Credential("service-account", expiry(token.strip()), renewed=True))
    paths = {settings.REGISTRY_CREDENTIALS, settings.KUBERNETES_PULL_CREDENTIALS} - {""}
    if texts := [text for path in sorted(paths) if (text := _read(Path(path)))]:
        dates = [date for text in texts for date in expiries_of_registries(text)]
        found.append(seen.Credential("registry", min(dates, default=None)))
    return found


def expiries_of_registries(text: str) -> list[datetime]:
    """Return the expiry dates in a Docker configuration file. Unreadable entries have none."""
    try:
        document = json.loads(text)
    except ValueError:
        return []
    auths = document.get("auths") if isinstance(document, Mapping) else None
    entries = auths.values() if isinstance(auths, Mapping) else ()
    tokens = [token for entry in entries if isinstance(entry, Mapping) for token in _tokens(entry)]
    return [date for token in tokens if (date := expiry(token)) is not None]


def _tokens(entry: Mapping[str, Any]) -> Iterator[str]:
    yield from (str(entry[name]) for name in _TOKEN_FIELDS if entry.get(name))
    if entry.get("auth"):
        yield _decoded(str(entry["auth"])).partition(":")[2]


def expiry(token: str) -> datetime | None:
    """Return the expiry date in a token: the claim ``exp`` of a JWT, or ``expiration`` of a token of Amazon's registry;
    None if it carries none."""
    parts = token.split(".")
    try:
        claims = json.loads(_decoded(parts[1] if len(parts) == 3 else token))
        date = claims.get("exp", claims.get("expiration")) if isinstance(claims, Mapping) else None
        return None if date is None else datetime.fromtimestamp(float(date), UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        return None


def _decoded(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST_FILE)
    except OSError:
        return ""
