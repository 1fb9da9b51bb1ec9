"""Conversion of arrays to blocks of the protocol, and the check for finite numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters.declaration import BlockPlace
from runtime.protocol.connection import Block
from runtime.protocol.frames import DType, Header, Op, words_sum

Array = NDArray[Any]

WIRE_TYPES: Mapping[str, DType] = {"<f4": DType.F32, "<f8": DType.F64, "<u2": DType.BF16}


def block(place: BlockPlace, values: Array, summed: bool = False) -> Block:
    """Return a block frame that refers to ``values`` (flat, contiguous) without a copy.

    ``summed``: compute its checksum now, for values that are sent several times.
    """
    payload = values.data.cast("B")
    guard = words_sum(payload) if summed else 0
    header = Header(Op.BLOCK, dtype=WIRE_TYPES[values.dtype.str], tensor=place.tensor, offset=place.block, crc=guard)
    return header, payload


def all_finite(values: Array) -> bool:
    """Whether every number is finite. One pass with the dot product; an exact check only if that overflows."""
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.dot(flat, flat))) or bool(np.isfinite(flat).all())
