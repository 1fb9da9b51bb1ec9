"""Checksums of upload parts: SHA-256 or CRC-32. Pure.

CRC-32 takes a third of the time. It is enough against damage in transit, because the SHA-256 of the whole file is
compared as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from datasets import messages
from runtime.data.checksums import crc32

TEXT_LIMIT = 64  # maximum length of a checksum in characters


class Running(Protocol):
    """Checksum that is being computed."""

    def update(self, piece: bytes | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


class Crc32:
    """CRC-32 as of gzip and PNG (ISO-HDLC)."""

    def __init__(self) -> None:
        self._value = 0

    def update(self, piece: bytes | memoryview, /) -> None:
        self._value = crc32(piece, self._value)

    def hexdigest(self) -> str:
        return f"{self._value:08x}"


@dataclass(frozen=True)
class Kind:
    """Kind of checksum. ``header`` is the HTTP header that carries it, as ``digits`` lower-case hexadecimal digits.

    Each kind has a different number of digits.
    """

    name: str
    header: str
    digits: int
    begin: Callable[[], Running]


SHA256 = Kind("SHA-256", "X-Content-SHA256", 64, hashlib.sha256)
CRC32 = Kind("CRC-32", "X-Content-CRC32", 8, Crc32)
KINDS = (SHA256, CRC32)  # order of precedence if a part comes with several


class BadChecksum(ValueError):
    """A part has no valid checksum. The text is a message that says what to send; ``header`` names the HTTP header."""

    def __init__(self, header: str, message: str) -> None:
        super().__init__(message)
        self.header = header


@dataclass(frozen=True)
class Checksum:
    """Checksum of a part. ``text`` is in lower-case hexadecimal digits; its length identifies the kind."""

    kind: Kind
    text: str


def announced(headers: Mapping[str, str]) -> Checksum:
    """Return the checksum in the headers of a part. Raises BadChecksum."""
    kind = next((kind for kind in KINDS if headers.get(kind.header)), SHA256)
    text = headers.get(kind.header, "")
    if not re.fullmatch(f"[0-9a-f]{{{kind.digits}}}", text):
        message = messages.PART_CHECKSUM_INVALID(kind=kind.name, digits=kind.digits)
        raise BadChecksum(kind.header, message)
    return Checksum(kind, text)
