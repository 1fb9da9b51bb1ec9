"""Names of namespaces: DNS labels (RFC 1123), because a namespace is a Kubernetes namespace too. Pure.

The name of a personal namespace is a function of the account's name, and no two accounts share one by escaping: a
name that is no plain label gets a slug and, after ``---``, 12 hexadecimal digits of the SHA-256 of the exact name.
Nobody may choose a name with ``---`` in it, so neither kind can be taken by the other.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

LABEL_LENGTH = 63
MARK = "---"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NO_LABEL_CHARACTER = re.compile(r"[^a-z0-9]+")
_DIGEST_DIGITS = 12
# Names that mean something to the cluster or in an address of ours.
RESERVED = frozenset({"default", "public", "regatta", "new", "api"})
_RESERVED_PREFIXES = ("kube-", "regatta-")


def is_free_choice(name: str) -> bool:
    """Whether a person may give a namespace this name."""
    reserved = name in RESERVED or name.startswith(_RESERVED_PREFIXES)
    return _LABEL.fullmatch(name) is not None and MARK not in name and not reserved


def is_label(name: str) -> bool:
    """Whether this is a DNS label."""
    return _LABEL.fullmatch(name) is not None


def not_a_label(name: str) -> str:
    """The sentence for what is none."""
    return (
        f"{name!r} does not do. Use up to {LABEL_LENGTH} small letters, digits and dashes, with a letter or digit at "
        "both ends."
    )


def why_not(name: str) -> str:
    """The sentence for a name that may not be chosen."""
    if name in RESERVED or name.startswith(_RESERVED_PREFIXES):
        return f"{name!r} is kept for the platform. Choose another name."
    return (
        f"{name!r} is no name for a namespace. Use up to {LABEL_LENGTH} small letters, digits and single dashes, "
        "with a letter or digit at both ends."
    )


def personal(username: str) -> str:
    """The account's name itself where it may be a namespace's, else the marked form."""
    return username if is_free_choice(username) else marked(username)


def marked(username: str) -> str:
    """Slug and digest: ``Zoé.K`` -> ``zoe-k---<12 digits>``."""
    digest = hashlib.sha256(username.encode()).hexdigest()[:_DIGEST_DIGITS]
    ascii_name = unicodedata.normalize("NFKD", username).encode("ascii", "ignore").decode().lower()
    room = LABEL_LENGTH - len(MARK) - _DIGEST_DIGITS
    slug = _NO_LABEL_CHARACTER.sub("-", ascii_name)[:room].strip("-") or "u"
    return f"{slug}{MARK}{digest}"
