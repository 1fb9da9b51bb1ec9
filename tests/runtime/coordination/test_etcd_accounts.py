"""Each attempt's own user and role on a real etcd with authentication."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from runtime import contract
from runtime.coordination import connect
from runtime.coordination.base import AccessDenied, CoordinationStore, StoreUnavailable
from runtime.coordination.etcd_accounts import close_account, known_attempts, open_account
from runtime.coordination.etcd_address import EtcdAddress
from runtime.messages import training as messages
from tests.messages import pattern
from tests.ports import free_port
from tests.servers.etcd_server import EtcdServer

pytestmark = pytest.mark.etcd

_JOBS = count(1)
_PASSWORD = "of the attempt"


@pytest.fixture
def site(guarded: EtcdServer) -> str:
    return guarded.url_of_root("/here")


@pytest.fixture
def job() -> str:
    return f"job{next(_JOBS)}"


@pytest.fixture
def member(site: str, job: str) -> Iterator[CoordinationStore]:
    """Open the store as the first attempt's processes do."""
    store = connect(open_account(site, job, 1, _PASSWORD))
    yield store
    store.close()


def test_an_attempt_works_with_its_own_keys(member, job):
    prefix = contract.attempt_prefix(job, 1)
    lease = member.grant(10.0)
    member.put(f"{prefix}members/a", b"1", lease=lease)
    assert [entry.key for entry in member.list(prefix).entries] == [f"{prefix}members/a"]
    lease.revoke()
    assert member.list(prefix).entries == ()


@pytest.mark.parametrize("other", ["/regatta/another/1/", "/regatta/{job}/2/", "/regatta/{job}/", "/"])
def test_an_attempt_can_neither_read_nor_write_nor_watch_other_keys(member, job, other):
    prefix = other.format(job=job)
    attempts = (
        lambda: member.get(f"{prefix}a"),
        lambda: member.list(prefix),
        lambda: member.put(f"{prefix}a", b"1"),
        lambda: member.delete(f"{prefix}a"),
        lambda: next(iter(member.watch(prefix, 1))),
    )
    for attempt in attempts:
        with pytest.raises(AccessDenied, match="may not do that"):
            attempt()


def test_opening_it_again_changes_nothing_for_its_users(site, job, member):
    before = member.put(f"{contract.attempt_prefix(job, 1)}a", b"1")
    assert EtcdAddress.parse(open_account(site, job, 1, _PASSWORD)).user == f"regatta-{job}-1"
    assert member.get(before.key) == before


def test_the_address_of_an_account_names_no_root(site, job):
    given = EtcdAddress.parse(open_account(site, job, 1, _PASSWORD))
    assert (given.user, given.password) == (f"regatta-{job}-1", _PASSWORD)


def test_closing_it_removes_user_role_and_keys_and_may_be_done_again(site, guarded, job, member):
    member.put(f"{contract.attempt_prefix(job, 1)}a", b"1")
    for _ in range(2):
        close_account(site, job, 1)
    root = connect(site)
    assert root.list(contract.attempt_prefix(job, 1)).entries == ()
    root.close()
    account = f"root:{guarded.password}"
    assert f"regatta-{job}-1" not in guarded.ctl("user", "list", account=account)
    assert f"regatta-{job}-1" not in guarded.ctl("role", "list", account=account)
    with pytest.raises(AccessDenied):
        connect(EtcdAddress.parse(site).with_account(f"regatta-{job}-1", _PASSWORD).url).get("/a")


def test_remains_of_attempts_are_found(site, job, member):
    assert (job, 1) in known_attempts(site)
    close_account(site, job, 1)
    assert (job, 1) not in known_attempts(site)


def test_without_authentication_all_share_one_address(etcd, job):
    site = f"{etcd.url}/shared"
    assert open_account(site, job, 1, _PASSWORD) == site
    store = connect(site)
    prefix = contract.attempt_prefix(job, 1)
    store.put(f"{prefix}a", b"1")
    assert known_attempts(site) == {(job, 1)}
    close_account(site, job, 1)
    assert store.list(prefix).entries == ()
    store.close()


def test_an_etcd_that_is_away_is_reported_in_a_message(job):
    with pytest.raises(StoreUnavailable, match=pattern(messages.ETCD_NOT_RESPONDING)):
        open_account(f"etcd://127.0.0.1:{free_port()}", job, 1, _PASSWORD)
