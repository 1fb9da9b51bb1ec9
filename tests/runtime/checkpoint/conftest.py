import numpy as np
import pytest

from runtime.checkpoint.format import Header
from runtime.checkpoint.index import Book
from runtime.coordination.base import Compare
from runtime.coordination.embedded import EmbeddedStore
from runtime.parameters.declaration import Declaration, Tensor
from runtime.parameters.optimisers import Momentum

DECLARATION = Declaration((Tensor("w", (3,), "<f4"),), Momentum(0.1))


class Writer:
    """A registered parameter server: an incarnation, and the compare that fences its writes."""

    def __init__(self, store, index=0, shards=1):
        self.index, self.shards = index, shards
        store.delete(f"/members/{index}")
        self.incarnation = store.put(f"/members/{index}", b"").create_revision
        self.owner = Compare(f"/members/{index}", create_revision=self.incarnation)

    def header(self, version, sequences=None):
        return Header(
            "job", self.index, self.shards, self.incarnation, version, DECLARATION.to_json(), 2, 1, sequences or {}
        )


def blocks(value):
    return [(kind, 0, np.full(3, value + kind / 2, "<f4").data.cast("B")) for kind in (0, 1)]


@pytest.fixture
def store(tmp_path):
    store = EmbeddedStore(tmp_path / "coordination.db")
    yield store
    store.close()


@pytest.fixture
def book(store):
    return Book(store, "job", 1, 1)
