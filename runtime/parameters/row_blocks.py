"""Rows of tables as blocks of the protocol, after the blocks of the parameters. Pure.

A message names its tables in its body, in an order. The ids of table number n are sent as tensor ``FIRST + 2 * n``, its
numbers as the next one, each cut into frames of the largest size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters.embedding_tables import Rows, Table
from runtime.protocol.connection import Block
from runtime.protocol.frames import MAX_PAYLOAD, DType, Header, Op

Array = NDArray[Any]

# No tensor of a declaration reaches this number.
FIRST = 1 << 31


def carries_rows(header: Header) -> bool:
    """Whether a block belongs to a table and not to a parameter."""
    return header.tensor >= FIRST


def allocate(header: Header) -> memoryview:
    """Allocate memory for such a block: only the sender knows their number in advance."""
    return memoryview(bytearray(header.size))


def pack(parts: Iterable[Rows]) -> list[Block]:
    """The blocks of the tables' rows, in the order in which the body names them. Rows without values are ids."""
    blocks: list[Block] = []
    for number, rows in enumerate(parts):
        blocks += _frames(FIRST + 2 * number, DType.I64, np.ascontiguousarray(rows.ids))
        blocks += _frames(FIRST + 2 * number + 1, DType.F32, np.ascontiguousarray(rows.values))
    return blocks


def unpack(tables: Sequence[Table], blocks: Iterable[Block]) -> list[Rows]:
    """The rows of each table; ids or values may be missing. Raises ValueError for incomplete rows."""
    parts: dict[int, list[memoryview]] = {}
    for header, payload in blocks:
        if carries_rows(header):
            parts.setdefault(header.tensor - FIRST, []).append(payload)
    found = []
    for number, table in enumerate(tables):
        ids = np.frombuffer(b"".join(parts.get(2 * number, ())), "<i8")
        values = np.frombuffer(b"".join(parts.get(2 * number + 1, ())), "<f4")
        if values.size % table.dim:
            raise ValueError(f"{values.size:,} numbers for rows of {table.dim:,} of table {table.name!r}")
        found.append(Rows(ids, values.reshape(-1, table.dim)))
    return found


def _frames(tensor: int, dtype: DType, array: Array) -> Iterator[Block]:
    if not array.size:
        return
    whole = array.reshape(-1).data.cast("B")
    for offset, start in enumerate(range(0, whole.nbytes, MAX_PAYLOAD)):
        yield Header(Op.BLOCK, dtype=dtype, tensor=tensor, offset=offset), whole[start : start + MAX_PAYLOAD]
