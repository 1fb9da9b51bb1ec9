"""The code that ``fused`` compiles. Needs numba, and is imported only if it is installed.

Each update takes ``(p, gs, ws, even, states, constants, kept, marks, at)``: the flat parameter, the gradients and the
weights of their mean, whether these are one power of two, the arrays of state, the rule's numbers, the block's part of
the journal (empty if there is none), the journal's marks, and the block's beginning in the journal. Compiled code is
cached by the contents of this file alone: change it whenever ``scalar_loops`` changes. (Last change of
``scalar_loops``: eps is added to the root.)
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from runtime.parameters.kernels import scalar_loops

numba = importlib.import_module("numba")
intrinsic = importlib.import_module("numba.extending").intrinsic

# This many elements of the mean fit into the innermost cache together with their operands.
WORKSPACE_ELEMENTS = 2048
_KEPT = 1  # ``journal_layout.KEPT``, as a number for the compiler

_compiled = numba.njit(error_model="numpy")
_sgd, _momentum, _nesterov = map(_compiled, (scalar_loops.sgd, scalar_loops.momentum, scalar_loops.nesterov))
_adagrad, _adam = map(_compiled, (scalar_loops.adagrad, scalar_loops.adam))


@intrinsic  # type: ignore[untyped-decorator]
def _fence(_context: Any) -> Any:
    """A full memory barrier."""

    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return numba.types.void(), generate


# --- Sums, in the order of ``gradient_mean`` --------------------------------------------------------------------------
@_compiled  # type: ignore[untyped-decorator]
def _copy(o: Any, a: Any) -> None:
    for i in range(o.size):
        o[i] = a[i]


@_compiled  # type: ignore[untyped-decorator]
def _scale(o: Any, a: Any, w: Any) -> None:
    for i in range(o.size):
        o[i] = a[i] * w


@_compiled  # type: ignore[untyped-decorator]
def _add_scaled(o: Any, a: Any, w: Any) -> None:
    for i in range(o.size):
        o[i] += a[i] * w


@_compiled  # type: ignore[untyped-decorator]
def _add(o: Any, a: Any) -> None:
    for i in range(o.size):
        o[i] += a[i]


@_compiled  # type: ignore[untyped-decorator]
def _mean_of_two(o: Any, a: Any, b: Any, w: Any) -> None:
    for i in range(o.size):
        o[i] = (a[i] + b[i]) * w


@_compiled  # type: ignore[untyped-decorator]
def _mean_of_three(o: Any, a: Any, b: Any, c: Any, w: Any) -> None:
    for i in range(o.size):
        o[i] = ((a[i] + b[i]) + c[i]) * w


@_compiled  # type: ignore[untyped-decorator]
def _sum_of_three(o: Any, a: Any, b: Any, c: Any) -> None:
    for i in range(o.size):
        o[i] = (a[i] + b[i]) + c[i]


@_compiled  # type: ignore[untyped-decorator]
def _add_and_scale(o: Any, a: Any, w: Any) -> None:
    for i in range(o.size):
        o[i] = (o[i] + a[i]) * w


@_compiled  # type: ignore[untyped-decorator]
def _mean(o: Any, gs: Any, ws: Any, even: Any, start: int, stop: int) -> None:
    count = len(gs)
    if not even:
        _scale(o, gs[0][start:stop], ws[0])
        for number in range(1, count):
            _add_scaled(o, gs[number][start:stop], ws[number])
    elif count == 1:
        _copy(o, gs[0][start:stop])
    elif count == 2:
        _mean_of_two(o, gs[0][start:stop], gs[1][start:stop], ws[0])
    elif count == 3:
        _mean_of_three(o, gs[0][start:stop], gs[1][start:stop], gs[2][start:stop], ws[0])
    else:
        _sum_of_three(o, gs[0][start:stop], gs[1][start:stop], gs[2][start:stop])
        for number in range(3, count - 1):
            _add(o, gs[number][start:stop])
        _add_and_scale(o, gs[count - 1][start:stop], ws[0])


@_compiled  # type: ignore[untyped-decorator]
def _begin(
    p: Any, gs: Any, ws: Any, even: Any, kept: Any, marks: Any, at: int, start: int, stop: int, workspace: Any
) -> Any:
    """Prepare elements ``start`` to ``stop`` before the rule: journal the old values, return the mean."""
    if kept.size:
        _copy(kept[start:stop], p[start:stop])
        # Neither compiler nor processor may change a number before its old value is recorded.
        _fence()
        marks[_KEPT] = at + stop
        _fence()
    mean = workspace[: stop - start]
    _mean(mean, gs, ws, even, start, stop)
    return mean


# --- Updates, by the name of their rule ------------------------------------------------------------------------------
def sgd(p: Any, gs: Any, ws: Any, even: Any, states: Any, constants: Any, kept: Any, marks: Any, at: int) -> None:
    workspace = np.empty(WORKSPACE_ELEMENTS, p.dtype)
    for start in range(0, p.size, WORKSPACE_ELEMENTS):
        stop = min(start + WORKSPACE_ELEMENTS, p.size)
        g = _begin(p, gs, ws, even, kept, marks, at, start, stop, workspace)
        _sgd(p[start:stop], g, *constants)


def momentum(p: Any, gs: Any, ws: Any, even: Any, states: Any, constants: Any, kept: Any, marks: Any, at: int) -> None:
    workspace = np.empty(WORKSPACE_ELEMENTS, p.dtype)
    for start in range(0, p.size, WORKSPACE_ELEMENTS):
        stop = min(start + WORKSPACE_ELEMENTS, p.size)
        g = _begin(p, gs, ws, even, kept, marks, at, start, stop, workspace)
        _momentum(p[start:stop], g, states[0][start:stop], *constants)


def nesterov(p: Any, gs: Any, ws: Any, even: Any, states: Any, constants: Any, kept: Any, marks: Any, at: int) -> None:
    workspace = np.empty(WORKSPACE_ELEMENTS, p.dtype)
    for start in range(0, p.size, WORKSPACE_ELEMENTS):
        stop = min(start + WORKSPACE_ELEMENTS, p.size)
        g = _begin(p, gs, ws, even, kept, marks, at, start, stop, workspace)
        _nesterov(p[start:stop], g, states[0][start:stop], *constants)


def adagrad(p: Any, gs: Any, ws: Any, even: Any, states: Any, constants: Any, kept: Any, marks: Any, at: int) -> None:
    workspace = np.empty(WORKSPACE_ELEMENTS, p.dtype)
    for start in range(0, p.size, WORKSPACE_ELEMENTS):
        stop = min(start + WORKSPACE_ELEMENTS, p.size)
        g = _begin(p, gs, ws, even, kept, marks, at, start, stop, workspace)
        _adagrad(p[start:stop], g, states[0][start:stop], *constants)


def adam(p: Any, gs: Any, ws: Any, even: Any, states: Any, constants: Any, kept: Any, marks: Any, at: int) -> None:
    workspace = np.empty(WORKSPACE_ELEMENTS, p.dtype)
    for start in range(0, p.size, WORKSPACE_ELEMENTS):
        stop = min(start + WORKSPACE_ELEMENTS, p.size)
        g = _begin(p, gs, ws, even, kept, marks, at, start, stop, workspace)
        _adam(p[start:stop], g, states[0][start:stop], states[1][start:stop], *constants)


UPDATES = {"SGD": sgd, "Momentum": momentum, "Nesterov": nesterov, "Adagrad": adagrad, "Adam": adam}
