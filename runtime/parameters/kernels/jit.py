"""The accelerator: the loops of the update rules compiled to machine code, where numba is installed.

It is chosen by itself, and as its results are those of NumPy bit for bit it may take over at any update: NumPy works
until the code is there. Nobody waits for the compiler, which runs on a thread of its own, and only where arrays are
large enough to gain from it; what it has made is kept beside the source, or in the user's cache, for the next process.
Where it fails, NumPy goes on.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.memory_headroom import headroom
from runtime.parameters.kernels.numpy_kernels import Kernel
from runtime.parameters.kernels.scalar_loops import LOOPS

Array = NDArray[Any]

# An update of less takes NumPy fractions of a millisecond; a small job is not to pay for loading a compiler.
WORTH_ELEMENTS = 1 << 16

# The compiler takes some 140 MiB; a process that is short of memory is not to be ended for the sake of speed.
COMPILER_BYTES = 256 << 20

log = logging.getLogger("pserver")
# What code is for: rule, type, and for those of ``fused`` the number of gradients.
Key = tuple[str, str] | tuple[str, str, int]

_lock = threading.Lock()
_asked: set[Key] = set()
_ready: dict[Key, Kernel] = {}


@cache
def available() -> bool:
    """Whether the accelerator is installed."""
    return importlib.util.find_spec("numba") is not None


def prepare(rule: str, parameter: Array, states: int) -> None:
    """Arrays like ``parameter`` are going to be updated by ``rule``, which keeps ``states`` arrays of state.

    Begins to compile for them where that is worth it. Returns at once.
    """
    begin((rule, parameter.dtype.str), parameter.size, lambda: load(rule, parameter.dtype, states))


def begin(key: Key, size: int, load: Callable[[], Kernel]) -> None:
    """Have ``load`` make the code for ``key``, once, if arrays of ``size`` elements are worth it. Returns at once."""
    if size < WORTH_ELEMENTS or key in _asked or not available():
        return
    with _lock:
        if key in _asked:
            return
        _asked.add(key)
        if headroom() < COMPILER_BYTES:
            log.info("too little memory is left for the accelerator; NumPy does the updates")
            return
    # No daemon: a process that ends while the compiler runs would end in the middle of its code.
    threading.Thread(target=_take_over, args=(key, load), name="accelerator").start()


def ready(key: Key) -> Kernel | None:
    """The code for ``key``, once it is there."""
    return _ready.get(key)


def run(rule: str, arrays: Sequence[Array], constants: Sequence[float]) -> bool:
    """Apply a rule to flat arrays; False where the code for them is not there (yet) and nothing was done."""
    loop = ready((rule, arrays[0].dtype.str))
    if loop is None or not all(map(is_plain, arrays)):
        return False
    number = arrays[0].dtype.type
    loop(*arrays, *map(number, constants))
    return True


def is_plain(array: Array) -> bool:
    """Whether compiled code takes an array."""
    return bool(array.flags.c_contiguous and array.flags.aligned)


def _take_over(key: Key, load: Callable[[], Kernel]) -> None:
    try:
        _ready[key] = load()
    except Exception as error:  # noqa: BLE001  whatever is wrong with the compiler, NumPy does the work
        log.warning("The accelerator cannot be used (%s: %s); NumPy does the updates.", type(error).__name__, error)
    else:
        rule, dtype, *gradients = key
        of = f" of {gradients[0]} gradients" if gradients else ""
        log.info("updates of %s %s%s run compiled", np.dtype(dtype).name, rule, of)


def load(rule: str, dtype: np.dtype[Any], states: int) -> Kernel:
    """Compile the loop of a rule, or take it from the cache of an earlier process. May take a second.

    Raises whatever goes wrong inside the compiler.
    """
    numba = importlib.import_module("numba")
    number = numba.from_dtype(dtype)
    array = numba.types.Array(number, 1, "C")
    gradient = numba.types.Array(number, 1, "C", readonly=True)
    loop = LOOPS[rule]
    constants = loop.__code__.co_argcount - 2 - states
    signature = numba.void(array, gradient, *[array] * states, *[number] * constants)

    def made(keep: bool) -> Kernel:
        # Without the rules of NumPy every division would ask for a zero first and could not run on vectors.
        compiled: Kernel = numba.njit(signature, nogil=True, error_model="numpy", cache=keep)(loop)
        return compiled

    return build(made)


def build(made: Callable[[bool], Kernel]) -> Kernel:
    """Code that ``made`` gives, and keeps on disk where that can be."""
    try:
        return made(True)
    except RuntimeError:  # there is no directory to keep it in
        return made(False)
