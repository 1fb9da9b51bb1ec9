"""The store on a real etcd against the contract, and failures that only a server can have."""

from __future__ import annotations

import errno
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import grpc
import pytest

from runtime.coordination import connect as connect_to
from runtime.coordination.base import (
    AccessDenied,
    Compare,
    CoordinationError,
    CoordinationStore,
    Lease,
    Put,
    Relisted,
    StoreFull,
    StoreUnavailable,
    TooLarge,
    Versioned,
)
from runtime.coordination.etcd import EtcdStore
from runtime.coordination.etcd_accounts import open_account
from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.etcd_compaction import compact
from runtime.coordination.etcd_connection import Connection
from runtime.messages import training as messages
from tests.contracts.coordination_contract import DEADLINE, Watcher, eventually
from tests.messages import pattern
from tests.servers.etcd_contract import EtcdContract
from tests.servers.etcd_server import EtcdServer, cluster, make_certificate
from tests.waiting import until

pytestmark = pytest.mark.etcd

ROOT = Path(__file__).parents[3]
_NUMBERS = count()


@pytest.fixture
def open_store() -> Iterator[Callable[..., EtcdStore]]:
    """Open a store on an etcd, below the test's own prefix."""
    opened: list[EtcdStore] = []
    prefix = f"/test-{next(_NUMBERS)}"

    def open_one(server: EtcdServer, **options: object) -> EtcdStore:
        opened.append(EtcdStore(EtcdAddress((server.server,), prefix), **options))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


class TestEtcdStore(EtcdContract):
    @pytest.fixture
    def open_one(self, etcd, open_store) -> Callable[[], CoordinationStore]:
        return lambda: open_store(etcd, keep_alive=False)

    @pytest.fixture
    def forget(self, etcd) -> Callable[[CoordinationStore], None]:
        return lambda store: etcd.compact()


def test_keys_of_another_prefix_are_not_seen(etcd, open_store):
    here = open_store(etcd)
    address = EtcdAddress.parse(f"{etcd.url}/elsewhere")
    there = EtcdStore(address)
    there.put("/a", b"1")
    assert here.get("/a") is None
    assert [entry.key for entry in there.list("/").entries] == ["/a"]
    there.close()


def test_the_periodic_listing_comes_though_nothing_happens(etcd, open_store):
    store = open_store(etcd, relist_seconds=0.3)
    kept = store.put("/w/a", b"1")
    watcher = Watcher(store, "/w/", kept.mod_revision)
    seen = watcher.until(lambda seen: len(seen) >= 2)
    watcher.stop()
    assert {type(one) for one in seen} == {Relisted}
    assert seen[0].entries == (kept,)


def test_closing_the_store_ends_its_watches(etcd, open_store):
    store = open_store(etcd)
    ended = threading.Event()
    watch = store.watch("/", store.list("/").revision)
    threading.Thread(target=lambda: (list(watch), ended.set()), daemon=True).start()
    store.close()
    assert ended.wait(DEADLINE)
    with pytest.raises(StoreUnavailable, match=pattern(messages.ETCD_CONNECTION_CLOSED)):
        store.get("/a")


def test_a_lease_that_an_operator_revokes_is_lost_with_the_next_keepalive(etcd, open_store):
    store = open_store(etcd)
    notified = threading.Event()
    lease = store.grant(2.0, lambda why: notified.set())
    etcd.ctl("lease", "revoke", f"{lease.id:x}")
    assert notified.wait(DEADLINE)
    assert not lease.alive


def test_a_request_larger_than_etcd_takes_is_reported_in_a_message(etcd, open_store):
    store = open_store(etcd)
    for size in (1_700_000, 4_000_000):  # beyond etcd's limit, and beyond what its gRPC reads
        with pytest.raises(TooLarge, match=pattern(messages.ETCD_REQUEST_TOO_LARGE)):
            store.put("/large", bytes(size))
    assert store.get("/large") is None


CHILD = """
import os, sys
from runtime.coordination import connect
store = connect(sys.argv[1])
store.put("/parent", b"1")
if os.fork() == 0:
    store.put("/child", b"1")
    os._exit(0)
os.wait()
"""


def test_a_forked_child_opens_its_own_connection(etcd):
    url = f"{etcd.url}/forked"
    subprocess.run([sys.executable, "-c", CHILD, url], cwd=ROOT, check=True, timeout=30)
    store = connect_to(url)
    assert store.get("/child") is not None
    store.close()


