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
from urllib.parse import quote, quote_plus, unquote, urlsplit

from django.conf import settings

REMOVED = "[removed]"
# Shorter values would remove parts of ordinary words.
LEAST_LENGTH = 4
_SECRET_NAME = re.compile(r"SECRET|PASSW|TOKEN|KEY|CREDENTIAL|AUTH|_URL$|COORDINATION|MAIL_SERVER|DSN", re.IGNORECASE)
# Variables with such names whose values are no secrets.
_PUBLIC = frozenset({"REGATTA_INGEST_URL", "REGATTA_GITLAB_URL", "REGATTA_BAIDU_URL", "SSH_AUTH_SOCK"})
_PASSWORD_IN_ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/\s@\"']*@", re.IGNORECASE)
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
    yield settings.SECRET_KEY
    for database in settings.DATABASES.values():
        yield str(database.get("PASSWORD") or "")
    for name in dir(settings):
        value = getattr(settings, name) if name.isupper() and _SECRET_NAME.search(name) else None
        if isinstance(value, str) and "COOKIE" not in name and not name.endswith(("_NAME", "ENGINE")):
            yield from _passwords_in(value) if "://" in value else (value,) if _is_secret_setting(name) else ()


def _is_secret_setting(name: str) -> bool:
    return name.endswith(("_SECRET", "_PASSWORD", "SECRET_KEY"))


def _from_environment(environment: Mapping[str, str]) -> Iterator[str]:
    for name, value in environment.items():
        if name not in _PUBLIC and _SECRET_NAME.search(name):
            yield from _passwords_in(value) if "://" in value else _lines(value)


def _lines(value: str) -> Iterator[str]:
    """A path or a flag is no secret; of a longer value, every line is one."""
    if not value.startswith("/") and value not in ("true", "false"):
        yield from (line.strip() for line in value.splitlines())


def _passwords_in(address: str) -> Iterator[str]:
    try:
        parts = urlsplit(address)
        password = parts.password or ""
    except ValueError:  # several hosts, as of etcd
        password = ""
    account = address.partition("://")[2].rpartition("@")[0]
    for found in (password, account.partition(":")[2]):
        yield found
        yield unquote(found)


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
