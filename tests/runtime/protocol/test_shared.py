import os

import numpy as np
import pytest

from runtime.protocol.shared import Segment

LIKE = [np.zeros(5, "f4"), np.zeros(3, "f8"), np.zeros(0, "f4")]


@pytest.fixture
def segment():
    return Segment.create(LIKE)


def test_what_one_side_writes_the_other_reads(segment):
    other = Segment.open(segment.where, LIKE)
    for number, array in enumerate(segment.arrays):
        array[:] = number + 1
    assert [array.tolist() for array in other.arrays] == [[1.0] * 5, [2.0] * 3, []]


def test_a_segment_lives_on_when_its_descriptor_is_given_up(segment):
    other = Segment.open(segment.where, LIKE)
    segment.forget()
    segment.arrays[0][0] = 7
    assert other.arrays[0][0] == 7


@pytest.mark.parametrize("change", [{"process": 2**22}, {"descriptor": 10**6}, {"token": "00" * 16}])
def test_a_segment_out_of_reach_is_an_ordinary_error(segment, change):
    with pytest.raises((OSError, ValueError)):
        Segment.open({**segment.where, **change}, LIKE)


def test_memory_that_could_shrink_is_not_mapped(segment):
    size = os.fstat(segment.where["descriptor"]).st_size
    loose = os.memfd_create("loose")
    os.ftruncate(loose, size)
    with pytest.raises((OSError, ValueError)):
        Segment.open({**segment.where, "descriptor": loose}, LIKE)
    os.close(loose)


def test_a_segment_of_another_size_is_refused(segment):
    with pytest.raises(ValueError, match="size"):
        Segment.open(segment.where, LIKE[:1])
