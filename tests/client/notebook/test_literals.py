"""Constants as source text."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.notebook.literals import source_of

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
HASHABLE = st.recursive(SCALARS, lambda inner: st.tuples(inner) | st.tuples(inner, inner), max_leaves=4)
CONSTANTS = st.recursive(
    SCALARS | st.sets(HASHABLE, max_size=4) | st.frozensets(HASHABLE, max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(HASHABLE, inner, max_size=4),
    max_leaves=12,
)


class Colour(enum.IntEnum):
    RED = 1


@given(CONSTANTS)
def test_the_source_of_a_constant_evaluates_to_it(value: Any) -> None:
    source = source_of(value)
    assert source is not None
    made = eval(source)
    assert (made, type(made)) == (value, type(value))


def test_nan_and_infinity_are_constants() -> None:
    assert math.isnan(eval(source_of(float("nan")) or ""))
    assert eval(source_of([float("-inf")]) or "") == [float("-inf")]


@pytest.mark.parametrize("value", [np.float64(1), np.zeros(2), Colour.RED, object(), [object()], {"a": open}])
def test_other_objects_are_no_constants(value: object) -> None:
    assert source_of(value) is None


def test_a_list_that_contains_itself_is_no_constant() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert source_of(loop) is None
