"""The gradients of one trainer, from the first byte on the connection to the arrays of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import Refused, WireError
from runtime.messages import training as messages
from runtime.parameters import row_blocks
from runtime.parameters.array_blocks import WIRE_TYPES, all_finite
from runtime.parameters.messages import Outcome
from runtime.protocol import bf16
from runtime.protocol.connection import Block
from runtime.protocol.frames import DType, Header, Op
from runtime.protocol.shared_memory import NOT_SHARED
from runtime.pserver.state.eager_update import Coming
from runtime.pserver.state.parameter_state import ParameterState

# The operations that carry gradients.
STEPS = (Op.PUSH, Op.PUSH_PULL)

Array = NDArray[Any]
# A block's tensor and number.
Key = tuple[int, int]


class GradientReceiver:
    """Receives blocks into its own arrays, to which a waiting step refers; used by the thread of a connection.

    ``coming`` is valid as long as its blocks arrive in the order of the shard's and are finite. A step is returned only
    if all blocks of the shard are there: received, staged before, or in memory that the trainer shares.
    """

    def __init__(self, state: ParameterState) -> None:
        self.coming: Coming | None = None  # the step that is being received, while it is valid
        self._state = state
        self._received: dict[Key, Array] = {}
        self._halves: dict[Key, Array] = {}  # of blocks received as bfloat16
        self._staged: dict[Key, Header] = {}  # blocks received before their push
        self._mapped: Sequence[Array] | None = None  # in memory that the trainer shares

    # --- Block by block ----------------------------------------------------------------------------------------------
    def allocate(self, header: Header) -> memoryview:
        """Return the memory for a block. Raises WireError."""
        if row_blocks.carries_rows(header):
            return row_blocks.allocate(header)
        array = self._arrays().get((header.tensor, header.offset))
        if array is None:
            raise WireError(messages.BLOCK_MISPLACED(block=header.offset, tensor=header.tensor))
        if header.dtype is DType.BF16 and array.dtype == np.float32:
            return self._halves.setdefault((header.tensor, header.offset), np.empty(array.size, "<u2")).data.cast("B")
        if header.dtype is not WIRE_TYPES[array.dtype.str]:
            raise WireError(
                messages.BLOCK_TYPE_WRONG(block=header.offset, tensor=header.tensor, type=header.dtype.name)
            )
        return array.data.cast("B")

    def _arrays(self) -> Mapping[Key, Array]:
        """Memory for the gradients of one step, allocated at the first use."""
        if not self._received:
            self._received = {
                (place.tensor, place.block): np.empty_like(parameter)
                for place, parameter in zip(self._state.places, self._state.parameters, strict=True)
            }
        return self._received

    def begin(self, head: Header, body: Mapping[str, Any]) -> Coming | None:
        """Begin to receive a step; None if the request is no step, or sends part of it in another way."""
        samples = body.get("samples")
        elsewhere = body.get("shared") or body.get("staged")
        if head.op not in STEPS or elsewhere or not isinstance(samples, int) or samples < 1:
            return None
        arrays = self._arrays()
        gradients = [arrays[place.tensor, place.block] for place in self._state.places]
        self.coming = Coming(head.seq, samples, head.version, gradients, halved=bool(body.get("halved")))
        return self.coming

    def arrived(self, header: Header) -> Coming | None:
        """Widen and check a gradient while it is in the cache; return the step if it is valid so far.

        ``values`` refuses invalid ones.
        """
        coming = self.coming
        if coming is None or row_blocks.carries_rows(header):
            return None
        key, places = (header.tensor, header.offset), self._state.places
        number = coming.arrived
        if number == len(places) or key != (places[number].tensor, places[number].block):
            self.coming = None
            return None
        if header.dtype is DType.BF16:
            bf16.widen(self._halves[key], self._received[key])
        if not all_finite(self._received[key]):
            self.coming = None
            return None
        return coming

    def abandon(self) -> None:
        """The step that is being received is not valid any more, or ended."""
        self.coming = None

    # --- Whole steps -------------------------------------------------------------------------------------------------
    def stage(self, blocks: Sequence[Block]) -> None:
        """Record blocks of a coming push; they are already in their place."""
        self._staged |= {(header.tensor, header.offset): header for header, _payload in blocks}

    def take_staged(self) -> Mapping[Key, Header]:
        """Return the blocks that were staged for a push, once."""
        staged, self._staged = self._staged, {}
        return staged

    def use_mapped(self, arrays: Sequence[Array] | None) -> None:
        """Take gradients from memory that the trainer shares; None: it shares none."""
        self._mapped = arrays

    @property
    def is_mapped(self) -> bool:
        return self._mapped is not None

    def mapped(self) -> Sequence[Array]:
        """The trainer's gradients in shared memory. It has checked them for NaN and infinity. Raises Refused."""
        if self._mapped is None:
            raise Refused(NOT_SHARED, messages.NO_SHARED_MEMORY())
        return self._mapped

    def step(self, body: Mapping[str, Any], blocks: Sequence[Block], staged: Mapping[Key, Header]) -> Sequence[Array]:
        """The gradients of a push. Raises Refused."""
        if body.get("shared"):
            return self.mapped()
        if not body.get("staged"):
            return self.values(blocks)
        if len(staged.keys() | _named(blocks).keys()) < len(self._state.places):
            raise Refused(NOT_SHARED, messages.STAGED_BLOCKS_ELSEWHERE())
        return self.values(blocks, staged)

    def values(self, blocks: Sequence[Block], staged: Mapping[Key, Header] | None = None) -> Sequence[Array]:
        """The arrays of the blocks, which with those ``staged`` must be all of the shard's, and finite.

        Raises Refused.
        """
        wanted = [(place.tensor, place.block) for place in self._state.places]
        came = {**(staged or {}), **_named(blocks)}
        if came.keys() != set(wanted):
            raise Refused("bad_step", messages.BLOCK_COUNT_WRONG(count=len(came), due=len(wanted)))
        if self.coming is not None and self.coming.arrived == len(wanted):
            return self.coming.gradients  # checked one by one
        for key, header in came.items():
            if header.dtype is DType.BF16:
                bf16.widen(self._halves[key], self._received[key])
        return _finite([self._received[key] for key in wanted])


def _named(blocks: Sequence[Block]) -> dict[Key, Header]:
    """The headers of blocks of parameters, by tensor and number."""
    return {
        (header.tensor, header.offset): header for header, _payload in blocks if not row_blocks.carries_rows(header)
    }


def _finite(arrays: list[Array]) -> list[Array]:
    if not all(all_finite(array) for array in arrays):
        raise Refused(Outcome.NOT_FINITE, messages.PUSH_NOT_FINITE())
    return arrays
