"""Names of the portal's namespaces on the cluster. Pure."""

from __future__ import annotations

import hashlib
import re

LIMIT = 63  # characters of a namespace's name
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_FOREIGN = re.compile(r"[^a-z0-9]+", re.ASCII)
_DIGITS = 10


def name_of(namespace: str, prefix: str = "") -> str:
    """Return the Kubernetes namespace of a portal's namespace: prefix and name, if that is a valid Kubernetes name.

    Otherwise its valid characters and a hash of the name, so that names stay distinct. The result is deterministic.
    """
    plain = f"{prefix}{namespace}"
    if len(plain) <= LIMIT and _LABEL.fullmatch(plain):
        return plain
    digest = hashlib.sha256(namespace.encode()).hexdigest()[:_DIGITS]
    base = _FOREIGN.sub("-", plain.lower()).strip("-")[: LIMIT - _DIGITS - 1].rstrip("-")
    return f"{base}-{digest}" if base else f"n-{digest}"
