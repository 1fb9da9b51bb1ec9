"""Names of accounts and namespaces. Pure.

Names of accounts are a path segment of addresses, and people identify accounts by them. So each begins and ends with a
letter or digit (``..`` would lead to the parent of an address), its letters are of one script, and two names that look
alike (``skeleton``) are one name.

Names of namespaces are DNS labels (RFC 1123), because a namespace is a Kubernetes namespace too. The name of a personal
namespace is a function of the account's name, and no two accounts get the same one by escaping. A name that is no plain
label gets a slug and, after ``---``, 12 hexadecimal digits of the SHA-256 of the exact name. Nobody may choose a name
with ``---`` in it, so neither kind can collide with the other.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata

from rbac import messages

LABEL_LENGTH = 63
MARK = "---"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NO_LABEL_CHARACTER = re.compile(r"[^a-z0-9]+")
_DIGEST_DIGITS = 12
# Normalisation makes up to 18 letters of one; the rest that does not fit in the column is cut off.
SKELETON_LENGTH = 600
# Names with a meaning to the cluster or in an address of the portal.
RESERVED = frozenset({"default", "public", "regatta", "new", "api"})
_RESERVED_PREFIXES = ("kube-", "regatta-")
# Scripts that are written together.
_EAST_ASIAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "LATIN"})
# Letters of other scripts that look like a Latin one, folded. Of the confusables of UTS #39, those that form whole
# words.
_LOOKS_LIKE = str.maketrans(
    "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0455\u0456\u0458\u04bb\u0501\u051b\u051d"
    "\u03b1\u03b2\u03b5\u03b7\u03b9\u03ba\u03bc\u03bd\u03bf\u03c1\u03c2\u03c3\u03c4\u03c5\u03c7\u03b3\u03f2",
    "abekmhopctyxsijhdqwabenikuvopcotuxyc",
)


# --- Accounts --------------------------------------------------------------------------------------------------------
def fault_of_account(name: str) -> str:
    """Return why no account may have this name; empty when it may. The allowed characters are checked elsewhere."""
    if not any(character.isalnum() for character in name):
        return messages.ACCOUNT_NAME_WITHOUT_LETTERS()
    if not (name[0].isalnum() and name[-1].isalnum()):
        return messages.ACCOUNT_NAME_ENDS()
    scripts = {_script(character) for character in name if character.isalpha()}
    if len(scripts) > 1 and not scripts <= _EAST_ASIAN:
        return messages.ACCOUNT_NAME_MIXES_SCRIPTS()
    if any(character.isdigit() and not character.isascii() for character in name):
        return messages.ACCOUNT_NAME_DIGITS()
    return ""


def _script(letter: str) -> str:
    """Return ``LATIN``, ``CYRILLIC``, ...: the first word of the character's name."""
    return unicodedata.name(letter, "unknown").partition(" ")[0]


def skeleton(name: str) -> str:
    """Return a key that is equal for names that look alike."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return unicodedata.normalize("NFKC", folded).translate(_LOOKS_LIKE)[:SKELETON_LENGTH]


# --- Namespaces ------------------------------------------------------------------------------------------------------
def is_free_choice(name: str) -> bool:
    """Return whether a person may give a namespace this name."""
    reserved = name in RESERVED or name.startswith(_RESERVED_PREFIXES)
    return _LABEL.fullmatch(name) is not None and MARK not in name and not reserved


def is_label(name: str) -> bool:
    """Return whether the name is a DNS label."""
    return _LABEL.fullmatch(name) is not None


def not_a_label(name: str) -> str:
    """Return the message for a name that is no label."""
    return messages.NOT_A_LABEL(name=f"{name!r}", limit=LABEL_LENGTH)


def why_not(name: str) -> str:
    """Return the message for a name that may not be chosen."""
    if name in RESERVED or name.startswith(_RESERVED_PREFIXES):
        return messages.NAMESPACE_NAME_RESERVED(name=f"{name!r}")
    return messages.NAMESPACE_NAME_INVALID(name=f"{name!r}", limit=LABEL_LENGTH)


def personal(username: str) -> str:
    """Return the account's name itself when a namespace may have it, else the marked form."""
    return username if is_free_choice(username) else marked(username)


def marked(username: str) -> str:
    """Return slug and digest: ``Zoé.K`` -> ``zoe-k---<12 digits>``."""
    digest = hashlib.sha256(username.encode()).hexdigest()[:_DIGEST_DIGITS]
    ascii_name = unicodedata.normalize("NFKD", username).encode("ascii", "ignore").decode().lower()
    free_length = LABEL_LENGTH - len(MARK) - _DIGEST_DIGITS
    slug = _NO_LABEL_CHARACTER.sub("-", ascii_name)[:free_length].strip("-") or "u"
    return f"{slug}{MARK}{digest}"
