"""The embedded store against the contract, and failures that only a file can have."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime.coordination import CoordinationError, connect, embedded
from runtime.coordination.base import CoordinationStore, Lease, Relisted, StoreUnavailable, Versioned
from runtime.coordination.embedded import EmbeddedStore
from runtime.messages import training as messages
from tests.contracts.coordination_contract import DEADLINE, CoordinationContract, Watcher
from tests.messages import pattern


class ManualClock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_store(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[[], EmbeddedStore]]:
    opened: list[EmbeddedStore] = []

    def open_one(**options: object) -> EmbeddedStore:
        opened.append(
            EmbeddedStore(tmp_path / "store.db", clock=clock, keep_alive=False, poll_seconds=0.005, **options)
        )
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


class TestEmbeddedStore(CoordinationContract):
    @pytest.fixture
    def connect(self, open_store: Callable[[], EmbeddedStore]) -> Callable[[], CoordinationStore]:
        return open_store

    @pytest.fixture
    def advance(self, clock: ManualClock) -> Callable[[float], None]:
        def move(seconds: float) -> None:
            clock.now += seconds

        return move

    @pytest.fixture
    def forget(self) -> Callable[[CoordinationStore], None]:
        def overflow(store: CoordinationStore) -> None:
            for number in range(1200):
                store.put(f"/w/{number}", b"")
                store.delete(f"/w/{number}")

        return overflow


def test_a_restart_of_the_machine_ends_every_lease(open_store, clock):
    store = open_store()
    store.put("/held", b"1", lease=store.grant(10.0))
    clock.now = 3.0  # the monotonic clock was reset
    assert store.get("/held") is None


def test_nobody_else_begins_to_write_between_the_read_and_the_write_of_a_change(open_store, tmp_path, monkeypatch):
    """SQLite would refuse a change that another one overtakes there, however long it waited."""
    store, other = open_store(), sqlite3.connect(tmp_path / "store.db", timeout=0, isolation_level=None)
    get = embedded._get

    def get_while_another_begins(connection: sqlite3.Connection, key: str) -> Versioned | None:
        found = get(connection, key)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        return found

    monkeypatch.setattr(embedded, "_get", get_while_another_begins)
    assert isinstance(store.put("/a", b"1", if_revision=0), Versioned)
    other.close()


def test_a_watch_relists_periodically_as_a_safety_net(open_store):
    store = open_store(relist_seconds=0.02)
    kept = store.put("/w/a", b"1")
    watcher = Watcher(store, "/w/", kept.mod_revision)
    seen = watcher.until(lambda seen: len(seen) >= 2)
    watcher.stop()
    assert seen[0] == Relisted((kept,), kept.mod_revision)


def test_closing_the_store_ends_its_watches(open_store):
    store = open_store()
    ended = threading.Event()
    watch = store.watch("/", 0)
    threading.Thread(target=lambda: (list(watch), ended.set()), daemon=True).start()
    store.close()
    assert ended.wait(DEADLINE)


def test_a_lease_keeps_itself_alive_on_its_own_thread(tmp_path):
    store = EmbeddedStore(tmp_path / "store.db")
    renewed = threading.Event()
    lease = store.grant(0.3)
    first, beat = lease.fence_at, lease.beat
    lease.beat = lambda: (beat(), renewed.set())[0]  # type: ignore[method-assign]
    assert renewed.wait(DEADLINE)
    assert lease.fence_at > first
    lease.revoke()
    store.close()


def test_a_holder_that_cannot_reach_the_store_is_notified_in_time(clock):
    reasons: list[str] = []

    def unreachable() -> bool:
        clock.now += 1.0
        raise StoreUnavailable("away")

    lease = Lease(1, 10.0, clock.now, clock, unreachable, lambda: None, reasons.append)
    while lease.alive:
        delay = lease.beat()
        clock.now += delay
    lease.beat()
    assert len(reasons) == 1
    assert clock.now < 1010.0


def test_a_lease_that_the_store_has_forgotten_is_lost_at_once(clock):
    reasons: list[str] = []
    lease = Lease(1, 10.0, clock.now, clock, lambda: False, lambda: None, reasons.append)
    lease.beat()
    assert reasons == [messages.LEASE_ENDED()]


def test_the_deadline_counts_from_when_the_keepalive_was_sent(clock):
    def slow() -> bool:
        clock.now += 0.9
        return True

    lease = Lease(1, 10.0, clock.now, clock, slow, lambda: None, None)
    clock.now += 3.0
    lease.beat()
    assert lease.fence_at == 1003.0 + 10.0 - 2.0


ROOT = Path(__file__).parents[3]
RACER = """
import sys
from runtime.coordination import connect
from runtime.coordination.base import Versioned
store = connect(sys.argv[1])
sys.stdin.readline()
won = [n for n in range(50) if isinstance(store.put(f"/race/{n}", sys.argv[2].encode(), if_revision=0), Versioned)]
print(len(won))
"""


@pytest.mark.processes
def test_two_processes_race_and_each_key_has_one_winner(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for name in ("a", "b")
    ]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    wins = [int(racer.communicate(timeout=20)[0]) for racer in racers]
    store = connect(url)
    assert sum(wins) == len(store.list("/race/").entries) == 50
    store.close()


IMPORTS = """
import sys
from runtime.coordination import connect
connect(sys.argv[1]).put("/a", b"1")
print([name for name in ("grpc", "google.protobuf", "pyetcd") if name in sys.modules])
"""


@pytest.mark.processes
def test_the_embedded_store_loads_nothing_of_etcd(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    loaded = subprocess.check_output([sys.executable, "-c", IMPORTS, url], text=True, cwd=ROOT, timeout=20)
    assert loaded == "[]\n"


def test_both_ways_to_write_an_absolute_path_mean_the_same_file(tmp_path):
    one, other = connect(f"sqlite:///{tmp_path}/a.db"), connect(f"sqlite://{tmp_path}/a.db")
    one.put("/a", b"1")
    assert other.get("/a").value == b"1"
    one.close()
    other.close()


@pytest.mark.parametrize("url", ["redis://localhost", ""])
def test_another_address_is_refused_with_a_message(url):
    with pytest.raises(CoordinationError, match=pattern(messages.STORE_ADDRESS_INVALID)):
        connect(url)


def test_a_directory_that_is_not_there_is_reported_in_a_message(tmp_path):
    with pytest.raises(StoreUnavailable, match=pattern(messages.STORE_NOT_OPENED)):
        connect(f"sqlite:///{tmp_path}/nowhere/store.db")