def test_over_tls_only_a_server_is_believed_that_the_certificates_vouch_for(start_etcd, tmp_path):
    certificate, key = make_certificate(tmp_path, "etcd")
    server = start_etcd("--cert-file", str(certificate), "--key-file", str(key), scheme="https")
    store = connect_to(f"{server.url}?ca={certificate}")
    written = store.put("/a", b"1")
    assert store.get("/a") == written
    store.close()
    store = connect_to(f"{server.url}?ca={make_certificate(tmp_path, 'other')[0]}")
    with pytest.raises(StoreUnavailable, match=pattern(messages.ETCD_NOT_RESPONDING)):
        store.get("/a")
    store.close()


def test_certificates_that_cannot_be_read_are_reported_in_a_message():
    with pytest.raises(CoordinationError, match=pattern(messages.ETCD_CERTIFICATES_UNREADABLE)):
        connect_to("etcd://127.0.0.1:1?ca=/nowhere/ca.pem").get("/a")


# --- History ---------------------------------------------------------------------------------------------------------
def test_m15_history_is_bounded_and_a_watch_that_fell_behind_relists(start_etcd, open_store):
    server = start_etcd()
    store = open_store(server)
    first = store.put("/w/a", b"1")
    revision = compact(server.url, 0)
    store.put("/w/a", b"2")
    store.put("/w/a", b"3")
    revision = compact(server.url, revision)
    assert "compacted" not in server.ctl("get", "/w/a", "--rev", str(first.mod_revision))  # the last five minutes stay
    compact(server.url, revision)
    compact(server.url, revision)  # as if another portal does the same
    with pytest.raises(AssertionError, match="compacted"):
        server.ctl("get", "/w/a", "--rev", str(first.mod_revision))
    watch = store.watch("/w/", 1)
    assert [entry.value for entry in next(iter(watch)).entries] == [b"3"]
    watch.close()


# --- A server that becomes unavailable -------------------------------------------------------------------------------
def counting_failures(lease: Lease) -> list[Exception]:
    """Return a list that grows with each failed keepalive."""
    failed, keep = list[Exception](), lease._keep

    def counting() -> bool:
        try:
            return keep()
        except CoordinationError as error:
            failed.append(error)
            raise

    lease._keep = counting
    return failed


def test_killed_and_started_again_it_keeps_entries_leases_and_watches(start_etcd, open_store):
    server = start_etcd()
    store = open_store(server)
    lease = store.grant(10.0)
    failed = counting_failures(lease)
    held = store.put("/w/held", b"1", lease=lease)
    watcher = Watcher(store, "/w/", held.mod_revision)
    store.put("/w/before", b"1")
    watcher.until(lambda seen: len(seen) == 1)
    server.kill()
    with pytest.raises(StoreUnavailable, match=pattern(messages.ETCD_NOT_RESPONDING)):
        store.put("/w/lost", b"1")
    until("the lease's holder has tried in vain, and again", lambda: len(failed) >= 2, 8.0)
    server.start()
    eventually(lambda: _answers(store))
    store.put("/w/after", b"1")
    seen = watcher.until(lambda seen: len(seen) == 2)
    watcher.stop()
    assert [change.key for change in seen] == ["/w/before", "/w/after"]
    assert lease.alive
    assert store.get("/w/held") == held


def test_a_watch_whose_history_was_dropped_while_disconnected_relists(start_etcd, open_store):
    server = start_etcd()
    watching, store = open_store(server), open_store(server)
    first = store.put("/w/a", b"1")
    watcher = Watcher(watching, "/w/", first.mod_revision)
    store.put("/w/a", b"2")
    watcher.until(lambda seen: len(seen) == 1)
    server.kill()
    server.start(wait=False)
    server.wait()
    eventually(lambda: _answers(store))
    # Whether the stream has returned by now or not, the watch must end up with the current state.
    store.delete("/w/a")
    kept = store.put("/w/b", b"1")
    server.compact()
    watcher.until(lambda seen: _known(seen) == {"/w/b": kept})
    watcher.stop()


def test_compaction_under_a_running_watch_loses_nothing(etcd, open_store):
    store = open_store(etcd)
    watcher = Watcher(store, "/w/", store.list("/w/").revision)
    for number in range(5):
        store.put(f"/w/{number}", b"")
        etcd.compact()
    seen = watcher.until(lambda seen: len(_known(seen)) == 5)
    watcher.stop()
    assert sorted(_known(seen)) == [f"/w/{number}" for number in range(5)]


