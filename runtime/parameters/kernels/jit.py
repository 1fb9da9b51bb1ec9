"""The accelerator: the loops of the update rules compiled to machine code, if numba is installed.

It is selected automatically. Its results are those of NumPy bit for bit, so it may take over at any update: NumPy works
until the code is available. Nothing waits for the compiler, which runs on a thread of its own, and only if arrays are
large enough to gain from it. Compiled code is kept beside the source, or in the user's cache, for the next process. If
it fails, NumPy continues.
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

# NumPy does a smaller update in fractions of a millisecond; a small job should not load a compiler.
WORTH_ELEMENTS = 1 << 16

# The compiler takes some 140 MiB; a process that is short of memory should not be killed for speed.
COMPILER_BYTES = 256 << 20

log = logging.getLogger("pserver")
# The key of compiled code: rule, type, and for those of ``fused`` the number of gradients.
Key = tuple[str, str] | tuple[str, str, int]

_lock = threading.Lock()
_asked: set[Key] = set()
_ready: dict[Key, Kernel] = {}


@cache
def available() -> bool:
    """Whether the accelerator is installed."""
    return importlib.util.find_spec("numba") is not None


def prepare(rule: str, parameter: Array, states: int) -> None:
    """Prepare for updates of arrays like ``parameter`` by ``rule``, which keeps ``states`` arrays of state.

    Starts to compile if that is worthwhile. Returns at once.
    """
    begin((rule, parameter.dtype.str), parameter.size, lambda: load(rule, parameter.dtype, states))


def begin(key: Key, size: int, load: Callable[[], Kernel]) -> None:
    """Call ``load`` once for the code of ``key``, if arrays of ``size`` elements are worth it. Returns at once."""
    if size < WORTH_ELEMENTS or key in _asked or not available():
        return
    with _lock:
        if key in _asked:
            return
        _asked.add(key)
        if headroom() < COMPILER_BYTES:
            log.info("too little memory is left for the accelerator; NumPy does the updates")
            return
    # Not a daemon thread: the process would otherwise end in the middle of the compiler's code.
    threading.Thread(target=_take_over, args=(key, load), name="accelerator").start()


def ready(key: Key) -> Kernel | None:
    """The code for ``key`` if it is available, else None."""
    return _ready.get(key)


def run(rule: str, arrays: Sequence[Array], constants: Sequence[float]) -> bool:
    """Apply a rule to flat arrays; False if the code for them is not available (yet) and nothing was done."""
    loop = ready((rule, arrays[0].dtype.str))
    if loop is None or not all(map(is_plain, arrays)):
        return False
    number = arrays[0].dtype.type
    loop(*arrays, *map(number, constants))
    return True


def is_plain(array: Array) -> bool:
    """Whether compiled code accepts an array."""
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
    """Compile the loop of a rule, or load it from the cache of an earlier process. May take a second.

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
        # With Python's rules every division would check for zero and could not be vectorised.
        compiled: Kernel = numba.njit(signature, nogil=True, error_model="numpy", cache=keep)(loop)
        return compiled

    return build(made)


def build(made: Callable[[bool], Kernel]) -> Kernel:
    """Return the code that ``made`` makes, kept on disk if possible."""
    try:
        return made(True)
    except RuntimeError:  # there is no directory to keep it in
        return made(False)
