"""Contract of the coordination store on a real etcd, reached directly or through the coordination gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from runtime.coordination.base import CoordinationStore, Delete
from tests.contracts.coordination_contract import CoordinationContract
from tests.waiting import let_pass


class EtcdContract(CoordinationContract):
    """Derive from it, and provide the fixtures ``open_one`` (opens a store on the same keys) and ``forget``."""

    @pytest.fixture
    def connect(self, open_one: Callable[[], CoordinationStore]) -> Iterator[Callable[[], CoordinationStore]]:
        yield open_one
        # A lease that expires later would raise the revision of another test.
        store = open_one()
        store.txn([], [Delete(entry.key) for entry in store.list("/").entries])

    @pytest.fixture
    def advance(self) -> Callable[[float], None]:
        return let_pass