def test_a_recreated_etcd_is_detected(start_etcd, open_store, tmp_path):
    old = start_etcd()
    new = EtcdServer(tmp_path, name="again", port=old.port)
    store = open_store(old)
    for _ in range(20):
        last = store.put("/w/a", b"old")
    watcher = Watcher(store, "/w/", last.mod_revision)
    old.kill()
    new.start()
    try:
        fresh = open_store(new)
        made = fresh.put("/w/b", b"new")
        watcher.until(lambda seen: _known(seen) == {"/w/b": made})
    finally:
        watcher.stop()
        new.kill()


@pytest.mark.timed
def test_every_call_gives_up_in_time_when_etcd_does_not_answer(start_etcd, open_store):
    server = start_etcd()
    store = open_store(server, call_seconds=0.3)
    lease = store.grant(30.0)
    server.freeze()
    for call in (
        lambda: store.get("/a"),
        lambda: store.list("/"),
        lambda: store.put("/a", b"1", lease=lease),
        lambda: store.delete("/a"),
        lambda: store.grant(10.0),
        lease.revoke,
    ):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=pattern(messages.ETCD_NOT_RESPONDING)):
            call()
        assert time.monotonic() - began < 2.0


@pytest.mark.timed
def test_a_holder_is_notified_before_its_lease_ends_while_etcd_is_down(start_etcd, open_store):
    server = start_etcd()
    store = open_store(server)
    notified_at: list[float] = []
    lease = store.grant(2.0, lambda why: notified_at.append(time.monotonic()))
    server.kill()
    deadline = time.monotonic() + 2.0
    eventually(lambda: notified_at)
    assert notified_at[0] < deadline
    assert not lease.alive


@pytest.mark.invariant(
    "A registration keeps its incarnation through an outage of etcd, also one longer than the lease."
)
def test_with_an_outage_a_registration_outlives_an_etcd_that_is_away_longer_than_its_lease(start_etcd, open_store):
    server = start_etcd()
    store = open_store(server)
    reasons: list[str] = []
    lease = store.grant(1.0, reasons.append, outage=60.0)
    held = store.put("/members/a", b"1", lease=lease)
    server.kill()
    until("the lease has run out", lambda: time.monotonic() > lease.fence_at - 60.0 + lease.ttl / 5)
    server.start()
    before = lease.fence_at
    eventually(lambda: lease.fence_at > before)
    assert store.get("/members/a") == held  # with the same create_revision: the same incarnation
    assert (reasons, lease.alive) == ([], True)


HOLDER = """
import sys, time
from runtime.coordination import connect
from runtime.coordination.base import Compare, Put
store = connect(sys.argv[1])
lost = []
lease = store.grant(2.0, lost.append)
mine = store.put("/owner", b"holder", if_revision=0, lease=lease)
print("holding", flush=True)
sys.stdin.readline()
answer = store.txn([Compare("/owner", create_revision=mine.create_revision)], [Put("/state", b"")])
print("alive" if lease.alive else "fenced", type(answer).__name__, flush=True)
"""


@pytest.mark.processes
def test_a_holder_stopped_beyond_its_lease_cannot_write_when_it_goes_on(etcd, open_store):
    url = f"{etcd.url}/zombie-{next(_NUMBERS)}"
    store = connect_to(url)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert holder.stdout.readline() == "holding\n"
        holder.send_signal(signal.SIGSTOP)
        eventually(lambda: isinstance(store.put("/owner", b"other", if_revision=0), Versioned))
        holder.send_signal(signal.SIGCONT)
        assert holder.communicate("go\n", timeout=60)[0] == "fenced Conflict\n"
        assert store.get("/state") is None
    finally:
        holder.kill()
        store.close()


def test_a_change_of_the_leader_is_survived(tmp_path):
    servers = cluster(tmp_path, ("a", "b", "c"))
    addresses = tuple(server.server for server in servers.values())
    store = EtcdStore(EtcdAddress(addresses))
    try:
        lease = store.grant(5.0)
        held = store.put("/w/held", b"1", lease=lease)
        watcher = Watcher(store, "/w/", held.mod_revision)
        _leader(servers).kill()
        eventually(lambda: _answers(store))
        after = store.put("/w/after", b"1")
        watcher.until(lambda seen: _known(seen).get("/w/after") == after)
        watcher.stop()
        assert lease.alive
        assert store.get("/w/held") == held
    finally:
        store.close()
        for server in servers.values():
            server.kill()


