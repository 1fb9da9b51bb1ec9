"""What trainers agree on once: names, shapes and types of the parameters, the optimiser, the mode. Pure.

From the declaration both sides work out, without another word, which blocks there are and who holds them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from runtime.pserver import optimisers, slots
from runtime.pserver.optimisers import Optimiser

SYNC, ASYNC = "sync", "async"
ITEM_BYTES: Mapping[str, int] = {"<f4": 4, "<f8": 8}
_M_OF_N = re.compile(r"m_of_n\((\d+)\)")


@dataclass(frozen=True)
class Tensor:
    """One parameter. ``dtype`` is ``<f4`` or ``<f8``."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class BlockPlace:
    """Elements ``start`` to ``stop`` of the flat tensor number ``tensor``; held by ``server``."""

    tensor: int
    block: int
    start: int
    stop: int
    server: int


@dataclass(frozen=True)
class Mode:
    """How pushes become versions. ``quorum`` of 0 waits for every trainer that takes part."""

    synchronous: bool
    quorum: int = 0

    @classmethod
    def parse(cls, text: str) -> Mode:
        """Read ``sync``, ``async`` or ``m_of_n(M)``. Raises ValueError."""
        if text in (SYNC, ASYNC):
            return cls(text == SYNC)
        match = _M_OF_N.fullmatch(text)
        if match is None or not int(match[1]):
            raise ValueError(f"There is no mode {text!r}; take 'sync' or 'async'.")
        return cls(True, int(match[1]))


@dataclass(frozen=True)
class Declaration:
    """The parameters of a job in a fixed order, the rule that updates them, and the mode's name."""

    tensors: tuple[Tensor, ...]
    optimiser: Optimiser
    mode: str = SYNC

    @cached_property
    def digest(self) -> str:
        """Equal for equal declarations."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def blocks(self, table: tuple[int, ...]) -> tuple[BlockPlace, ...]:
        """Every block in order of tensor and offset. ``table`` maps slots to servers."""
        return tuple(
            BlockPlace(number, block, start, stop, slots.server_of(tensor.name, block, table))
            for number, tensor in enumerate(self.tensors)
            for block, (start, stop) in enumerate(slots.spans(tensor.size, ITEM_BYTES[tensor.dtype]))
        )

    def to_json(self) -> dict[str, Any]:
        tensors = [[tensor.name, list(tensor.shape), tensor.dtype] for tensor in self.tensors]
        return {"tensors": tensors, "optimiser": self.optimiser.to_json(), "mode": self.mode}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Declaration:
        """Read ``to_json``'s form. Raises ValueError with a sentence."""
        tensors = tuple(Tensor(str(name), tuple(map(int, shape)), str(dtype)) for name, shape, dtype in body["tensors"])
        unknown = sorted({tensor.dtype for tensor in tensors} - set(ITEM_BYTES))
        if unknown:
            raise ValueError(f"Parameters are float32 or float64, not {', '.join(unknown)}.")
        mode = str(body["mode"])
        Mode.parse(mode)
        return cls(tensors, optimisers.from_json(body["optimiser"]), mode)
