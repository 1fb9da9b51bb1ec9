"""The next version of a shard, made block by block while its gradients still arrive. Pure.

A draft assumes the steps that the version will be made of: those of its ``members``, each weighted by its share of all
samples. A block is made as soon as it has arrived from every member, next to the present parameters and state, which do
not change. When all steps are complete, it is decided whether the version is made of exactly these steps. Until then
nothing of a draft counts, and it may be dropped at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters.array_blocks import block
from runtime.parameters.declaration import BlockPlace
from runtime.parameters.kernels.gradient_mean import Weights
from runtime.protocol import bf16
from runtime.pserver.state.published_versions import Edition

Array = NDArray[Any]
State = list[tuple[Array, ...]]
# Updates a block in place: its number, its values and state, the gradients, and the weights of their mean.
Change = Callable[[int, Array, tuple[Array, ...], Sequence[Array], Weights], None]


@dataclass(eq=False)
class Coming:
    """A step whose gradients are being received. The first ``arrived`` blocks, in order, are here and finite.

    ``halved``: they are sent as bfloat16, and so may be the reply.
    """

    seq: int
    samples: int
    base: int
    gradients: Sequence[Array]
    arrived: int = 0
    halved: bool = False


@dataclass(frozen=True)
class Basis:
    """The version that a draft is made from.

    Where updates are rounded, ``exact`` is what the float32 blocks of ``parameters`` would be without rounding.
    """

    places: Sequence[BlockPlace]
    parameters: Sequence[Array]
    state: State
    exact: Sequence[Array] = ()


class Draft:
    """``members`` are in the order of summation; ``edition``, ``state`` and ``exact`` are the memory that is written.

    With ``exact`` the version differs from the one before by updates in bfloat16, and trainers are sent only these. The
    rounding error of an update stays in ``exact`` and goes into the next one: the error feedback of gradients
    (``runtime.protocol.bf16``) in the other direction. All trainers and the server get the same bits.
    """

    def __init__(
        self,
        members: Sequence[Coming],
        basis: Basis,
        edition: Edition,
        state: State,
        change: Change,
        exact: list[Array] | None = None,
    ) -> None:
        self.members = members
        self.edition = edition
        self.state = state
        self.exact = exact
        self._basis = basis
        self._change = change
        total = sum(member.samples for member in members)
        self.weights = Weights([member.samples / total for member in members])

    @property
    def made(self) -> int:
        """The number of blocks made, in order."""
        return len(self.edition.blocks)

    @property
    def whole(self) -> bool:
        return self.made == len(self._basis.places)

    def is_of(self, gradients: Sequence[Sequence[Array]]) -> bool:
        """Whether it is made of exactly these gradients, in this order."""
        mine = [member.gradients for member in self.members]
        return len(mine) == len(gradients) and all(map(_same, mine, gradients))

    def advance(self) -> bool:
        """Make every block that can be made; return whether there was one."""
        before = self.made
        for number in range(before, min(member.arrived for member in self.members)):
            self._make(number)
        return self.made > before

    def _make(self, number: int) -> None:
        basis, values = self._basis, self.edition.arrays[number]
        rounds = self.exact is not None and values.dtype == np.float32
        target, source = (self.exact or [])[number] if rounds else values, basis.parameters[number]
        np.copyto(target, basis.exact[number] if rounds else source)
        for array, kept in zip(self.state[number], basis.state[number], strict=True):
            np.copyto(array, kept)
        gradients = [member.gradients[number] for member in self.members]
        self._change(number, target, self.state[number], gradients, self.weights)
        update = values
        if rounds:
            update = bf16.narrow(target - source)
            np.add(source, bf16.widen(update, values), out=values)
        self.edition.blocks.append(block(basis.places[number], values, summed=True))
        if self.exact is not None:
            self.edition.updates.append(block(basis.places[number], update, summed=True))


def _same(mine: object, other: object) -> bool:
    return mine is other
