"""What an account may send to etcd."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyetcd import etcdrpc

from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.gateway import authorization as rules
from runtime.coordination.gateway.lease_ids import LeaseIds

SITE = EtcdAddress(("etcd:2379",), "/site")
LEASES = LeaseIds(b"k" * 32)
NAME = "regatta-a-job-3"
BEGIN, END = b"/site/regatta/a-job/3/", b"/site/regatta/a-job/30"
KEY = BEGIN + b"a"
FOREIGN = b"/site/regatta/a-job/4/a"


def scope(name: str = NAME) -> rules.Scope:
    found = rules.scope_of(name, SITE, LEASES)
    assert found
    return found


def test_the_scope_follows_from_the_name_and_the_prefix_of_the_site():
    assert (scope().begin, scope().end) == (BEGIN, END)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "root",
        "regatta-",
        "regatta-a-job",
        "regatta-a-job-03",
        "regatta--1",
        "regatta-a/b-1",
        "regatta-a-1\n",
        "x-a-1",
    ],
)
def test_other_accounts_have_no_scope(name):
    assert rules.scope_of(name, SITE, LEASES) is None


@pytest.mark.parametrize(
    ("key", "range_end", "why"),
    [
        (KEY, b"", ""),
        (BEGIN, END, ""),
        (KEY, KEY + b"\0", ""),
        (BEGIN[:-1], b"", rules.FOREIGN_KEY),
        (b"\0", b"\0", rules.FOREIGN_KEY),
        (b"", b"", rules.FOREIGN_KEY),
        (KEY, b"\0", rules.FOREIGN_RANGE),
        (BEGIN, END + b"\0", rules.FOREIGN_RANGE),
        (BEGIN, b"/site/regatta/b", rules.FOREIGN_RANGE),
        (KEY, KEY, rules.FOREIGN_RANGE),
        (END, b"", rules.FOREIGN_KEY),
        (FOREIGN, b"", rules.FOREIGN_KEY),
    ],
)
def test_a_range_lies_below_the_prefix(key, range_end, why):
    span = {"key": key, "range_end": range_end}
    watch = etcdrpc.WatchRequest(create_request=etcdrpc.WatchCreateRequest(**span))
    for request in (etcdrpc.RangeRequest(**span), etcdrpc.DeleteRangeRequest(**span), watch):
        assert rules.refusal(request, scope()) == why


def nested(request: Any, levels: int) -> Any:
    """Return a put within that many transactions."""
    operation = etcdrpc.RequestOp(request_put=request)
    for _ in range(levels - 1):
        operation = etcdrpc.RequestOp(request_txn=etcdrpc.TxnRequest(success=[operation]))
    return etcdrpc.TxnRequest(failure=[operation])


def test_each_level_of_a_transaction_is_checked():
    for levels in range(1, rules.MOST_LEVELS + 1):
        assert rules.refusal(nested(etcdrpc.PutRequest(key=KEY), levels), scope()) == ""
        assert rules.refusal(nested(etcdrpc.PutRequest(key=FOREIGN), levels), scope()) == rules.FOREIGN_KEY
    assert rules.refusal(nested(etcdrpc.PutRequest(key=KEY), rules.MOST_LEVELS + 1), scope()) == rules.TOO_DEEP


def test_an_empty_operation_and_an_unknown_request_are_refused():
    assert rules.refusal(etcdrpc.TxnRequest(success=[etcdrpc.RequestOp()]), scope()) == rules.EMPTY_OPERATION
    assert rules.refusal(etcdrpc.CompactionRequest(), scope()) == rules.UNKNOWN_REQUEST


def test_a_lease_is_granted_without_an_id_and_used_by_its_account_only():
    own, foreign = LEASES.choose(NAME, 10), LEASES.choose("regatta-a-job-4", 10)
    assert rules.refusal(etcdrpc.LeaseGrantRequest(TTL=1), scope()) == ""
    assert rules.refusal(etcdrpc.LeaseGrantRequest(TTL=1, ID=own), scope()) == rules.CHOSEN_LEASE
    for kind in (etcdrpc.LeaseRevokeRequest, etcdrpc.LeaseKeepAliveRequest):
        assert rules.refusal(kind(ID=own), scope()) == ""
        assert rules.refusal(kind(ID=foreign), scope()) == rules.FOREIGN_LEASE
    assert rules.refusal(etcdrpc.PutRequest(key=KEY, lease=own), scope()) == ""
    assert rules.refusal(etcdrpc.PutRequest(key=KEY, lease=foreign), scope()) == rules.FOREIGN_LEASE


def test_writes_of_all_levels_and_branches_are_counted():
    assert rules.writes(nested(etcdrpc.PutRequest(key=KEY), 3)) == 1
    assert rules.writes(etcdrpc.DeleteRangeRequest(key=KEY)) == 1
    assert rules.writes(etcdrpc.RangeRequest(key=KEY)) == 0


def test_only_puts_of_any_level_and_branch_store_something():
    assert rules.puts(nested(etcdrpc.PutRequest(key=KEY), 3))
    deletion = etcdrpc.RequestOp(request_delete_range=etcdrpc.DeleteRangeRequest(key=KEY))
    assert not rules.puts(etcdrpc.TxnRequest(success=[deletion]))
    assert not rules.puts(etcdrpc.RangeRequest(key=KEY))
    assert not rules.puts(etcdrpc.LeaseGrantRequest(TTL=1))


# --- Any request -----------------------------------------------------------------------------------------------------
PIECES = st.sampled_from([BEGIN, END, b"/site/regatta/", b"\0", b"", b"\xff", b"a", b"/"])
# Most keys are the attempt's own: otherwise hardly any request would pass, and the test would compare nothing.
ENDS = st.one_of(PIECES, st.builds(lambda *parts: b"".join(parts), PIECES, st.binary(max_size=2)))
KEYS = st.one_of(st.binary(max_size=3).map(lambda rest: BEGIN + rest), st.just(BEGIN), ENDS)
PLAIN = st.one_of(
    st.builds(lambda k, e: etcdrpc.RequestOp(request_range=etcdrpc.RangeRequest(key=k, range_end=e)), KEYS, ENDS),
    st.builds(
        lambda k, e: etcdrpc.RequestOp(request_delete_range=etcdrpc.DeleteRangeRequest(key=k, range_end=e)), KEYS, ENDS
    ),
    st.builds(lambda k: etcdrpc.RequestOp(request_put=etcdrpc.PutRequest(key=k)), KEYS),
)
COMPARES = st.lists(st.builds(lambda k, e: etcdrpc.Compare(key=k, range_end=e), KEYS, ENDS), max_size=2)


def transactions(operations: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(operations, max_size=2)
    return st.builds(lambda c, s, f: etcdrpc.TxnRequest(compare=c, success=s, failure=f), COMPARES, several, several)


REQUESTS = transactions(
    st.recursive(
        PLAIN, lambda inner: transactions(inner).map(lambda one: etcdrpc.RequestOp(request_txn=one)), max_leaves=4
    )
)


def touched(message: Any) -> list[tuple[bytes, bytes | None]]:
    """Return the ranges of all messages within, with their ends, None for "without an end"."""
    found: list[tuple[bytes, bytes | None]] = []
    for field, value in message.ListFields():
        if field.message_type is not None:
            inner = [value] if not field.is_repeated else value
            found += [one for part in inner for one in touched(part)]
    if "key" in message.DESCRIPTOR.fields_by_name:
        end = getattr(message, "range_end", b"")
        found.append((message.key, None if end == b"\0" else end or message.key + b"\0"))
    return found


@pytest.mark.invariant("No request that touches a key outside the attempt's prefix passes the coordination gateway.")
@example(etcdrpc.TxnRequest(compare=[etcdrpc.Compare(key=KEY, range_end=b"\0")]))
@given(REQUESTS)
def test_no_request_that_touches_another_key_passes(request):
    if rules.refusal(request, scope()) == "":
        for begin, end in touched(request):
            assert BEGIN <= begin < END
            assert end is not None and end <= END


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**19 - 1))
def test_an_id_belongs_to_one_account_at_most(guess, drawn):
    ids = LeaseIds(b"k" * 32, lambda bits: drawn)
    assert ids.belongs(ids.choose("a", 10), "a")
    assert not ids.belongs(ids.choose("a", 10), "b")
    assert 0 < ids.choose("a", 10) < 2**63
    assert not LeaseIds(b"other" * 8).belongs(ids.choose("a", 10), "a")
    assert not ids.belongs(-guess, "a")


def test_an_id_tells_the_time_to_live_to_its_account_only():
    ids = LeaseIds(b"k" * 32)
    lease = ids.choose("a", 3600)
    assert ids.seconds(lease, "a") == 3600
    assert ids.seconds(lease, "b") is None


def test_an_id_of_a_former_release_belongs_to_its_account_and_has_no_time():
    """``regatta-a-job-1``, key of 32 bytes k, drawn 5."""
    former = 0x7246B77714000005
    ids = LeaseIds(b"k" * 32)
    assert ids.belongs(former, "regatta-a-job-1")
    assert ids.seconds(former, "regatta-a-job-1") is None
    assert not ids.belongs(former, "regatta-a-job-2")
