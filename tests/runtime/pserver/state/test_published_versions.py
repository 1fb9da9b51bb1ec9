import numpy as np
import pytest

from runtime.parameters.declaration import BlockPlace
from runtime.protocol import frames
from runtime.pserver.state.published_versions import Editions

PLACES = [BlockPlace(0, 0, 0, 5, 0), BlockPlace(1, 0, 0, 3, 0)]


@pytest.fixture
def parameters():
    return [np.arange(5, dtype="f4"), np.arange(3, dtype="f8")]


def places_of(edition):
    return {array.ctypes.data for array in edition.arrays}


def test_all_requests_for_one_version_get_one_copy(parameters):
    editions = Editions()
    first, second = (editions.lend(1, PLACES, parameters) for _ in range(2))
    assert first is second
    assert [array.tolist() for array in first.arrays] == [[0, 1, 2, 3, 4], [0, 1, 2]]


def test_an_edition_stays_as_it_is_while_somebody_has_it(parameters):
    editions = Editions()
    slow = editions.lend(1, PLACES, parameters)
    for version in range(2, 5):
        parameters[0] += 1
        editions.return_edition(editions.lend(version, PLACES, parameters))
    assert slow.arrays[0].tolist() == [0, 1, 2, 3, 4]


def test_memory_that_was_given_back_serves_again(parameters):
    editions = Editions()
    used = set()
    for version in range(10):
        edition = editions.lend(version, PLACES, parameters)
        used |= places_of(edition)
        editions.return_edition(edition)
    assert len(used) == len(PLACES)


def test_the_blocks_of_an_edition_have_the_checksum_of_any_others(parameters):
    edition = Editions().lend(1, PLACES, parameters)
    for header, payload in edition.blocks:
        packed = frames.pack(header, payload)
        assert packed == frames.pack(header._replace(crc=0), payload)
        frames.verify(packed, frames.unpack(packed), payload)
