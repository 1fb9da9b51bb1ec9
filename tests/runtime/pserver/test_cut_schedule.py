"""Servers that are in step cut at the version that the first one announces."""

import numpy as np
import pytest

from runtime.coordination.base import Compare, StoreUnavailable
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.optimisers import SGD
from runtime.parameters.sharding import even_table
from runtime.pserver.cut_schedule import CutSchedule
from runtime.pserver.locked_shard import LockedShard
from runtime.pserver.shard import Shard, places_of

OWNER = Compare("owner", create_revision=1)
SECONDS = 10.0


class Announcements:
    """The announced version, in memory; ``fails``: the store takes none."""

    def __init__(self):
        self.version, self.fails = 0, False

    def announced(self):
        return self.version

    def announce(self, version, owner):
        if self.fails:
            raise StoreUnavailable("The store does not answer.")
        self.version = version


@pytest.fixture
def book():
    return Announcements()


def schedule(book, index, servers, mode="sync"):
    shard = Shard(index, even_table(servers), 1)
    declaration = Declaration((Tensor("a", (5,), "<f4"),), SGD(1.0), mode)
    places = places_of(declaration, shard.table, index)
    blocks = [(np.zeros(place.stop - place.start, "f4"),) for place in places]
    shard.restore(declaration, 0, blocks, {}, 0.0)
    return shard, CutSchedule(LockedShard(shard), index, servers, book, OWNER, SECONDS, 0.0)


@pytest.mark.parametrize(("servers", "mode"), [(1, "sync"), (2, "async")])
def test_a_server_that_is_not_in_step_with_others_cuts_when_it_is_due(book, servers, mode):
    shard, own = schedule(book, 0, servers, mode)
    own.order(SECONDS - 1)
    assert shard.state.snapshot is None
    own.order(SECONDS)
    assert shard.state.snapshot.version == 0
    assert book.version == 0


def test_the_others_cut_at_the_version_that_the_first_announces(book):
    (first, announcer), (second, follower) = schedule(book, 0, 2), schedule(book, 1, 2)
    follower.order(SECONDS)
    assert second.cut_at is None
    announcer.order(SECONDS)
    follower.order(SECONDS)
    assert first.cut_at == second.cut_at == book.version > first.version


def test_an_announcement_is_followed_once(book):
    shard, follower = schedule(book, 1, 2)
    book.version = 5
    follower.order(0.0)
    shard.cut_at = None
    follower.order(1.0)
    assert shard.cut_at is None


def test_an_announcement_that_failed_is_repeated(book):
    shard, announcer = schedule(book, 0, 2)
    book.fails = True
    with pytest.raises(StoreUnavailable):
        announcer.order(SECONDS)
    assert shard.cut_at is None
    book.fails = False
    announcer.order(SECONDS + 1)
    assert shard.cut_at == book.version > 0
