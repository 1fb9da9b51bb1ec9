"""Parsing and formatting of etcd addresses."""

from __future__ import annotations

import pytest

from runtime.coordination.base import CoordinationError
from runtime.coordination.etcd_address import EtcdAddress


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("etcd://localhost", EtcdAddress(("localhost:2379",))),
        ("etcd://10.0.0.1:23790/", EtcdAddress(("10.0.0.1:23790",))),
        ("etcd://a:1,b,[::1]:3/teams/red", EtcdAddress(("a:1", "b:2379", "[::1]:3"), "/teams/red")),
        ("etcd://root:p%40ss%2F@a", EtcdAddress(("a:2379",), user="root", password="p@ss/")),
        ("etcd://a?ca=/etc/ca.pem", EtcdAddress(("a:2379",), ca="/etc/ca.pem")),
    ],
)
def test_an_address_is_read_and_written_as_the_same(url, address):
    assert EtcdAddress.parse(url) == address
    assert EtcdAddress.parse(address.url) == address


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://a", "does not begin with etcd://"),
        ("etcd://", "is no host or host:port"),
        ("etcd://a:port", "is no host or host:port"),
        ("etcd://a:70000", "is no host or host:port"),
        ("etcd://a,,b", "is no host or host:port"),
        ("etcd://secret@a", "no user:password before it"),
        ("etcd://a?timeout=3", "no option 'timeout'"),
    ],
)
def test_one_that_cannot_be_read_is_reported_in_a_message(url, why):
    with pytest.raises(CoordinationError, match=why):
        EtcdAddress.parse(url)


def test_the_password_is_not_shown():
    assert "p4ss" not in repr(EtcdAddress.parse("etcd://root:p4ss@a"))
    with pytest.raises(CoordinationError) as refusal:
        EtcdAddress.parse("etcd://root:p4ss@a:port")
    assert "p4ss" not in str(refusal.value)


def test_a_span_holds_the_keys_with_the_prefix_and_nothing_else():
    span = EtcdAddress(("a:1",), "/site").span("/regatta/7/1/")
    assert span == {"key": b"/site/regatta/7/1/", "range_end": b"/site/regatta/7/10"}
    assert EtcdAddress(("a:1",)).span("") == {"key": b"\0", "range_end": b"\0"}
