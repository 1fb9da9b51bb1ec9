"""The update of a block compiled into one kernel: journal, mean of the gradients and rule, in one pass over memory.

An update is memory traffic. Here every number passes the processor once: the gradients' mean is made in a workspace
that stays in the innermost cache, and the rule's own loop (``scalar_loops``) works on that. Sums are made in the order
of ``gradient_mean``, so that the bits do not depend on the implementation. ``fused_numba`` has the code. If it is not
available (yet), nothing is done and ``run`` returns False.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.parameters.kernels import jit
from runtime.parameters.kernels.gradient_mean import Weights
from runtime.parameters.kernels.numpy_kernels import Kernel
from runtime.parameters.kernels.scalar_loops import LOOPS

Array = NDArray[Any]
# Code is made for each number of gradients; for more, NumPy makes the mean.
MOST_GRADIENTS = 8

_NOTHING = {dtype: np.empty(0, dtype) for dtype in ("<f4", "<f8")}


def run(
    rule: str,
    parameter: Array,
    gradients: Sequence[Array],
    weights: Weights,
    state: Sequence[Array],
    constants: Sequence[float],
    before: Array | None,
    marks: Array,
    start: int,
) -> bool:
    """Update a flat block by the weighted mean of ``gradients``; False if nothing was done.

    ``before`` is the block's part of the journal, which begins at element ``start``; ``marks`` are the journal's.
    """
    dtype = parameter.dtype.str
    key = rule, dtype, len(gradients)
    kernel = jit.ready(key)
    if kernel is None:
        if len(gradients) <= MOST_GRADIENTS:
            jit.begin(key, parameter.size, lambda: load(rule, parameter.dtype, len(state), len(gradients)))
        return False
    kept = _NOTHING[dtype] if before is None else before
    if not all(map(jit.is_plain, (parameter, kept, *gradients, *state))):
        return False
    numbers = tuple(map(parameter.dtype.type, constants))
    kernel(parameter, tuple(gradients), weights.of(dtype), weights.even, tuple(state), numbers, kept, marks, start)
    return True


def load(rule: str, dtype: np.dtype[Any], states: int, gradients: int) -> Kernel:
    """Compile the update for a number of gradients, or load it from the cache. Raises what the compiler raises."""
    numba = importlib.import_module("numba")
    types = numba.types
    number = numba.from_dtype(dtype)
    array, readable = types.Array(number, 1, "C"), types.Array(number, 1, "C", readonly=True)
    constants = LOOPS[rule].__code__.co_argcount - 2 - states
    signature = types.void(
        array,
        types.UniTuple(readable, gradients),
        array,
        types.boolean,
        types.UniTuple(array, states),
        types.UniTuple(number, constants),
        array,
        types.Array(types.int64, 1, "C"),
        types.int64,
    )
    update = importlib.import_module("runtime.parameters.kernels.fused_numba").UPDATES[rule]
    return jit.build(lambda keep: numba.njit(signature, nogil=True, error_model="numpy", cache=keep)(update))
