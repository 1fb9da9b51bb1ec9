"""The caller's address behind trusted and untrusted proxies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.common.trusted_proxies import caller, is_encrypted, network

INSIDE = (network("10.0.0.0/8"), network("fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "expected"),
    [
        ("203.0.113.9", "", "203.0.113.9"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        # Several trusted proxies: the first address from the end that is none of them.
        ("10.0.0.1", "203.0.113.9, 10.0.0.3, 10.0.0.2", "203.0.113.9"),
        # Earlier items, which the caller wrote, are ignored.
        ("10.0.0.1", "198.51.100.1, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "10.0.0.5, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        # All are trusted: an internal caller.
        ("10.0.0.1", "10.0.0.7, 10.0.0.2", "10.0.0.7"),
        # An invalid item ends the search at the address that sent it.
        ("10.0.0.1", "203.0.113.9, unknown", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.9, , 10.0.0.2", "10.0.0.2"),
        # The spellings of IPv6.
        ("fd00::1", "2001:db8::7", "2001:db8::7"),
        ("fd00::1", '"[2001:db8::7]:4711"', "2001:db8::7"),
        ("fd00::1", "[2001:DB8:0::7]", "2001:db8::7"),
        ("::ffff:10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "::ffff:203.0.113.9", "203.0.113.9"),
        ("fe80::1%eth0", "203.0.113.9", "fe80::1"),
        # A port, which some proxies add.
        ("10.0.0.1", "203.0.113.9:4711", "203.0.113.9"),
        # A unix socket has no address, so no proxy can have added it.
        ("", "203.0.113.9", "None"),
    ],
)
def test_the_caller_is_the_last_address_that_is_no_trusted_proxy(peer: str, forwarded_for: str, expected: str) -> None:
    assert str(caller(peer, forwarded_for, INSIDE)) == expected


@given(st.ip_addresses(), st.text(alphabet="0123456789abcdef.:, []\"'%x", max_size=60))
def test_headers_of_an_untrusted_peer_are_ignored(peer: object, forwarded_for: str) -> None:
    nobody = caller(str(peer), forwarded_for, ())
    assert nobody == caller(str(peer), "", ())
    assert not is_encrypted(str(peer), "https", ())


@given(st.text(max_size=80))
def test_addresses_that_a_caller_prepends_change_nothing(written: str) -> None:
    assert str(caller("10.0.0.1", f"{written}, 203.0.113.9", INSIDE)) == "203.0.113.9"


@pytest.mark.parametrize(
    ("peer", "word", "expected"),
    [
        ("10.0.0.1", "https", True),
        ("10.0.0.1", "HTTPS", True),
        ("10.0.0.1", "http", False),
        ("10.0.0.1", "", False),
        ("10.0.0.1", "https, http", False),
        ("203.0.113.9", "https", False),
    ],
)
def test_only_a_trusted_proxy_can_report_encryption(peer: str, word: str, expected: bool) -> None:
    assert is_encrypted(peer, word, INSIDE) is expected


@pytest.mark.parametrize("text", ["10.0.0.1/8", "proxy.example.org", "", "10.0.0.0/33", "10.0.0"])
def test_an_invalid_network_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        network(text)
