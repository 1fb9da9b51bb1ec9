"""Records of features and label as bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from runtime.data import record_codec
from runtime.data.errors import RecordError

FEATURES = arrays.arrays(np.float32, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
LABELS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)


@given(FEATURES, LABELS)
def test_encoded_records_are_decoded(features, label):
    unpacked, again = record_codec.decode(record_codec.encode(features, label))
    assert unpacked.dtype == np.float32
    np.testing.assert_array_equal(unpacked, features)
    assert (again, type(again)) == (label, type(label))


@given(st.lists(st.tuples(FEATURES, LABELS), max_size=6), st.booleans(), st.data())
def test_many_records_are_unpacked_as_one_by_one(some, alike, data):
    if alike and some:
        shape = some[0][0].shape
        some = [(data.draw(arrays.arrays(np.float32, shape)), index) for index in range(len(some))]
    packed = [record_codec.encode(features, label) for features, label in some]
    together, alone = list(record_codec.decode_all(packed)), list(map(record_codec.decode, packed))
    assert [label for _row, label in together] == [label for _row, label in alone]
    assert [type(label) for _row, label in together] == [type(label) for _row, label in alone]
    for (row, _), (other, _) in zip(together, alone, strict=True):
        assert (row.shape, row.dtype, row.flags.writeable) == (other.shape, other.dtype, False)
        assert row.tobytes() == other.tobytes()


@pytest.mark.parametrize("odd", [b"", b"\x02", record_codec.encode([1.0], 3)[:-1], b"\x00" * 20])
def test_an_odd_record_among_many_is_refused_where_it_comes(odd):
    packed = [record_codec.encode([float(index)], index) for index in range(5)]
    packed.insert(3, odd)
    rows = record_codec.decode_all(packed)
    assert [next(rows)[1] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RecordError):
        next(rows)


def test_the_bytes_are_as_described():
    packed = record_codec.encode([1.0, 2.0], 7)
    assert packed.hex() == "0100 0100 02000000 0000803f 00000040 0700000000000000".replace(" ", "")


@given(FEATURES, LABELS, st.data())
def test_a_record_that_was_cut_short_is_refused(features, label, data):
    packed = record_codec.encode(features, label)
    with pytest.raises(RecordError):
        record_codec.decode(packed[: data.draw(st.integers(0, len(packed) - 1))])


@given(st.binary(max_size=60))
def test_noise_is_refused_or_read_but_never_breaks(noise):
    try:
        features, _label = record_codec.decode(noise)
    except RecordError:
        return
    assert features.nbytes < len(noise)


@pytest.mark.parametrize(("label", "dtype"), [(3, np.int64), (3.5, np.float32)])
def test_stacking_returns_arrays_of_the_labels_type(label, dtype):
    x, y = record_codec.stack([(np.zeros(4, np.float32), label)] * 3)
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((3, 4), np.float32, (3,), dtype)


def test_stacking_nothing_is_refused():
    with pytest.raises(RecordError):
        record_codec.stack([])
