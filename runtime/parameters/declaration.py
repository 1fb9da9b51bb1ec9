"""The declaration that trainers agree on once: parameters (name, shape, type), optimiser, mode. Pure.

From the declaration both sides compute, without further messages, which blocks exist and which servers hold them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from runtime import contract
from runtime.messages import training as messages
from runtime.parameters import optimisers, sharding
from runtime.parameters.optimisers import Nesterov, Optimiser

Array = NDArray[Any]

SYNC, ASYNC, M_OF_N, SSP, OUTER = "sync", "async", "m_of_n", "ssp", "outer"
ITEM_BYTES: Mapping[str, int] = {"<f4": 4, "<f8": 8}
# The rule that averages the rounds of ``outer``: DiLoCo's (Douillard et al. 2023).
OUTER_RULE = Nesterov(0.7, 0.9)
# With one gradient per version, late ones count too; with a bound of 0, all wait for all.
_SAME_AS = {(M_OF_N, 1): (ASYNC, 0), (SSP, 0): (SYNC, 0)}


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

    def of(self, arrays: Sequence[Array]) -> Array:
        """This block of the tensors' flat arrays."""
        return arrays[self.tensor][self.start : self.stop]


@dataclass(frozen=True)
class Mode:
    """How pushes become versions.

    ``sync``: a version is the mean of the gradients of all active trainers. ``m_of_n(M)``: of the first M; later ones
    are dropped. ``outer(H)``: of the change that each made in H steps of its own. ``async``, ``ssp(s)``: every push is
    one.
    """

    kind: str = SYNC
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Mode:
        """Read a mode of the contract; ``m_of_n(1)`` is ``async``, ``ssp(0)`` is ``sync``. Raises ValueError."""
        mode = contract.parse_mode(text)
        return cls(*_SAME_AS.get(mode, mode))

    @property
    def synchronous(self) -> bool:
        """Whether versions are made of the pushes of several trainers."""
        return self.kind in (SYNC, M_OF_N, OUTER)

    @property
    def in_step(self) -> bool:
        """Whether every version waits for all trainers that use the one before."""
        return self.kind == SYNC

    @property
    def quorum(self) -> int:
        """How many pushes make a version; 0: those of all active trainers."""
        return self.number if self.kind == M_OF_N else 0

    @property
    def bound(self) -> int | None:
        """How many steps a trainer may be ahead of the slowest; None: any number, or no trainer can be ahead."""
        return self.number if self.kind == SSP else None

    @property
    def local_steps(self) -> int:
        """How many steps a trainer makes by itself before it pushes the change; 0: it pushes gradients."""
        return self.number if self.kind == OUTER else 0


@dataclass(frozen=True)
class Declaration:
    """The parameters of a job in a fixed order, the rule that updates them, and the mode's name."""

    tensors: tuple[Tensor, ...]
    optimiser: Optimiser
    mode: str = SYNC

    @property
    def rule(self) -> Optimiser:
        """The rule that the servers apply: in ``outer`` the optimiser is the trainers' own."""
        return OUTER_RULE if Mode.parse(self.mode).local_steps else self.optimiser

    @cached_property
    def digest(self) -> str:
        """Equal for equal declarations."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def blocks(self, table: tuple[int, ...]) -> tuple[BlockPlace, ...]:
        """Every block in order of tensor and offset. ``table`` maps slots to servers."""
        return tuple(
            BlockPlace(number, block, start, stop, sharding.server_of(tensor.name, block, table))
            for number, tensor in enumerate(self.tensors)
            for block, (start, stop) in enumerate(sharding.spans(tensor.size, ITEM_BYTES[tensor.dtype]))
        )

    @property
    def layout(self) -> list[tuple[int, str]]:
        """The number of elements and the type of each tensor."""
        return [(tensor.size, tensor.dtype) for tensor in self.tensors]

    def to_json(self) -> dict[str, Any]:
        tensors = [[tensor.name, list(tensor.shape), tensor.dtype] for tensor in self.tensors]
        return {"tensors": tensors, "optimiser": self.optimiser.to_json(), "mode": self.mode}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Declaration:
        """Read ``to_json``'s form. Raises ValueError with a message."""
        tensors = tuple(Tensor(str(name), tuple(map(int, shape)), str(dtype)) for name, shape, dtype in body["tensors"])
        unknown = sorted({tensor.dtype for tensor in tensors} - set(ITEM_BYTES))
        if unknown:
            raise ValueError(messages.PARAMETER_TYPES_UNSUPPORTED(types=", ".join(unknown)))
        mode = str(body["mode"])
        Mode.parse(mode)
        return cls(tensors, optimisers.from_json(body["optimiser"]), mode)
