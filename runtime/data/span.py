"""A piece of a file that can be read on its own."""

from __future__ import annotations

from typing import NamedTuple

# What an index aims at for one chunk, where the format leaves it the choice.
CHUNK_BYTES = 8 << 20
# The longest chunk that is read: a damaged or hostile file must not fill the memory.
MAX_CHUNK_BYTES = 512 << 20


class Span(NamedTuple):
    """``length`` bytes at ``offset`` that hold ``records`` records; of a packed file, unpacked bytes.

    ``digest`` is a CRC-32 by which the chunk is known again, where the format has one or its index reads everything
    anyway: for RecordIO of the payload as stored, for lines of the bytes themselves. None where to find it would mean
    to read the file. A chunk that no longer fits its digest is refused. ``split`` names the split of the records where
    the file itself does (``x_train``); else its path does.
    """

    offset: int
    length: int
    records: int
    digest: int | None = None
    split: str = ""
