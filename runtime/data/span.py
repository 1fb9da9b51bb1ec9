"""Span: a piece of a file that can be read on its own."""

from __future__ import annotations

from typing import NamedTuple

# Target size of a chunk of an index, if the format leaves the choice.
CHUNK_BYTES = 8 << 20
# Longest chunk that is read: a damaged or hostile file must not fill the memory.
MAX_CHUNK_BYTES = 512 << 20


class Span(NamedTuple):
    """``length`` bytes at ``offset`` with ``records`` records; of a packed file, unpacked bytes.

    ``digest`` is a CRC-32 that identifies the chunk, if the format has one or its index reads everything anyway: for
    RecordIO of the payload as stored, for lines of the bytes themselves. It is None if it would take reading the file.
    A chunk that no longer fits its digest is refused. ``split`` is the split of the records if the file itself names it
    (``x_train``); otherwise its path does.
    """

    offset: int
    length: int
    records: int
    digest: int | None = None
    split: str = ""
