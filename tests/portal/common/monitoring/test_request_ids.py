"""The id of a request: a trusted proxy may choose it, nobody else."""

from __future__ import annotations

import re

import pytest

from portal.common.monitoring.request_ids import choose
from portal.common.trusted_proxies import network

PROXIES = (network("10.0.0.0/8"),)
FRESH = re.compile(r"[0-9a-f]{16}")


@pytest.mark.parametrize("given", ["abc-1", "a" * 64, "0af7651916cd43dd8448eb211c80319c"])
def test_a_trusted_proxy_chooses_the_id(given: str) -> None:
    assert choose("10.0.0.7", given, PROXIES) == given


@pytest.mark.parametrize("given", ["", "a b", "a\nb", "a" * 65, "ä", '{"x":1}'])
def test_an_id_that_is_not_well_formed_is_replaced(given: str) -> None:
    assert FRESH.fullmatch(choose("10.0.0.7", given, PROXIES))


@pytest.mark.invariant("Only a trusted proxy chooses the id of a request.")
@pytest.mark.parametrize("peer", ["192.0.2.1", "", "testclient"])
def test_a_caller_that_is_no_trusted_proxy_gets_a_fresh_id(peer: str) -> None:
    assert FRESH.fullmatch(choose(peer, "abc-1", PROXIES))


def test_two_requests_have_different_ids() -> None:
    assert choose("", "", ()) != choose("", "", ())