def test_a_full_etcd_is_reported_in_a_message_and_still_read(start_etcd, open_store):
    server = start_etcd("--quota-backend-bytes", str(1024 * 1024))
    store = open_store(server)
    kept = store.put("/kept", b"1")
    with pytest.raises(StoreFull, match=pattern(messages.ETCD_FULL)):
        for number in range(100):
            store.put(f"/fill/{number}", bytes(100_000))
    assert store.get("/kept") == kept
    with pytest.raises(StoreFull):
        store.txn([Compare("/kept", mod_revision=kept.mod_revision)], [Put("/kept", b"2")])
    with pytest.raises(StoreFull):
        open_account(server.url, "a-job", 1, "")
    # The remedy in the message helps.
    for entry in store.list("/fill/").entries:
        store.delete(entry.key)
    server.compact()
    server.ctl("defrag")
    server.ctl("alarm", "disarm")
    eventually(lambda: _takes_writes(store))


# --- Accounts of etcd ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("account", "message"),
    [
        ("", "wants a user and a password"),
        ("root:wrong@", "does not take this user and password"),
        ("nobody:wrong@", "does not take this user and password"),
    ],
)
def test_a_refused_user_is_reported_in_a_message(guarded, account, message):
    store = connect_to(f"etcd://{account}{guarded.server}")
    with pytest.raises(AccessDenied, match=message):
        store.put("/a", b"1")
    store.close()


def test_a_user_where_authentication_is_off_is_reported_in_a_message(etcd):
    store = connect_to(f"etcd://root:any@{etcd.server}")
    with pytest.raises(AccessDenied, match=pattern(messages.ETCD_AUTHENTICATION_OFF)):
        store.get("/a")
    store.close()


def test_a_token_that_a_restart_forgets_is_requested_again(guarded):
    store = EtcdStore(EtcdAddress((guarded.server,), user="root", password=guarded.password))
    start = store.put("/w/a", b"1")
    watcher = Watcher(store, "/w/", start.mod_revision)
    guarded.kill()
    guarded.start()
    eventually(lambda: _answers(store))
    written = store.put("/w/b", b"1")
    watcher.until(lambda seen: _known(seen).get("/w/b") == written)
    watcher.stop()
    store.close()


class OldToken(grpc.RpcError):
    """etcd's answer if the accounts have changed between sign-in and request."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.INVALID_ARGUMENT

    def details(self) -> str:
        return "etcdserver: revision of auth store is old"


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_token_that_expires_again_is_requested_again(etcd, open_store, monkeypatch, times):
    store = open_store(etcd)
    answers = [OldToken() for _ in range(times)]
    original = Connection._request

    def old(self, *arguments):
        if answers:
            raise answers.pop()
        return original(self, *arguments)

    monkeypatch.setattr(Connection, "_request", old)
    assert store.put("/a", b"1") == store.get("/a")


def test_accounts_that_change_all_the_time_are_an_etcd_that_does_not_answer(etcd, open_store, monkeypatch):
    def old(self, *arguments):
        raise OldToken

    store = open_store(etcd, call_seconds=0.2)
    monkeypatch.setattr(Connection, "_request", old)
    with pytest.raises(StoreUnavailable):
        store.put("/a", b"1")


def test_descriptors_that_are_short_are_no_wrong_certificates(monkeypatch):
    def short(self):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "read_bytes", short)
    with pytest.raises(StoreUnavailable):
        connect_to("etcd://127.0.0.1:1?ca=/etc/ca.pem").get("/a")


# --- Helpers ---------------------------------------------------------------------------------------------------------
def _answers(store: CoordinationStore) -> bool:
    try:
        store.get("/a")
    except StoreUnavailable:
        return False
    return True


def _takes_writes(store: CoordinationStore) -> bool:
    try:
        store.put("/kept", b"3")
    except StoreFull:
        return False
    return True


def _known(seen: list) -> dict[str, Versioned]:
    """Return the state after all these events."""
    known: dict[str, Versioned] = {}
    for one in seen:
        if isinstance(one, Relisted):
            known = {entry.key: entry for entry in one.entries}
        elif one.entry is None:
            known.pop(one.key, None)
        else:
            known[one.key] = one.entry
    return known


def _leader(servers: dict[str, EtcdServer]) -> EtcdServer:
    for server in servers.values():
        status = json.loads(server.ctl("endpoint", "status", "-w", "json"))[0]["Status"]
        if status["leader"] == status["header"]["member_id"]:
            return server
    raise AssertionError("no server leads")
