"""Initial values of the rows of a table: a function of only the table's seed and the row's id. Pure.

A row that was never trained takes no memory: it is computed again at each request, on any server. A lost row gets its
initial values again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.messages import training as messages
from runtime.parameters import lr_schedules
from runtime.parameters.sharding import mix

Array = NDArray[Any]

# Steele, Lea, Flood 2014: steps of the golden ratio give the state of SplitMix64, ``mix`` the number.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF_BITS = np.uint64(32)
# The uppermost bits of 64 that a float32 can hold exactly.
_DROPPED_BITS = np.uint64(40)
_UNIT = np.float32(2.0**-24)


@dataclass(frozen=True)
class Initial:
    """The distribution of the numbers of new rows. ``scale`` is from 0 on."""

    scale: float = 0.05

    def __post_init__(self) -> None:
        if not lr_schedules.is_rate(self.scale):
            raise ValueError(messages.NUMBER_NEGATIVE(rule=type(self).__name__, name="scale", value=f"{self.scale!r}"))

    def rows(self, seed: int, ids: Array, dim: int) -> Array:
        """The rows (n, dim), float32, of ``ids`` (n,), int64."""
        return self.spread(_bits(seed, ids, dim))

    def spread(self, bits: Array) -> Array:
        """Map evenly distributed 64-bit words to numbers."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        return {"name": type(self).__name__, "scale": self.scale}


@dataclass(frozen=True)
class Zeros(Initial):
    """All zero."""

    scale: float = 0.0

    def rows(self, seed: int, ids: Array, dim: int) -> Array:
        return np.zeros((ids.size, dim), "f4")


@dataclass(frozen=True)
class Uniform(Initial):
    """Uniformly distributed between -scale and scale."""

    def spread(self, bits: Array) -> Array:
        unit: Array = (bits >> _DROPPED_BITS).astype("f4")
        unit *= np.float32(2 * self.scale) * _UNIT
        unit -= np.float32(self.scale)
        return unit


@dataclass(frozen=True)
class Normal(Initial):
    """A normal distribution around 0 with standard deviation ``scale`` (Box and Muller 1958)."""

    def spread(self, bits: Array) -> Array:
        radius = np.sqrt(-2 * np.log(((bits >> _HALF_BITS) + 1.0) / 2**32))
        angle = (bits & np.uint64(0xFFFFFFFF)) * (2 * np.pi / 2**32)
        drawn: Array = (radius * np.cos(angle) * self.scale).astype("f4")
        return drawn


KINDS: Mapping[str, type[Initial]] = {kind.__name__: kind for kind in (Zeros, Uniform, Normal)}


def from_json(body: Mapping[str, Any]) -> Initial:
    """Read ``Initial.to_json``'s form. Raises ValueError."""
    name = str(body.get("name"))
    if name not in KINDS:
        raise ValueError(messages.INITIALIZER_UNKNOWN(name=f"{name!r}", names=", ".join(KINDS)))
    return KINDS[name](body["scale"])


def _bits(seed: int, ids: Array, dim: int) -> Array:
    """Evenly distributed 64-bit words (n, dim), each a function of seed, id and column."""
    start = mix(np.array([seed], "u8") + _GOLDEN)
    streams = mix(ids.astype("i8").view("u8") ^ start)
    columns = np.arange(1, dim + 1, dtype="u8") * _GOLDEN
    return mix(streams[:, None] + columns)
