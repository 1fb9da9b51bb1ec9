"""By what the bytes of a part are known: their SHA-256, or their CRC-32, which takes a third of the time and is enough
against damage on the way, because the whole file is compared by its SHA-256 as well. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from runtime.data.checksums import crc32

TEXT_LIMIT = 64  # characters of the longest


class Running(Protocol):
    """A checksum that is being made."""

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
    """``header`` brings it, as ``digits`` small hexadecimal digits. Kinds differ in their number."""

    name: str
    header: str
    digits: int
    begin: Callable[[], Running]


SHA256 = Kind("SHA-256", "X-Content-SHA256", 64, hashlib.sha256)
CRC32 = Kind("CRC-32", "X-Content-CRC32", 8, Crc32)
KINDS = (SHA256, CRC32)  # where a part comes with several, the first counts


class BadChecksum(ValueError):
    """The text is a message that says what to send; ``header`` is where."""

    def __init__(self, header: str, message: str) -> None:
        super().__init__(message)
        self.header = header


@dataclass(frozen=True)
class Checksum:
    """``text`` is in small hexadecimal digits and tells the kind by its length."""

    kind: Kind
    text: str


def announced(headers: Mapping[str, str]) -> Checksum:
    """The checksum that a part comes with. Raises BadChecksum."""
    kind = next((kind for kind in KINDS if headers.get(kind.header)), SHA256)
    text = headers.get(kind.header, "")
    if not re.fullmatch(f"[0-9a-f]{{{kind.digits}}}", text):
        message = f"Send the part's {kind.name} as {kind.digits} small hexadecimal digits."
        raise BadChecksum(kind.header, message)
    return Checksum(kind, text)
