"""Contract of every coordination store: subclass it with the fixtures ``connect``, ``advance``, ``forget``."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from runtime.coordination.base import (
    Change,
    Committed,
    Compare,
    Conflict,
    CoordinationStore,
    LeaseLost,
    Put,
    Relisted,
    Versioned,
)
from tests.waiting import until

DEADLINE = 5.0


class Watcher:
    """Reads a watch in a separate thread and lets a test wait for its events."""

    def __init__(self, store: CoordinationStore, prefix: str, after: int) -> None:
        self.seen: list[Change | Relisted] = []
        self._changed = threading.Condition()
        self._watch = store.watch(prefix, after)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for change in self._watch:
            with self._changed:
                self.seen.append(change)
                self._changed.notify_all()

    def until(self, predicate: Callable[[list[Change | Relisted]], bool]) -> list[Change | Relisted]:
        with self._changed:
            assert self._changed.wait_for(lambda: predicate(self.seen), DEADLINE), f"seen only {self.seen}"
            return list(self.seen)

    def stop(self) -> None:
        self._watch.close()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()


def eventually(condition: Callable[[], object]) -> None:
    """Wait for a condition: a store may end expired leases late."""
    until("the store comes to that", condition, DEADLINE)


class CoordinationContract:
    """``connect`` opens another client of the same store; ``advance`` passes seconds for its leases.

    ``forget`` makes the store drop its history up to now.
    """

    @pytest.fixture
    def connect(self) -> Callable[[], CoordinationStore]:
        raise NotImplementedError

    @pytest.fixture
    def advance(self) -> Callable[[float], None]:
        raise NotImplementedError

    @pytest.fixture
    def forget(self) -> Callable[[CoordinationStore], None]:
        raise NotImplementedError

    @pytest.fixture
    def store(self, connect: Callable[[], CoordinationStore]) -> CoordinationStore:
        return connect()

    def test_a_missing_key_is_none(self, store):
        assert store.get("/a") is None

    def test_put_and_get_agree(self, store):
        written = store.put("/a", b"\x00one")
        assert isinstance(written, Versioned)
        assert store.get("/a") == written
        assert written.create_revision == written.mod_revision

    def test_a_second_put_keeps_the_incarnation_and_raises_the_revision(self, store):
        first = store.put("/a", b"1")
        second = store.put("/a", b"2")
        assert second.create_revision == first.create_revision
        assert second.mod_revision > first.mod_revision

    def test_a_key_that_is_made_again_has_a_higher_incarnation(self, store):
        first = store.put("/a", b"1")
        store.delete("/a")
        assert store.put("/a", b"1").create_revision > first.create_revision

    def test_put_if_absent_refuses_a_key_that_exists(self, store):
        first = store.put("/a", b"1", if_revision=0)
        assert store.put("/a", b"2", if_revision=0) == Conflict("/a", first)
        assert store.get("/a").value == b"1"

    def test_put_with_an_old_revision_is_a_conflict(self, store):
        first = store.put("/a", b"1")
        second = store.put("/a", b"2", if_revision=first.mod_revision)
        assert store.put("/a", b"3", if_revision=first.mod_revision) == Conflict("/a", second)

    def test_delete_with_an_old_revision_is_a_conflict(self, store):
        first = store.put("/a", b"1")
        store.put("/a", b"2")
        assert isinstance(store.delete("/a", if_revision=first.mod_revision), Conflict)
        assert store.get("/a").value == b"2"

    def test_deleting_a_missing_key_changes_nothing(self, store):
        revision = store.put("/a", b"1").mod_revision
        assert isinstance(store.delete("/b"), Committed)
        assert store.list("/").revision == revision

    def test_list_is_ordered_and_keeps_to_the_prefix(self, store):
        for key in ("/m/b", "/m/a", "/n/c", "/m"):
            store.put(key, key.encode())
        assert [entry.key for entry in store.list("/m/").entries] == ["/m/a", "/m/b"]

    def test_a_transaction_is_one_revision(self, store):
        answer = store.txn([Compare("/a", create_revision=0)], [Put("/a", b"1"), Put("/b", b"2")])
        assert isinstance(answer, Committed)
        assert {entry.mod_revision for entry in store.list("/").entries} == {answer.revision}

    def test_a_transaction_whose_compare_fails_writes_nothing(self, store):
        held = store.put("/a", b"1")
        answer = store.txn([Compare("/b", mod_revision=0), Compare("/a", create_revision=0)], [Put("/b", b"2")])
        assert answer == Conflict("/a", held)
        assert store.get("/b") is None

    def test_a_replaced_owner_cannot_write(self, connect):
        old, new = connect(), connect()
        mine = old.put("/owner", b"old")
        new.delete("/owner")
        new.put("/owner", b"new")
        fenced = old.txn([Compare("/owner", create_revision=mine.create_revision)], [Put("/state", b"mine")])
        assert isinstance(fenced, Conflict)
        assert old.get("/state") is None

    def test_clients_see_each_others_writes(self, connect):
        one, other = connect(), connect()
        one.put("/a", b"1")
        assert other.get("/a").value == b"1"

    def test_of_many_threads_exactly_one_gets_the_key(self, connect):
        start = threading.Barrier(6)
        won = []

        def race(name: bytes, store: CoordinationStore) -> None:
            start.wait(DEADLINE)
            if isinstance(store.put("/lock", name, if_revision=0), Versioned):
                won.append(name)

        threads = [threading.Thread(target=race, args=(b"%d" % i, connect())) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        assert len(won) == 1

    def test_the_keys_of_a_lease_are_removed_when_it_expires(self, connect, advance):
        holder, other = connect(), connect()
        lease = holder.grant(2.0)
        holder.put("/held", b"1", lease=lease)
        holder.put("/free", b"1")
        lease.release()
        advance(1.0)
        assert other.get("/held") is not None
        advance(1.5)
        eventually(lambda: other.get("/held") is None)
        assert [entry.key for entry in other.list("/").entries] == ["/free"]

    def test_a_lease_that_is_kept_alive_stays(self, store, advance):
        lease = store.grant(2.0)
        store.put("/held", b"1", lease=lease)
        for _ in range(4):
            advance(0.7)
            lease.beat()
        assert lease.alive
        assert store.get("/held") is not None

    def test_revoking_removes_the_keys_at_once_and_notifies_nobody(self, connect):
        holder, other = connect(), connect()
        reasons = []
        lease = holder.grant(30.0, reasons.append)
        holder.put("/held", b"1", lease=lease)
        lease.revoke()
        lease.revoke()
        assert other.get("/held") is None
        assert not lease.alive
        assert reasons == []

    def test_a_put_without_the_lease_lets_the_key_outlive_it(self, store):
        lease = store.grant(30.0)
        store.put("/a", b"1", lease=lease)
        store.put("/a", b"2")
        lease.revoke()
        assert store.get("/a").value == b"2"

    def test_a_put_under_a_lost_lease_is_refused(self, connect, advance):
        holder, other = connect(), connect()
        lease = holder.grant(1.0)
        holder.put("/held", b"1", lease=lease)
        lease.release()
        advance(1.5)
        eventually(lambda: other.get("/held") is None)
        with pytest.raises(LeaseLost):
            other.put("/a", b"1", lease=lease)

    def test_the_holder_is_notified_before_another_can_own_the_key(self, connect, advance):
        holder, other = connect(), connect()
        owner_when_notified = []
        lease = holder.grant(5.0, lambda why: owner_when_notified.append(other.get("/lock").value))
        holder.put("/lock", b"mine", lease=lease)
        advance(4.1)  # past the fence, before the deadline
        lease.beat()
        assert owner_when_notified == [b"mine"]
        assert not lease.alive

    def test_a_watch_sees_puts_and_deletes_in_order(self, store):
        watcher = Watcher(store, "/w/", store.list("/w/").revision)
        first = store.put("/w/a", b"1")
        watcher.until(lambda seen: len(seen) == 1)
        store.put("/other", b"1")
        gone = store.delete("/w/a")
        seen = watcher.until(lambda seen: len(seen) == 2)
        watcher.stop()
        assert seen == [Change("/w/a", first, first.mod_revision), Change("/w/a", None, gone.revision)]

    def test_a_watch_resumes_after_the_revision_it_is_given(self, connect):
        store = connect()
        store.put("/w/a", b"1")
        listing = store.list("/w/")
        store.delete("/w/a")
        later = store.put("/w/b", b"2")
        watcher = Watcher(connect(), "/w/", listing.revision)
        seen = watcher.until(lambda seen: len(seen) == 2)
        watcher.stop()
        assert [change.key for change in seen] == ["/w/a", "/w/b"]
        assert seen[1].entry == later

    def test_a_watch_sees_an_expired_lease_without_other_requests(self, store, advance):
        lease = store.grant(1.0)
        held = store.put("/w/a", b"1", lease=lease)
        watcher = Watcher(store, "/w/", held.mod_revision)
        lease.release()
        advance(1.5)
        seen = watcher.until(lambda seen: len(seen) == 1)
        watcher.stop()
        assert seen[0].entry is None

    def test_more_keys_than_a_transaction_of_etcd_takes_are_one_revision(self, store):
        answer = store.txn([], [Put(f"/many/{number:04}", b"%d" % number) for number in range(1700)])
        listing = store.list("/many/")
        assert len(listing.entries) == 1700
        assert {entry.mod_revision for entry in listing.entries} == {answer.revision}

    def test_a_watch_from_before_the_history_lists_again(self, store, forget):
        start = store.put("/w/kept", b"1").mod_revision
        store.put("/w/gone", b"")
        store.delete("/w/gone")
        forget(store)
        watcher = Watcher(store, "/w/", start)
        seen = watcher.until(lambda seen: len(seen) == 1)
        watcher.stop()
        assert isinstance(seen[0], Relisted)
        assert [entry.key for entry in seen[0].entries] == ["/w/kept"]

    def test_a_watch_from_a_revision_that_the_store_has_not_reached_lists_again(self, store):
        """A client may remember the revision of a store that was recreated or restored from a backup since."""
        held = store.put("/w/a", b"1")
        watcher = Watcher(store, "/w/", held.mod_revision + 1000)
        seen = watcher.until(lambda seen: len(seen) == 1)
        watcher.stop()
        assert isinstance(seen[0], Relisted)
        assert seen[0].entries == (held,)
