import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.protocol.bf16 import Feedback, narrow, widen

# From float32 to bfloat16, as bits. The third of each tie goes to the even neighbour.
VECTORS = [
    (0x3F800000, 0x3F80),
    (0x3F808000, 0x3F80),
    (0x3F818000, 0x3F82),
    (0xC0200000, 0xC020),
    (0x7F7F0000, 0x7F7F),
    (0x7F800000, 0x7F80),
    (0xFF800000, 0xFF80),
    (0x7FC00000, 0x7FC0),
    (0x7FFFFFFF, 0x7FC0),
    (0xFFFFFFFF, 0x7FC0),
    (0x7F800001, 0x7FC0),
    (0x000116C2, 0x0001),
    (0x80000000, 0x8000),
]


def floats(*bits):
    return np.array(bits, np.uint32).view(np.float32)


@pytest.mark.parametrize(("wide", "narrowed"), VECTORS)
def test_rounding_goes_to_the_nearest_and_at_a_tie_to_the_even(wide, narrowed):
    assert int(narrow(floats(wide))[0]) == narrowed


@given(st.integers(0, 2**16 - 1).filter(lambda bits: bits & 0x7F80 != 0x7F80))
def test_what_fits_comes_back_unchanged(bits):
    assert int(narrow(widen(np.array([bits], np.uint16)))[0]) == bits


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=20))
def test_no_nearer_bfloat16_exists(values):
    wide = np.array(values, np.float32)
    bits = narrow(wide)
    error = np.abs(widen(bits).astype(float) - wide)
    for neighbour in (bits - 1, bits + 1):
        other = widen(neighbour.astype(np.uint16)).astype(float)
        assert (error <= np.abs(other - wide))[np.isfinite(other)].all()


def test_widening_writes_into_the_given_memory():
    out = np.zeros(2, "f4")
    assert widen(np.array([0x3F80, 0xC020], np.uint16), out) is out
    assert out.tolist() == [1.0, -2.5]


def test_feedback_owes_at_most_one_rounding_however_long_it_runs():
    gradient = np.full(3, 1.001, "f4")
    feedback = Feedback()
    sent = sum(widen(feedback.narrow(gradient)).astype(float) for _ in range(1000))
    assert np.abs(sent - 1001).max() < 0.02
    plain = sum(widen(narrow(gradient)).astype(float) for _ in range(1000))
    assert np.abs(plain - 1001).max() > 0.9
