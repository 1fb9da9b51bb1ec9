"""Checks of the arrays that user code passes, and the errors of the servers that user code causes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.errors import Refused, UsageError
from runtime.messages import training as messages
from runtime.parameters.array_blocks import all_finite
from runtime.parameters.declaration import ITEM_BYTES
from runtime.parameters.embedding_tables import Full, Unlike
from runtime.parameters.messages import Outcome

Array = NDArray[Any]
Arrays = Mapping[str, Array]

# Refusals that are caused by user code.
_OF_USER_CODE = (Outcome.CONFLICT, Outcome.NOT_FINITE, Outcome.NO_MEMORY, "bad_declaration", "too_large")


@contextlib.contextmanager
def refusals_as_usage_errors() -> Iterator[None]:
    """Convert refusals that are caused by user code to ``UsageError``."""
    try:
        yield
    except Refused as refused:
        if refused.code in _OF_USER_CODE:
            raise UsageError(refused.why) from None
        raise
    except (Full, Unlike) as error:
        raise UsageError(str(error)) from None


def named_arrays(arrays: Arrays) -> Arrays:
    if not isinstance(arrays, Mapping) or not arrays:
        raise UsageError(messages.PARAMETERS_NOT_A_DICT())
    if odd := [name for name in arrays if not isinstance(name, str)]:
        raise UsageError(messages.PARAMETER_NAME_INVALID(name=f"{odd[0]!r}"))
    return arrays


def writable_parameter(name: str, array: Array) -> Array:
    """The array itself if pulls can write into it, else a copy."""
    if not isinstance(array, np.ndarray) or array.dtype.str not in ITEM_BYTES:
        kind = f"{array.dtype} array" if isinstance(array, np.ndarray) else type(array).__name__
        raise UsageError(messages.PARAMETER_TYPE_INVALID(name=f"{name!r}", type=kind))
    if not all_finite(array):
        raise UsageError(messages.PARAMETER_NOT_FINITE(name=f"{name!r}"))
    return array if array.flags.c_contiguous and array.flags.writeable else np.array(array, order="C")


def flat_gradient(name: str, gradient: Array, parameter: Array) -> Array:
    """The gradient as a flat array. Raises UsageError if it does not fit the parameter."""
    if not isinstance(gradient, np.ndarray | np.generic):
        raise UsageError(messages.GRADIENT_NOT_AN_ARRAY(name=f"{name!r}", type=type(gradient).__name__))
    if gradient.shape != parameter.shape:
        raise UsageError(messages.GRADIENT_SHAPE_WRONG(name=f"{name!r}", shape=gradient.shape, due=parameter.shape))
    if gradient.dtype != parameter.dtype:
        raise UsageError(
            messages.GRADIENT_TYPE_WRONG(
                name=f"{name!r}", type=gradient.dtype, due=parameter.dtype, wanted=parameter.dtype
            )
        )
    return np.ascontiguousarray(gradient).reshape(-1)
