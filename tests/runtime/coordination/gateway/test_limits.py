"""Limits per account, tokens that the gateway knows, and its settings."""

from __future__ import annotations

import pytest

from runtime.coordination.etcd_address import EtcdAddress
from runtime.coordination.gateway import limits, settings
from runtime.coordination.gateway.authorization import Scope, scope_of
from runtime.coordination.gateway.lease_ids import LeaseIds
from runtime.coordination.gateway.limits import Bucket, Limits, Rate, Recent, Tables, Usage
from runtime.coordination.gateway.sessions import Sessions

_LEASES = LeaseIds(b"")


def scope(attempt: int = 1) -> Scope:
    found = scope_of(f"regatta-job-{attempt}", EtcdAddress(("etcd:2379",)), _LEASES)
    assert found
    return found


def test_a_bucket_is_refilled_with_time_up_to_its_burst():
    bucket = Bucket(Rate(1.0, 2.0), 0.0)
    assert [bucket.take(1, at) for at in (0.0, 0.0, 0.0, 1.0, 1.0, 99.0, 99.0, 99.0)] == [
        *(True, True, False),
        *(True, False),
        *(True, True, False),
    ]


def test_an_amount_above_the_burst_passes_with_a_full_bucket_and_leaves_a_debt():
    bucket = Bucket(Rate(1.0, 2.0), 0.0)
    assert bucket.take(5, 0.0)
    assert not bucket.take(1, 3.0)
    assert bucket.take(1, 4.0)


def test_a_table_drops_the_entry_that_was_not_used_for_the_longest_time():
    table = Recent(lambda now: [now], most=2)
    first = table.get("a", 1.0)
    table.get("b", 2.0)
    assert table.get("a", 3.0) is first
    table.get("c", 4.0)
    assert table.get("b", 5.0) == [5.0]


def test_calls_writes_bytes_and_reads_are_limited():
    usage = Usage(Limits(calls=Rate(1, 2), writes=Rate(1, 2), written_bytes=Rate(1, 10), read_bytes=Rate(1, 10)), 0.0)
    assert [usage.call(0.0) for _ in range(3)] == ["", "", limits.TOO_MANY_CALLS]
    assert usage.write(2, 4, 0.0) == ""
    assert usage.write(1, 4, 0.0) == limits.TOO_MANY_WRITES
    assert usage.write(1, 10, 2.0) == limits.TOO_MANY_BYTES
    assert usage.write(0, 1000, 2.0) == ""
    usage.read(1000)
    assert usage.call(9.0) == limits.TOO_MANY_READ


def test_stored_bytes_are_counted_before_the_first_put_and_after_a_quarter_as_much_was_written():
    usage = Usage(Limits(stored_bytes=100), 0.0)
    assert usage.must_count()
    usage.counted(50)
    assert (usage.must_count(), usage.put()) == (False, "")
    usage.write(1, 25, 0.0)
    assert usage.must_count()


def test_an_account_that_stores_too_much_puts_nothing_until_a_count_finds_less():
    usage = Usage(Limits(stored_bytes=100), 0.0)
    usage.counted(101)
    assert (usage.must_count(), usage.put()) == (True, limits.TOO_MUCH_STORED)
    usage.counted(100)
    assert usage.put() == ""


def test_leases_are_limited_until_they_end():
    usage = Usage(Limits(leases=1, lease_seconds=60), 0.0)
    assert usage.grant(61, 0.0) == limits.TTL_TOO_LONG
    assert usage.grant(10, 0.0) == ""
    usage.lease_lives(7, 10, 0.0)
    assert usage.grant(10, 5.0) == limits.TOO_MANY_LEASES
    usage.lease_lives(7, 10, 5.0)  # kept alive
    assert usage.grant(10, 14.0) == limits.TOO_MANY_LEASES
    usage.lease_lives(7, 0, 14.0)  # revoked
    assert usage.grant(10, 14.0) == ""


def test_a_lease_that_ended_without_being_revoked_makes_room():
    usage = Usage(Limits(leases=1), 0.0)
    usage.lease_lives(7, 10, 0.0)
    assert usage.grant(10, 10.0) == ""


def test_streams_are_limited_until_they_are_closed():
    usage = Usage(Limits(streams=1), 0.0)
    assert [usage.open_stream(), usage.open_stream()] == ["", limits.TOO_MANY_STREAMS]
    usage.close_stream()
    assert usage.open_stream() == ""


def test_failed_sign_ins_of_one_address_do_not_lock_another_one_out():
    tables = Tables(Limits(failed_sign_ins=Rate(0.1, 2)))
    for _ in range(2):
        assert tables.sign_in("a", "10.0.0.1", 0.0) == ""
        tables.sign_in_failed("a", "10.0.0.1", 0.0)
    assert tables.sign_in("a", "10.0.0.1", 0.0) == limits.TOO_MANY_SIGN_INS
    assert tables.sign_in("a", "10.0.0.2", 0.0) == ""
    assert tables.sign_in("a", "10.0.0.1", 10.0) == ""


def test_failed_sign_ins_of_many_accounts_from_one_address_are_limited_together():
    tables = Tables(Limits(failed_sign_ins_of_host=Rate(0.1, 2)))
    for account in ("a", "b"):
        assert tables.sign_in(account, "10.0.0.1", 0.0) == ""
        tables.sign_in_failed(account, "10.0.0.1", 0.0)
    assert tables.sign_in("c", "10.0.0.1", 0.0) == limits.TOO_MANY_SIGN_INS
    assert tables.sign_in("c", "10.0.0.2", 0.0) == ""


def test_a_token_is_known_for_a_limited_time():
    sessions = Sessions(seconds=10.0)
    sessions.add("t", scope(), 0.0)
    assert sessions.scope("t", 9.0) == scope()
    assert sessions.scope("t", 10.0) is None
    assert sessions.scope("", 0.0) is None


def test_the_oldest_token_is_dropped_per_account_and_in_all():
    sessions = Sessions(tokens=3, tokens_per_account=2)
    for number in range(3):
        sessions.add(f"a{number}", scope(1), 0.0)
    for number in range(2):
        sessions.add(f"b{number}", scope(2), 0.0)
    known = [token for token in ("a0", "a1", "a2", "b0", "b1") if sessions.scope(token, 1.0)]
    assert known == ["a2", "b0", "b1"]


# --- Settings --------------------------------------------------------------------------------------------------------
GIVEN = {settings.SERVERS: "etcd://etcd-0:2379/site", settings.KEY: "k" * 32}


def test_settings_have_defaults():
    found = settings.Settings.read(GIVEN)
    assert (found.site.prefix, found.listen, found.limits) == ("/site", "0.0.0.0:2379", Limits())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (settings.SERVERS, ""),
        (settings.SERVERS, "http://etcd"),
        (settings.SERVERS, "etcd://root:secret@etcd:2379"),
        (settings.KEY, "short"),
        (settings.LISTEN, "2379"),
        (settings.HEALTH, "host:port"),
        (settings.WRITE_BYTES, "-1"),
        (settings.STORED_BYTES, "0"),
    ],
)
def test_a_wrong_setting_is_named_without_secrets(name, value):
    with pytest.raises(settings.SettingsInvalid, match=name) as failure:
        settings.Settings.read({**GIVEN, name: value})
    assert "secret" not in str(failure.value)
