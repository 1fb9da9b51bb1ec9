"""Removal of secrets from texts that leave the portal.

Reports contain no values of secret settings in the first place. This is the second line: texts of logs and errors may
quote one. ``Redaction`` removes each known secret, also URL-encoded or in base64, and every password in an address.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from django.conf import settings

REMOVED = "[removed]"
# Shorter values would remove parts of ordinary words.
LEAST_LENGTH = 4
_SECRET_NAME = re.compile(r"SECRET|PASSW|TOKEN|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
_SECRET_SETTING = re.compile(r"(SECRET|PASSWORD|SECRET_KEY)$")
# Names of Secrets on the cluster.
_PUBLIC = frozenset(
    {
        *("KUBERNETES_PULL_SECRET", "BUILD_SECRET"),
        *("REGATTA_KUBERNETES_PULL_SECRET", "REGATTA_BUILD_SECRET"),
    }
)
_PASSWORD_IN_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^\s\"']*@", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    r"(?P<name>\b(?:password|passwd|pwd|secret|token|api_key)\b\s*[=:]\s*)[^\s,;\"']+", re.IGNORECASE
)
_TOKEN = re.compile(r"\brgt_[A-Za-z0-9_-]{8,}|\b[Bb]earer\s+[A-Za-z0-9._~+/=-]{8,}")


class Redaction:
    """Removes the given secrets from texts."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if len(secret) >= LEAST_LENGTH for form in _forms(secret)}
        # The longest first: a secret may be part of another.
        parts = [re.escape(form) for form in sorted(forms, key=len, reverse=True)]
        self._known = re.compile("|".join(parts)) if parts else None

    def __call__(self, text: str) -> str:
        """Return the text without secrets."""
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        text = _PASSWORD_IN_ADDRESS.sub(rf"\g<scheme>{REMOVED}@", text)
        text = _ASSIGNMENT.sub(rf"\g<name>{REMOVED}", text)
        return _TOKEN.sub(REMOVED, text)


def of_this_process() -> Redaction:
    """Return the redaction of the secrets in the settings and the environment of this process."""
    return Redaction({*_from_settings(), *_from_environment(os.environ)})


def _from_settings() -> Iterator[str]:
    for database in settings.DATABASES.values():
        yield str(database.get("PASSWORD") or "")
        yield from (str(value) for name, value in database.get("OPTIONS", {}).items() if _SECRET_NAME.search(name))
    yield from settings.SECRET_KEY_FALLBACKS
    for name in filter(str.isupper, dir(settings)):
        value = getattr(settings, name)
        if not isinstance(value, str) or name in _PUBLIC:
            continue
        yield from _passwords_in(value)
        if _SECRET_SETTING.search(name):
            yield value


def _from_environment(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        yield from _passwords_in(value)
        # A path is no secret; of a longer value, every line is one.
        if _SECRET_NAME.search(name) and name not in _PUBLIC and not value.startswith("/"):
            yield from (line.strip() for line in value.splitlines())


def _passwords_in(text: str) -> Iterator[str]:
    """Yield the password of an address, as written and decoded. Several hosts may follow it, as in that of etcd."""
    scheme, found, rest = text.partition("://")
    if found and scheme.replace("+", "").isalnum():
        password = rest.rpartition("@")[0].partition(":")[2]
        yield from (password, unquote(password))


def _forms(secret: str) -> Iterator[str]:
    """Yield the secret as it is, URL-encoded, and in base64 at each of the three offsets within a longer text."""
    yield secret
    yield quote(secret, safe="")
    yield quote(secret)
    yield quote_plus(secret)
    raw = secret.encode()
    for offset in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * offset + raw).decode().rstrip("=")
            # Characters at both ends also encode bytes of the neighbours.
            inner = text[(0, 2, 3)[offset] : len(text) - (1 if (offset + len(raw)) % 3 else 0)]
            if len(inner) >= LEAST_LENGTH:
                yield inner


def redacted(value: Any, redact: Redaction) -> Any:
    """Return a JSON document in which every text is redacted."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(str(key)): redacted(item, redact) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redacted(item, redact) for item in value]
    return value
