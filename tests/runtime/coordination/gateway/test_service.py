"""The gateway before a real etcd: the contract of the store through it, and what it refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import grpc
import pytest
from pyetcd import etcdrpc

from runtime import contract
from runtime.coordination.base import AccessDenied, CoordinationStore, Delete, Put, StoreUnavailable, TooLarge
from runtime.coordination.etcd import EtcdStore
from runtime.coordination.etcd_accounts import account_name, open_account
from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.gateway import settings
from runtime.coordination.gateway.service import INVALID_TOKEN
from tests.contracts.coordination_contract import Watcher, eventually
from tests.servers.coordination_gateway import CoordinationGateway
from tests.servers.etcd_contract import EtcdContract
from tests.servers.etcd_server import EtcdServer
from tests.waiting import let_pass, until

pytestmark = [pytest.mark.etcd, pytest.mark.processes]
_JOBS = count()
PASSWORD = "a-password"
SITE = "/site"


class Tenant:
    """An attempt with an account in etcd, and raw access to the API at any server."""

    def __init__(self, etcd: EtcdServer) -> None:
        self.job = f"job-{next(_JOBS)}"
        self.name = account_name(self.job, 1)
        self.prefix = f"{SITE}{contract.attempt_prefix(self.job, 1)}"
        open_account(etcd.url_of_root(SITE), self.job, 1, PASSWORD)
        self._channels: list[grpc.Channel] = []
        self._stores: list[EtcdStore] = []

    def store(self, server: str, **options: object) -> EtcdStore:
        """Open a store whose keys ``/...`` are those of the attempt."""
        address = EtcdAddress((server,), self.prefix.rstrip("/"), self.name, PASSWORD)
        self._stores.append(EtcdStore(address, **options))
        return self._stores[-1]

    def channel(self, server: str) -> grpc.Channel:
        self._channels.append(grpc.insecure_channel(server))
        return self._channels[-1]

    def token(self, server: str) -> tuple[tuple[str, str], ...]:
        request = etcdrpc.AuthenticateRequest(name=self.name, password=PASSWORD)
        return (("token", etcdrpc.AuthStub(self.channel(server)).Authenticate(request, timeout=60).token),)

    def close(self) -> None:
        for store in self._stores:
            store.close()
        for channel in self._channels:
            channel.close()


@pytest.fixture
def tenant(guarded) -> Iterator[Callable[[], Tenant]]:
    opened: list[Tenant] = []

    def open_one(server: EtcdServer = guarded) -> Tenant:
        opened.append(Tenant(server))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture(scope="module")
def replicas(guarded, tmp_path_factory) -> Iterator[tuple[CoordinationGateway, CoordinationGateway]]:
    """Two replicas before the same etcd."""
    directory = tmp_path_factory.mktemp("gateway")
    both = tuple(CoordinationGateway(f"{guarded.url}{SITE}", directory) for _ in "12")
    for one in both:
        one.start()
    yield both
    for one in both:
        one.kill()


@pytest.fixture
def gateway(replicas) -> CoordinationGateway:
    return replicas[0]


class TestThroughTheGateway(EtcdContract):
    @pytest.fixture
    def open_one(self, gateway, tenant) -> Callable[[], CoordinationStore]:
        one = tenant()
        return lambda: one.store(gateway.server, keep_alive=False)

    @pytest.fixture
    def forget(self, guarded) -> Callable[[CoordinationStore], None]:
        def drop(store: CoordinationStore) -> None:
            guarded.ctl("compact", str(store.list("/").revision), account=f"root:{guarded.password}")

        return drop


def refused(call: Callable[[], object]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as failure:
        call()
    return failure.value.code()


# --- The hole --------------------------------------------------------------------------------------------------------
def administration(channel: grpc.Channel, metadata: tuple[tuple[str, str], ...]) -> dict[str, Callable[[], object]]:
    """Return calls that no job may make."""
    maintenance, auth = etcdrpc.MaintenanceStub(channel), etcdrpc.AuthStub(channel)
    options = {"timeout": 5, "metadata": metadata}
    alarm = etcdrpc.AlarmRequest(action=etcdrpc.AlarmRequest.ACTIVATE, alarm=etcdrpc.NOSPACE)
    leases = channel.unary_unary("/etcdserverpb.Lease/LeaseLeases")
    user = etcdrpc.AuthUserAddRequest(name="mallory", password="x")
    return {
        "alarm": lambda: maintenance.Alarm(alarm, **options),
        "status": lambda: maintenance.Status(etcdrpc.StatusRequest(), **options),
        "snapshot": lambda: list(maintenance.Snapshot(etcdrpc.SnapshotRequest(), **options)),
        "defragment": lambda: maintenance.Defragment(etcdrpc.DefragmentRequest(), **options),
        "auth disable": lambda: auth.AuthDisable(etcdrpc.AuthDisableRequest(), **options),
        "user add": lambda: auth.UserAdd(user, **options),
        "user list": lambda: auth.UserList(etcdrpc.AuthUserListRequest(), **options),
        "members": lambda: etcdrpc.ClusterStub(channel).MemberList(etcdrpc.MemberListRequest(), **options),
        "leases": lambda: leases(b"", **options),
        "compaction": lambda: etcdrpc.KVStub(channel).Compact(etcdrpc.CompactionRequest(revision=1), **options),
        "time to live": lambda: etcdrpc.LeaseStub(channel).LeaseTimeToLive(
            etcdrpc.LeaseTimeToLiveRequest(ID=1, keys=True), **options
        ),
    }


@pytest.mark.invariant("The coordination gateway passes no call that administers etcd, with an account or without.")
@pytest.mark.parametrize("with_account", [False, True])
def test_no_call_that_administers_etcd_passes(gateway, tenant, with_account):
    one = tenant()
    metadata = one.token(gateway.server) if with_account else ()
    codes = {name: refused(call) for name, call in administration(one.channel(gateway.server), metadata).items()}
    assert set(codes.values()) == {grpc.StatusCode.UNIMPLEMENTED}


def test_root_cannot_sign_in_through_the_gateway(gateway, guarded, tenant):
    for name, password in (("root", guarded.password), ("regatta-job-0-01", PASSWORD), ("", "")):
        auth = etcdrpc.AuthStub(tenant().channel(gateway.server))
        request = etcdrpc.AuthenticateRequest(name=name, password=password)
        assert refused(lambda: auth.Authenticate(request, timeout=60)) is grpc.StatusCode.INVALID_ARGUMENT  # noqa: B023


def test_a_token_of_root_is_worth_nothing(gateway, guarded, tenant):
    one = tenant()
    request = etcdrpc.AuthenticateRequest(name="root", password=guarded.password)
    token = etcdrpc.AuthStub(one.channel(guarded.server)).Authenticate(request, timeout=60).token
    kv = etcdrpc.KVStub(one.channel(gateway.server))
    with pytest.raises(grpc.RpcError) as failure:
        kv.Range(etcdrpc.RangeRequest(key=b"\0", range_end=b"\0"), timeout=5, metadata=(("token", token),))
    assert (failure.value.code(), failure.value.details()) == (grpc.StatusCode.UNAUTHENTICATED, INVALID_TOKEN)


# --- Other tenants ---------------------------------------------------------------------------------------------------
def test_keys_of_another_attempt_are_refused_by_the_gateway(gateway, tenant):
    mine, other = tenant(), tenant()
    kv, metadata = etcdrpc.KVStub(mine.channel(gateway.server)), mine.token(gateway.server)
    key = f"{other.prefix}a".encode()
    put = etcdrpc.RequestOp(request_put=etcdrpc.PutRequest(key=key, value=b"x"))
    nested = etcdrpc.RequestOp(request_txn=etcdrpc.TxnRequest(success=[put]))
    own = f"{mine.prefix}a".encode()
    for call, request in (
        (kv.Range, etcdrpc.RangeRequest(key=key)),
        (kv.Range, etcdrpc.RangeRequest(key=own, range_end=b"\0")),
        (kv.Put, etcdrpc.PutRequest(key=key, value=b"x")),
        (kv.DeleteRange, etcdrpc.DeleteRangeRequest(key=b"\0", range_end=b"\0")),
        (kv.Txn, etcdrpc.TxnRequest(success=[nested])),
        (kv.Txn, etcdrpc.TxnRequest(failure=[put])),
        (kv.Txn, etcdrpc.TxnRequest(compare=[etcdrpc.Compare(key=key)])),
    ):
        with pytest.raises(grpc.RpcError, match="prefix of this account"):
            call(request, timeout=5, metadata=metadata)


def test_a_watch_of_another_attempt_is_refused(gateway, tenant):
    mine, other = tenant(), tenant()
    stub, metadata = etcdrpc.WatchStub(mine.channel(gateway.server)), mine.token(gateway.server)
    for span in ({"key": other.prefix.encode()}, {"key": mine.prefix.encode(), "range_end": b"\0"}):
        request = etcdrpc.WatchRequest(create_request=etcdrpc.WatchCreateRequest(**span))
        code = refused(lambda: next(stub.Watch(iter([request]), timeout=5, metadata=metadata)))  # noqa: B023
        assert code is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.invariant("No attempt uses a lease of another one, through whichever replica of the gateway.")
def test_a_lease_of_another_attempt_is_refused_by_each_replica(replicas, tenant):
    owner, other = tenant(), tenant()
    lease = owner.store(replicas[0].server, keep_alive=False).grant(60.0)
    assert owner.store(replicas[1].server, keep_alive=False)._keep(lease.id, 60.0)
    for gateway in replicas:
        channel, metadata = other.channel(gateway.server), other.token(gateway.server)
        stub, options = etcdrpc.LeaseStub(channel), {"timeout": 5, "metadata": metadata}
        keep = etcdrpc.LeaseKeepAliveRequest(ID=lease.id)
        put = etcdrpc.PutRequest(key=f"{other.prefix}a".encode(), lease=lease.id)
        codes = {
            refused(lambda: next(stub.LeaseKeepAlive(iter([keep]), **options))),  # noqa: B023
            refused(lambda: stub.LeaseRevoke(etcdrpc.LeaseRevokeRequest(ID=lease.id), **options)),  # noqa: B023
            refused(lambda: etcdrpc.KVStub(channel).Put(put, **options)),  # noqa: B023
        }
        assert codes == {grpc.StatusCode.PERMISSION_DENIED}


# --- Failures --------------------------------------------------------------------------------------------------------
def test_a_store_continues_at_a_gateway_that_does_not_know_its_token(guarded, tenant, tmp_path):
    gateway = CoordinationGateway(f"{guarded.url}{SITE}", tmp_path)
    gateway.start()
    try:
        store = tenant().store(gateway.server)
        lease = store.grant(10.0)
        held = store.put("/held", b"1", lease=lease)
        watcher = Watcher(store, "/", held.mod_revision)
        assert gateway.stop() == 0
        gateway.start()  # it knows no token
        until("the store answers", lambda: _answers(store), 60)
        made = store.put("/after", b"1")
        watcher.until(lambda seen: made in [one.entry for one in seen if hasattr(one, "entry")] or _listed(seen, made))
        watcher.stop()
        assert lease.alive
        assert store.get("/held") == held
    finally:
        gateway.kill()


@pytest.mark.invariant("An outage of all coordination gateways that is longer than a lease does not end it.")
def test_a_lease_outlives_an_outage_of_all_gateways(guarded, tenant, tmp_path):
    gateway = CoordinationGateway(f"{guarded.url}{SITE}", tmp_path)
    gateway.start()
    try:
        holder = tenant()
        lease = holder.store(gateway.server, keep_alive=False).grant(1.0)
        gateway.kill()
        let_pass(3.0)
        gateway.start()
        assert holder.store(gateway.server, keep_alive=False)._keep(lease.id, 10.0)
    finally:
        gateway.kill()


def test_a_lease_that_nobody_keeps_ends_in_time(replicas, tenant):
    store = tenant().store(replicas[0].server, keep_alive=False)
    store.put("/held", b"1", lease=store.grant(1.0))
    until("the gateway ends the lease", lambda: store.get("/held") is None, 10.0, every=0.2)


def test_without_any_gateway_etcd_ends_a_lease_after_the_longer_time(guarded, tenant, tmp_path):
    gateway = CoordinationGateway(f"{guarded.url}{SITE}", tmp_path, **{settings.HELD: "3"})
    gateway.start()
    try:
        lease = tenant().store(gateway.server, keep_alive=False).grant(1.0)
    finally:
        gateway.kill()

    def answer() -> str:
        return guarded.ctl("lease", "timetolive", f"{lease.id:x}", account=f"root:{guarded.password}")

    assert "remaining" in answer()
    until("etcd ends the lease", lambda: "already expired" in answer(), 15.0, every=0.2)


def test_a_lease_that_is_kept_at_another_gateway_goes_on(replicas, tenant):
    holder = tenant()
    first, second = (holder.store(one.server, keep_alive=False) for one in replicas)
    lease = first.grant(2.0)
    for _ in range(6):
        assert second._keep(lease.id, 10.0)
        let_pass(1.0)


def test_a_holder_is_told_the_time_to_live_that_it_asked_for(replicas, tenant):
    holder = tenant()
    channel, metadata = holder.channel(replicas[0].server), holder.token(replicas[0].server)
    stub, options = etcdrpc.LeaseStub(channel), {"timeout": 5, "metadata": metadata}
    granted = stub.LeaseGrant(etcdrpc.LeaseGrantRequest(TTL=10), **options)
    kept = next(stub.LeaseKeepAlive(iter([etcdrpc.LeaseKeepAliveRequest(ID=granted.ID)]), **options))
    assert (granted.TTL, kept.TTL) == (10, 10)


def test_a_store_continues_after_a_restart_of_etcd(start_etcd, tenant, tmp_path):
    etcd = start_etcd()
    etcd.switch_authentication_on()
    gateway = CoordinationGateway(f"{etcd.url}{SITE}", tmp_path)
    gateway.start()
    try:
        store = tenant(etcd).store(gateway.server)
        held = store.put("/held", b"1")
        etcd.kill()
        with pytest.raises(StoreUnavailable):
            store.get("/held")
        etcd.start()
        until("the store answers", lambda: _answers(store), 60)
        assert store.get("/held") == held
    finally:
        gateway.kill()


def test_the_next_server_of_etcd_is_used_when_one_is_away(guarded, tenant, tmp_path):
    address = EtcdAddress.parse(f"{guarded.url}{SITE}")
    dead = replace(address, servers=("127.0.0.1:1", *address.servers))
    gateway = CoordinationGateway(dead.url, tmp_path)
    gateway.start()
    try:
        store = tenant().store(gateway.server)
        eventually(lambda: _answers(store))
    finally:
        gateway.kill()


# --- Limits ----------------------------------------------------------------------------------------------------------
def test_a_request_larger_than_etcd_takes_is_refused_as_too_large(gateway, tenant):
    store = tenant().store(gateway.server)
    for size in (1_700_000, 4_000_000):
        with pytest.raises(TooLarge):
            store.put("/large", bytes(size))


def test_an_account_that_writes_too_much_waits_and_another_does_not(guarded, tenant, tmp_path):
    gateway = CoordinationGateway(f"{guarded.url}{SITE}", tmp_path, REGATTA_COORDINATION_GATEWAY_WRITE_BYTES="1")
    gateway.start()
    try:
        store, other = tenant().store(gateway.server), tenant().store(gateway.server)
        with pytest.raises(StoreUnavailable, match="too many bytes"):
            for _ in range(40):
                store.put("/large", bytes(1_000_000))
        other.put("/a", b"1")
        assert store.get("/large") is not None
    finally:
        gateway.kill()


@pytest.mark.invariant("An attempt cannot fill etcd: what it stores is bounded.")
def test_an_account_that_stores_too_much_may_only_read_and_delete(guarded, tenant, tmp_path):
    """The limit is beyond the first page of keys."""
    one = len(f"{SITE}/regatta/job-1/1/000") + 8
    stored = str(150 * one)
    gateway = CoordinationGateway(f"{guarded.url}{SITE}", tmp_path, REGATTA_COORDINATION_GATEWAY_STORED_BYTES=stored)
    gateway.start()
    try:
        store, other = tenant().store(gateway.server), tenant().store(gateway.server)
        keys = [f"/{number:03}" for number in range(400)]
        for begin in range(0, 120, 40):
            store.txn([], [Put(key, b"12345678") for key in keys[begin : begin + 40]])
        with pytest.raises(StoreUnavailable, match="stores too much"):
            for begin in range(120, 400, 40):
                store.txn([], [Put(key, b"12345678") for key in keys[begin : begin + 40]])
        other.put("/a", b"1")
        kept = [entry.key for entry in store.list("/").entries]
        assert len(kept) <= 240
        store.txn([], [Delete(key) for key in kept])
        store.put("/a", b"1")
    finally:
        gateway.kill()


def test_failed_sign_ins_are_limited_per_account(gateway, tenant):
    one, other = tenant(), tenant()
    auth = etcdrpc.AuthStub(one.channel(gateway.server))
    wrong = etcdrpc.AuthenticateRequest(name=one.name, password="wrong")
    codes = [refused(lambda: auth.Authenticate(wrong, timeout=60)) for _ in range(12)]
    assert codes[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert codes[-1] is grpc.StatusCode.RESOURCE_EXHAUSTED
    other.store(gateway.server).put("/a", b"1")


def test_a_sign_in_without_a_message_does_not_stay_open(gateway, tenant):
    call = tenant().channel(gateway.server).stream_unary("/etcdserverpb.Auth/Authenticate")
    sent = threading.Event()
    try:
        with pytest.raises(grpc.RpcError, match="the call has no message"):
            call((b"" for _ in iter(sent.wait, True)), timeout=15)
    finally:
        sent.set()


def test_a_wrong_password_is_reported_as_by_etcd(gateway, tenant):
    one = tenant()
    store = EtcdStore(EtcdAddress((gateway.server,), one.prefix.rstrip("/"), one.name, "wrong"))
    with pytest.raises(AccessDenied):
        store.get("/a")
    store.close()


def test_a_large_transaction_passes_nested(gateway, tenant):
    store = tenant().store(gateway.server)
    store.txn([], [Put(f"/{number}", b"") for number in range(300)])
    assert len(store.list("/").entries) == 300


def _answers(store: EtcdStore) -> bool:
    try:
        store.get("/")
    except StoreUnavailable:
        return False
    return True


def _listed(seen: list, made: object) -> bool:
    return any(made in getattr(one, "entries", ()) for one in seen)
