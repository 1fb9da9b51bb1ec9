"""The bfloat16 format: the upper half of a float32, rounded to nearest, ties to even. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_NAN = 0x7FC0
_HALF = 0x7FFF  # just under half of the last kept place


def narrow(values: Array) -> Array:
    """The bits (uint16) of float32 ``values``. A NaN stays NaN: rounding must not carry it into infinity or -0."""
    bits = values.view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(_HALF)
    rounded += bits
    rounded >>= np.uint32(16)
    narrowed = rounded.astype(np.uint16)
    odd = np.isnan(values)
    if odd.any():
        narrowed[odd] = _NAN
    return narrowed


def widen(bits: Array, out: Array | None = None) -> Array:
    """The float32 numbers of ``bits`` (uint16), exactly; in ``out`` if given."""
    wide = np.empty(bits.shape, np.float32) if out is None else out
    np.left_shift(bits, np.uint32(16), out=wide.view(np.uint32), dtype=np.uint32)
    return wide


class Feedback:
    """Error feedback: the rounding error of one gradient is added to the next, so that nothing is lost for good.

    There is one for each block. The residual stays with the trainer that made it and is dropped when that process ends.
    """

    def __init__(self) -> None:
        self._residual: Array | None = None
        self._before: Array | None = None  # the residual before the last gradient

    def narrow(self, gradient: Array) -> Array:
        """The bits of ``gradient`` (flat float32) plus the residual."""
        self._before = self._residual
        wanted = gradient if self._residual is None else gradient + self._residual
        bits = narrow(wanted)
        self._residual = wanted - widen(bits)
        return bits

    def take_back(self) -> None:
        """Undo the last ``narrow``: its gradient is not used."""
        self._residual = self._before
